"""Slots own their buffers and pass from step to step in order."""

import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dsv4bench.cache.layout import CacheLayout
from dsv4bench.engine.requests import ActiveRequest, Request, RequestHandle
from dsv4bench.engine.slots import DecodeSlot, SlotPool
from dsv4bench.engine.steps import DecodeStep
from dsv4bench.model.config import preset
from dsv4bench.worker.task_args import values

LAYOUT = CacheLayout.derive(preset("test-b"), 128)


def slot(index: int) -> DecodeSlot:
    return DecodeSlot(index, np.zeros, LAYOUT, ranks=2, rows=2, step_tokens=2, pages=(40,) * 7)


def active(rank: int, state_slot: int, generation: int, first_block: int) -> ActiveRequest:
    blocks = tuple(
        np.arange(first_block, first_block + min(2, group.table_width), dtype=np.int32)
        for group in LAYOUT.groups
    )
    return ActiveRequest(RequestHandle(Request("r", [1], 1), 0), rank, state_slot, generation, blocks, [1])


def test_two_slots_share_no_memory() -> None:
    arrays = [
        array
        for slot_ in (slot(0), slot(1))
        for array in [*values(slot_.args), *values(slot_.buffers.tables)]
    ]
    for index, array in enumerate(arrays):
        assert not any(np.shares_memory(array, other) for other in arrays[index + 1 :])


def test_packing_fills_the_active_rows_of_each_rank() -> None:
    packed = slot(0)
    first, second, third = active(0, 1, 5, 10), active(0, 0, 6, 20), active(1, 1, 7, 30)
    packed.pack(DecodeStep(0, ((first, second), (third,))))
    args, tables = packed.args, packed.buffers.tables
    assert args.row_counts.tolist() == [2, 1]
    assert args.state_slots.tolist() == [[1, 0], [1, 0]]
    assert args.generations.tolist() == [[5, 6], [7, 0]]
    width = len(first.blocks[0])
    assert tables.ori[0, 0, :width].tolist() == first.blocks[0].tolist()
    assert tables.csa_state[1, 0, :2].tolist() == [30, 31]
    assert tables.block_counts[0, 1].tolist() == [len(blocks) for blocks in second.blocks]
    # The second request moves up a row; nothing of the first is left in its place.
    packed.pack(DecodeStep(2, ((second,), ())))
    assert args.row_counts.tolist() == [1, 0]
    assert tables.hca_state[0, 0, :2].tolist() == [20, 21]
    assert args.generations[0, 0] == 6


def test_a_steady_step_writes_its_id_alone() -> None:
    packed = slot(0)
    first, second, third = active(0, 1, 5, 10), active(0, 0, 6, 20), active(1, 1, 7, 30)
    packed.pack(DecodeStep(0, ((first, second), (third,))))
    # Whatever is in the inputs now stays: nobody wrote it again.
    packed.args.generations[:] = 99
    packed.pack(DecodeStep(2, ((first, second), (third,))))
    assert packed.args.step_id[0] == 2
    assert (packed.args.generations == 99).all()
    assert packed.buffers.builds == 2
    # Another order of the same requests, other blocks for one of them: each rewrites its rank alone.
    packed.pack(DecodeStep(4, ((second, first), (third,))))
    assert packed.args.generations[:, :2].tolist() == [[6, 5], [99, 99]]
    third.blocks = tuple(ids + 1 for ids in third.blocks)
    packed.pack(DecodeStep(6, ((second, first), (third,))))
    assert packed.args.generations[1, 0] == 7
    packed.forget()
    packed.pack(DecodeStep(8, ((second, first), (third,))))
    assert packed.buffers.builds == 6


def calls_of(function: Callable[[], object]) -> int:
    """How many functions a call makes, of Python and of C: what it costs on any machine, however busy."""
    calls: Counter[str] = Counter()
    sys.setprofile(lambda frame, event, argument: calls.update([event]))
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls["call"] + calls["c_call"]


def test_preparing_a_steady_step_costs_at_most_a_tenth_of_rebuilding() -> None:
    ranks, rows = 8, 4
    wide = DecodeSlot(0, np.zeros, LAYOUT, ranks, rows, 2, [100] * len(LAYOUT.groups))
    requests = tuple(tuple(active(rank, row, 1, 2 * row) for row in range(rows)) for rank in range(ranks))
    wide.pack(DecodeStep(0, requests))
    steady = calls_of(lambda: wide.pack(DecodeStep(2, requests)))
    wide.forget()
    rebuilt = calls_of(lambda: wide.pack(DecodeStep(4, requests)))
    assert steady <= rebuilt / 10


def test_reading_copies_the_outputs() -> None:
    packed = slot(1)
    packed.args.accepted_counts[0, 0] = 2
    output = packed.read()
    packed.args.accepted_counts[0, 0] = 1
    assert output.accepted_counts[0, 0] == 2


def test_a_slot_is_taken_again_only_after_it_was_released() -> None:
    pool = SlotPool([slot(0), slot(1)])
    steps = [DecodeStep(step_id, ()) for step_id in range(3)]
    assert pool.take(steps[0]).generation == 1
    assert pool.take(steps[1]).index == 1
    taken = []
    thread = threading.Thread(target=lambda: taken.append(pool.take(steps[2])))
    thread.start()
    thread.join(0.05)
    assert taken == []
    with pytest.raises(RuntimeError, match="slot 0 is held by step 0, not by step 2"):
        pool.release(steps[2])
    pool.release(steps[0])
    thread.join(5)
    assert taken[0].generation == 2
    with pytest.raises(RuntimeError, match="held by step 2, not by step 0"):
        pool.release(steps[0])


def test_closing_wakes_whoever_waits() -> None:
    pool = SlotPool([slot(0), slot(1)])
    pool.take(DecodeStep(0, ()))
    taken: list[Any] = ["waiting"]
    thread = threading.Thread(target=lambda: taken.append(pool.take(DecodeStep(2, ()))))
    thread.start()
    pool.close()
    thread.join(5)
    assert taken == ["waiting", None]
