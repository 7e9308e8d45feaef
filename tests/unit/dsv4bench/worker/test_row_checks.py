"""A row that is out of range is refused by packers and programs alike, by name, with nothing written."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dsv4bench.cache.layout import CacheLayout
from dsv4bench.engine.packing import RequestChecks, allocate_arrays, pack_decode
from dsv4bench.engine.prefill import PrefillBuffers, pack_mtp_prefill, pack_prefill
from dsv4bench.engine.requests import ActiveRequest, Request, RequestHandle, Sampling
from dsv4bench.engine.slots import DecodeSlot
from dsv4bench.engine.steps import DecodeStep, PrefillChunk, PrefillStep
from dsv4bench.model.checkpoint import ensure_checkpoint
from dsv4bench.model.config import preset
from dsv4bench.model.exchange import LocalExchange
from dsv4bench.model.model import load_weights
from dsv4bench.worker.programs import DeepSeekPrograms
from dsv4bench.worker.rank import RankContext
from dsv4bench.worker.task_args import (
    DeviceState,
    Pools,
    SamplingField,
    decode_specs,
    mtp_prefill_specs,
    prefill_specs,
    state_width,
    values,
)

CONFIG = preset("test-b")
LAYOUT = CacheLayout.derive(CONFIG, 300)
ROWS = 2
# A request of 300 positions has 3 pages of the first four groups, 34 and 65 of the rings.
PAGES = tuple(blocks * ROWS for blocks in LAYOUT.blocks_for(300))


def request(row: int, prompt: Sequence[int] = (5, 6, 7), **changes: Any) -> ActiveRequest:
    blocks = tuple(np.arange(count, dtype=np.int32) + row * count for count in LAYOUT.blocks_for(300))
    handle = RequestHandle(Request(f"r{row}", prompt, 4, sampling=Sampling(0.5, 3, 0.9, 11)), 0)
    active = ActiveRequest(handle, 0, row, 1, blocks, prompt)
    for name, value in changes.items():
        setattr(active, name, value)
    return active


def with_page(row: int, group: int, place: int, page: int) -> tuple[np.ndarray, ...]:
    blocks = [ids.copy() for ids in request(row).blocks]
    blocks[group][place] = page
    return tuple(blocks)


HOST_FAULTS = [
    ({"state_slot": 2}, r"row 1: state_slots is 2, must be in 0\.\.1"),
    ({"state_slot": -1}, r"row 1: state_slots is -1, must be in 0\.\.1"),
    ({"generation": 0}, r"row 1: generations is 0, must be at least 1"),
    ({"blocks": with_page(1, 0, 2, 6)}, r"row 1: ori is 6, must be in 0\.\.5"),
    ({"blocks": with_page(1, 3, 0, -1)}, r"row 1: idx is -1, must be in 0\.\.5"),
    (
        {"blocks": with_page(1, 4, 5, 67)},
        r"row 1: hca_state names page 67 twice, must be 34 different pages in 0\.\.67",
    ),
    (
        {"blocks": (np.arange(3, dtype=np.int32), np.empty(0, np.int32), *request(1).blocks[2:])},
        r"row 1: block_counts of cmp_c128 is 0, must be in 1\.\.3",
    ),
    (
        {"blocks": (*request(1).blocks[:6], np.arange(66, dtype=np.int32))},
        r"row 1: block_counts of csa_inner_state is 66, must be in 1\.\.65",
    ),
]


def snapshot(*records: Any) -> Any:
    return copy.deepcopy([values(record) for record in records])


def assert_unchanged(before: Any, *records: Any) -> None:
    for arrays, record in zip(before, records, strict=True):
        for old, new in zip(arrays, values(record), strict=True):
            assert np.array_equal(old, new)


@pytest.mark.parametrize(("changes", "message"), HOST_FAULTS)
def test_packers_write_nothing_for_a_wrong_row(changes: dict[str, Any], message: str) -> None:
    rows = (request(0), request(1, **changes))
    slot = DecodeSlot(0, np.zeros, LAYOUT, 2, ROWS, step_tokens=1)
    buffers = PrefillBuffers(np.zeros, LAYOUT, 2, ROWS, prefill_tokens=8)
    records = (slot.args, slot.buffers.tables, buffers.args, buffers.mtp_args, buffers.buffers.tables)
    before = snapshot(*records)
    with pytest.raises(ValueError, match=f"^rank 1, {message}$"):
        slot.pack(DecodeStep(4, ((request(0),), rows)))
    chunks = tuple(PrefillChunk(row, 0, 3) for row in rows)
    with pytest.raises(ValueError, match=f"^rank 1, {message}$"):
        buffers.pack(PrefillStep(0, ((), chunks)))
    assert_unchanged(before, *records)


def test_packers_refuse_more_rows_than_there_are() -> None:
    slot = DecodeSlot(0, np.zeros, LAYOUT, 1, ROWS, step_tokens=1)
    with pytest.raises(ValueError, match=r"^rank 0: the number of rows is 3, must be in 0\.\.2$"):
        slot.pack(DecodeStep(0, ((request(0), request(1), request(0)),)))
    with pytest.raises(ValueError, match="a step has rows for 2 ranks, must be 1"):
        slot.pack(DecodeStep(0, ((), ())))
    buffers = PrefillBuffers(np.zeros, LAYOUT, 1, ROWS, prefill_tokens=5)
    chunks = (PrefillChunk(request(0), 0, 3), PrefillChunk(request(1), 0, 3))
    with pytest.raises(ValueError, match=r"^rank 0: the number of prompt tokens is 6, must be in 0\.\.5$"):
        buffers.pack(PrefillStep(0, (chunks,)))
    with pytest.raises(ValueError, match=r"^rank 0, row 0: the chunk is 2\.\.3, must be in 0\.\.2$"):
        buffers.pack(PrefillStep(0, ((PrefillChunk(request(0), 2, 2),),)))


def test_packers_check_the_pages_that_a_row_gains() -> None:
    slot = DecodeSlot(0, np.zeros, LAYOUT, 1, ROWS, step_tokens=1)
    grown = request(0)
    slot.pack(DecodeStep(0, ((grown,),)))
    grown.blocks = (*grown.blocks[:6], np.append(grown.blocks[6][:-1], 130).astype(np.int32))
    with pytest.raises(ValueError, match=r"^rank 0, row 0: csa_inner_state is 130, must be in 0\.\.129$"):
        slot.pack(DecodeStep(2, ((grown,),)))


@pytest.mark.parametrize(
    ("field", "array", "message"),
    [
        (
            "state_slots",
            np.zeros((1, 3), np.int32),
            r"state_slots must be int32 \[1, 2\].*got int32 \[1, 3\]",
        ),
        ("generations", np.zeros((1, 2), np.int32), r"generations must be int64 .*got int32 \[1, 2\]"),
        (
            "state_slots",
            np.zeros((1, 4), np.int32)[:, ::2],
            r"state_slots must be int32 .*with strides \(16, 8\)",
        ),
    ],
)
def test_packers_refuse_arrays_that_a_program_could_not_read(
    field: str, array: np.ndarray, message: str
) -> None:
    specs = decode_specs(1, ROWS, 1)
    out = replace(allocate_arrays(specs, np.zeros), **{field: array})
    with pytest.raises(ValueError, match=message):
        pack_decode(DecodeStep(0, ((),)), out, specs, RequestChecks(LAYOUT, 1, ROWS))


def test_packers_fill_the_active_prefix_or_everything() -> None:
    specs, checks = decode_specs(1, ROWS, 1), RequestChecks(LAYOUT, 1, ROWS)
    out = allocate_arrays(specs, lambda shape, dtype: np.full(shape, 9, dtype))
    step = DecodeStep(4, ((request(1),),))
    pack_decode(step, out, specs, checks)
    assert (out.state_slots.tolist(), out.generations.tolist()) == ([[1, 9]], [[1, 9]])
    pack_decode(step, out, specs, checks, fill_all=True)
    assert (out.state_slots.tolist(), out.generations.tolist()) == ([[1, 0]], [[1, 0]])
    assert (out.step_id.tolist(), out.row_counts.tolist(), out.sampled_ids.tolist()) == (
        [4],
        [1],
        [[[9], [9]]],
    )

    prefill, mtp = prefill_specs(1, ROWS, 4), mtp_prefill_specs(1, ROWS)
    out = allocate_arrays(prefill, lambda shape, dtype: np.full(shape, 9, dtype))
    mtp_out = allocate_arrays(mtp, lambda shape, dtype: np.full(shape, 9, dtype))
    prompts = PrefillStep(0, ((PrefillChunk(request(1), 0, 3),),))
    pack_prefill(prompts, out, prefill, checks)
    pack_mtp_prefill(prompts, mtp_out, mtp)
    assert out.token_ids.tolist() == [[5, 6, 7, 9]]
    assert out.positions.tolist() == [[0, 1, 2, 9]]
    assert out.lengths.tolist() == [[3, 9]]
    assert out.sampling[0, 0].tolist() == [0.5, 3, 0.9, 11]
    assert mtp_out.next_token_ids[0, :4].tolist() == [6, 7, -1, 9]
    assert mtp_out.last_rows.tolist() == [[2, -1]]
    pack_prefill(prompts, out, prefill, checks, fill_all=True)
    pack_mtp_prefill(prompts, mtp_out, mtp, fill_all=True)
    assert out.token_ids.tolist() == [[5, 6, 7, 0]]
    assert out.lengths.tolist() == [[3, 0]]
    assert out.sampling[0, 1].tolist() == [0, 0, 0, 0]
    assert mtp_out.positions[0, :4].tolist() == [0, 1, 2, 0]


class Rank:
    """One rank's programs in this process, after the prefill of two requests."""

    def __init__(self, weights: dict[str, Tensor], speculative_tokens: int = 2) -> None:
        self.programs = DeepSeekPrograms(RankContext(0, 1, LocalExchange()), CONFIG, weights)
        streams = (CONFIG.hc_mult, CONFIG.hidden_size)
        self.state = DeviceState(
            integers=torch.zeros(ROWS, state_width(speculative_tokens), dtype=torch.int64),
            sampling=torch.zeros(ROWS, len(SamplingField), dtype=torch.float64),
            hidden=torch.zeros(ROWS, *streams),
            prefill_hidden=torch.zeros(ROWS, 128, *streams),
            draft_override=torch.full((ROWS, 300), -1, dtype=torch.int32),
        )
        shapes = [group.pool_shape(pages) for group, pages in zip(LAYOUT.groups, PAGES, strict=True)]
        shapes.append(LAYOUT.mtp_pool_shape(PAGES[0]))
        self.pools = Pools(*(torch.zeros(shape) for shape in shapes))
        self.slot = DecodeSlot(0, np.zeros, LAYOUT, 1, ROWS, step_tokens=speculative_tokens + 1)
        self.prefill = PrefillBuffers(np.zeros, LAYOUT, 1, ROWS, prefill_tokens=8)
        requests = (request(0), request(1))
        self.prefill.pack(PrefillStep(0, (tuple(PrefillChunk(row, 0, 3) for row in requests),)))
        self.slot.pack(DecodeStep(0, (requests,)))
        self.run("prefill")
        self.run("mtp_prefill")

    def records(self, program: str) -> Any:
        args, tables = {
            "prefill": (self.prefill.args, self.prefill.buffers.tables),
            "mtp_prefill": (self.prefill.mtp_args, self.prefill.buffers.tables),
            "decode": (self.slot.args, self.slot.buffers.tables),
        }[program]
        return args, tables, self.state, self.pools

    @torch.inference_mode()
    def run(self, program: str) -> None:
        records = self.records(program)
        tensors = [torch.as_tensor(array) for record in records for array in values(record)]
        scalars = [] if program == "decode" else [1]
        getattr(self.programs, program)(*tensors, *scalars)()


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    torch.set_num_threads(1)
    return load_weights(ensure_checkpoint(CONFIG, 3, tmp_path_factory.mktemp("checkpoints")))


@pytest.fixture(scope="module")
def rank(weights: dict[str, Tensor]) -> Rank:
    return Rank(weights)


ROW_1 = (0, 1)
TABLE_FAULTS = [
    ("ori", (0, 1, 2), 6, r"row 1: ori is 6, must be in 0\.\.5"),
    ("csa_state", (0, 0, 64), -2, r"row 0: csa_state is -2, must be in 0\.\.129"),
    ("csa_state", (0, 1, 1), 65, r"row 1: csa_state names page 65 twice, must be 65 different"),
    ("block_counts", (0, 1, 2), 0, r"row 1: block_counts of cmp_c4 is 0, must be in 1\.\.3"),
    ("block_counts", (0, 1, 4), 35, r"row 1: block_counts of hca_state is 35, must be in 1\.\.34"),
]
PROGRAM_FAULTS = [
    *((program, *fault) for program in ("decode", "prefill", "mtp_prefill") for fault in TABLE_FAULTS),
    ("decode", "row_counts", 0, 3, r"rank 0: row_counts is 3, must be in 0\.\.2"),
    ("decode", "row_counts", 0, -1, r"rank 0: row_counts is -1, must be in 0\.\.2"),
    ("decode", "state_slots", ROW_1, 2, r"row 1: state_slots is 2, must be in 0\.\.1"),
    ("decode", "generations", ROW_1, 0, "row 1: generations is 0, must be at least 1"),
    ("prefill", "row_counts", 0, 9, r"rank 0: row_counts is 9, must be in 0\.\.8"),
    ("prefill", "request_counts", 0, 3, r"rank 0: request_counts is 3, must be in 0\.\.2"),
    ("prefill", "sequences", (0, 5), 2, r"row 5: sequences is 2, must be in 0\.\.1"),
    ("prefill", "positions", (0, 4), 300, r"row 4: positions is 300, must be in 0\.\.299"),
    ("prefill", "token_ids", (0, 4), 512, r"row 4: token_ids is 512, must be in 0\.\.511"),
    ("prefill", "state_slots", ROW_1, -1, r"row 1: state_slots is -1, must be in 0\.\.1"),
    ("prefill", "generations", ROW_1, -5, "row 1: generations is -5, must be at least 1"),
    ("mtp_prefill", "row_counts", 0, 257, r"rank 0: row_counts is 257, must be in 0\.\.256"),
    ("mtp_prefill", "sequences", (0, 5), 2, r"row 5: sequences is 2, must be in 0\.\.1"),
    ("mtp_prefill", "next_token_ids", (0, 0), -2, r"row 0: next_token_ids is -2, must be in -1\.\.511"),
    ("mtp_prefill", "last_rows", ROW_1, 6, r"row 1: last_rows is 6, must be in -1\.\.5"),
    ("mtp_prefill", "state_slots", ROW_1, 7, r"row 1: state_slots is 7, must be in 0\.\.1"),
]


@pytest.mark.parametrize(("program", "field", "place", "value", "message"), PROGRAM_FAULTS)
def test_programs_write_nothing_for_a_wrong_row(
    rank: Rank, program: str, field: str, place: Any, value: Any, message: str
) -> None:
    args, tables, *_ = rank.records(program)
    array = getattr(args, field) if hasattr(args, field) else getattr(tables, field)
    kept = array[place].item()
    array[place] = value
    before = snapshot(*rank.records(program))
    try:
        with pytest.raises(ValueError, match=f"rank 0.*{message.removeprefix('rank 0')}"):
            rank.run(program)
        assert_unchanged(before, *rank.records(program))
    finally:
        array[place] = kept


def test_a_row_of_another_generation_is_left_alone(weights: dict[str, Tensor]) -> None:
    rank = Rank(weights)
    rank.slot.args.generations[0, 1] = 2
    rank.slot.args.accepted_counts.fill(9)
    before = rank.state.integers[1].clone()
    rank.run("decode")
    assert rank.slot.args.accepted_counts[0, 1] == 0
    assert rank.slot.args.accepted_counts[0, 0] >= 1
    assert torch.equal(rank.state.integers[1], before)
    assert rank.slot.args.echoed_step_ids.tolist() == [0]
