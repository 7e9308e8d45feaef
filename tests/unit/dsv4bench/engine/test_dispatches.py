"""What the engine hands to its worker, dispatch by dispatch: docs/engine.md. No rank runs, no time is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from dsv4bench.cache.layout import CacheLayout
from dsv4bench.engine import life
from dsv4bench.engine.engine import Engine, EngineOptions
from dsv4bench.engine.requests import ActiveRequest, Request, RequestHandle
from dsv4bench.engine.runner import ModelRunner
from dsv4bench.engine.steps import DecodeStep, PrefillChunk, PrefillStep
from dsv4bench.errors import EngineError
from dsv4bench.model.config import preset
from dsv4bench.tracing.recorder import NullRecorder
from dsv4bench.worker.program_specs import MTP_PREFILL, PREFILL
from dsv4bench.worker.protocol import Worker
from dsv4bench.worker.task_args import values
from dsv4bench.worker.torch_worker import WorkerOptions
from tests.builders.scripted_worker import Dispatch, ScriptedWorker

CONFIG = preset("test-b")
LAYOUT = CacheLayout.derive(CONFIG, 128)
PAGES = 60
GUARD_S = 30.0
"""Ends a test that would hang; nothing is decided by it."""

Start = Callable[..., tuple[Engine, ScriptedWorker]]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts engines on scripted workers, and closes them."""
    monkeypatch.setattr(life, "TorchWorker", ScriptedWorker)
    engines: list[Engine] = []

    def make(**options: object) -> tuple[Engine, ScriptedWorker]:
        chosen: dict[str, object] = {"ranks": 2, "requests_per_rank": 2, "max_model_len": 128, **options}
        engine = Engine(EngineOptions(CONFIG, Path("no checkpoint"), **chosen))  # type: ignore[arg-type]
        engines.append(engine)
        return engine, worker_of(engine)

    yield make
    for engine in engines:
        worker_of(engine).release()
        engine.close(abort=True)


def worker_of(engine: Engine) -> ScriptedWorker:
    return cast(ScriptedWorker, engine.worker)


def generate(engine: Engine, requests: int, tokens: int = 6) -> None:
    handles = [engine.submit(Request(f"r{index}", [5, 6, 7, 8], tokens)) for index in range(requests)]
    for handle in handles:
        assert handle.wait(GUARD_S)
        assert handle.finish_reason == "length", handle.error
    engine.settle()


def test_the_windows_outlive_prefills_and_requests(start: Start) -> None:
    engine, worker = start(requests_per_rank=1)
    generate(engine, requests=7)
    generate(engine, requests=2)
    engine.close()
    # Two seats at a time: nine requests are at least five prefills.
    assert worker.calls.count(PREFILL) >= 5
    assert worker.calls.count(MTP_PREFILL) >= 5
    assert worker.window_resets == 0
    assert "reset_windows" not in worker.calls


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("mtp", [0, 1, 3])
def test_as_many_steps_are_in_flight_as_declared_and_never_more(start: Start, depth: int, mtp: int) -> None:
    engine, worker = start(depth=depth, mtp=mtp)
    worker.hold()
    handle = engine.submit(Request("r", [5, 6, 7], 10))
    # The device completes nothing: step N + 1 is submitted while N is in flight, or never.
    assert worker.wait_for_in_flight(depth, GUARD_S)
    # Time for one too many, which may not come however long it is.
    assert not worker.wait_for_in_flight(depth + 1, 0.05)
    worker.release()
    assert handle.wait(GUARD_S)
    engine.settle()
    assert worker.deepest == depth
    assert [dispatch.slot_id for dispatch in worker.decode_steps()[:4]] == [0, 1, 0, 1]
    assert not any(dispatch.disturbed for dispatch in worker.dispatches)


@pytest.mark.parametrize("mtp", [0, 1, 2])
def test_outputs_are_found_as_the_device_left_them(start: Start, mtp: int) -> None:
    """Nobody clears what a step only writes: neither when it is prepared nor when it was read."""
    engine, worker = start(mtp=mtp)
    generate(engine, requests=3, tokens=9)
    generate(engine, requests=1, tokens=9)
    decodes = worker.decode_steps()
    prefills = [dispatch for dispatch in worker.dispatches if dispatch.program == PREFILL]
    of_slots = [[dispatch for dispatch in decodes if dispatch.slot_id == slot] for slot in (0, 1)]
    for dispatches in (*of_slots, prefills):
        assert len(dispatches) >= 2
        for before, after in pairwise(dispatches):
            assert before.outputs_left.keys() == after.outputs_found.keys()
            assert len(before.outputs_left) == (1 if dispatches is prefills else 4)
            for name, left in before.outputs_left.items():
                assert np.array_equal(after.outputs_found[name], left), name
    # And a slot that never ran holds no echo that could pass for a step's.
    assert all((of_slot[0].outputs_found["echoed_step_ids"] == -1).all() for of_slot in of_slots)


def test_a_restart_begins_with_new_buffers_and_new_generations(start: Start) -> None:
    engine, first = start(max_restarts=1)
    first.tracing, first.device_phases = False, True
    first.hold()
    handle = engine.submit(Request("r", [5, 6, 7], 12))
    assert first.wait_for_in_flight(2, GUARD_S)
    first.release(EngineError("the device is gone"))
    assert handle.wait(GUARD_S)
    assert handle.finish_reason == "length"
    assert engine.progress().restarts == 1
    second = worker_of(engine)
    assert second is not first
    assert (second.tracing, second.device_phases) == (False, True)
    assert [dispatch.generation for dispatch in second.decode_steps()[:4]] == [1, 1, 2, 2]
    of_first = [array for dispatch in first.dispatches for array in dispatch.host]
    of_second = [array for dispatch in second.dispatches for array in dispatch.host]
    assert not any(np.shares_memory(old, new) for old in of_first for new in of_second)
    assert "close" in first.calls


# The runner alone, with steps made by hand


@pytest.fixture
def worker() -> ScriptedWorker:
    return ScriptedWorker(WorkerOptions(2, "no setup", b"", ()))


@pytest.fixture
def runner(worker: ScriptedWorker) -> ModelRunner:
    return ModelRunner(
        # It has what an engine asks of a worker, not the whole protocol.
        cast(Worker, worker),
        CONFIG,
        LAYOUT,
        NullRecorder(),
        requests_per_rank=2,
        pages=[PAGES] * len(LAYOUT.groups),
        prefill_tokens=64,
        speculative_tokens=1,
    )


def active(rank: int, state_slot: int, first_block: int, count: int = 2) -> ActiveRequest:
    """A request whose block ids are other ones in every group."""
    blocks = tuple(
        np.arange(first_block + group, first_block + group + min(count, layout.table_width), dtype=np.int32)
        for group, layout in enumerate(LAYOUT.groups)
    )
    handle = RequestHandle(Request("r", [5, 6], 40), 0)
    return ActiveRequest(handle, rank, state_slot, 1, blocks, [5, 6])


def check_tables(dispatch: Dispatch, requests: tuple[tuple[ActiveRequest, ...], ...]) -> None:
    """Row i of a rank's tables is the table of its request i, in every group."""
    *groups, counts = values(dispatch.tables)
    for rank, of_rank in enumerate(requests):
        for row, request in enumerate(of_rank):
            assert counts[rank, row].tolist() == [len(ids) for ids in request.blocks]
            for table, ids in zip(groups, request.blocks, strict=True):
                assert table[rank, row, : len(ids)].tolist() == ids.tolist()


def test_no_two_dispatches_that_may_be_in_flight_share_a_host_buffer(
    runner: ModelRunner, worker: ScriptedWorker
) -> None:
    """Two steps, and a prefill behind them: the block tables too are each one's own."""
    request = active(0, 0, 10)
    for step_id in (0, 1):
        prepared = runner.prepare_decode(DecodeStep(step_id, ((request,), ())))
        assert prepared is not None
        runner.dispatch_decode(prepared)
    runner.execute_prefill(PrefillStep(0, ((PrefillChunk(active(0, 1, 30), 0, 2),), ())))
    programs = [dispatch.program for dispatch in worker.dispatches]
    assert programs == ["deepseek_v4_decode_mtp_fused"] * 2 + [PREFILL, MTP_PREFILL]
    # The prefill of the main model and of the MTP layer block: they may share.
    first, second, prefill, mtp_prefill = (dispatch.host for dispatch in worker.dispatches)
    for one, other in ((first, second), (first, prefill + mtp_prefill), (second, prefill + mtp_prefill)):
        assert not any(np.shares_memory(mine, theirs) for mine in one for theirs in other)


def test_every_step_is_dispatched_with_the_block_tables_of_its_own_requests(
    runner: ModelRunner, worker: ScriptedWorker
) -> None:
    """Whatever changes between two steps of one slot or of one rank: no table of another step is left in place."""
    first, second, third = active(0, 0, 10), active(0, 1, 20), active(1, 0, 10)
    longer = active(0, 0, 10, count=3)
    same_ids = active(0, 1, 20)
    steps = (
        ((first,), (third,)),
        ((second,), (third,)),
        ((first, second), ()),
        ((second, first), (third,)),
        ((longer, same_ids), (third,)),
        ((longer, same_ids), (third,)),
        ((first, same_ids), (third,)),
        ((), (third,)),
        ((first,), (third,)),
    )
    for step_id, requests in enumerate(steps):
        if step_id == 4:
            # Pages were added: the tuple is replaced, as the scheduler does it.
            third.blocks = tuple(ids + 3 for ids in third.blocks)
        step = DecodeStep(step_id, requests)
        prepared = runner.prepare_decode(step)
        assert prepared is not None
        runner.reclaim_decode(runner.dispatch_decode(prepared))
        dispatch = worker.dispatches[-1]
        check_tables(dispatch, requests)
        assert dispatch.inputs["step_id"].tolist() == [step_id]
        assert dispatch.inputs["row_counts"].tolist() == [len(of_rank) for of_rank in requests]
        for rank, of_rank in enumerate(requests):
            slots = dispatch.inputs["state_slots"][rank, : len(of_rank)].tolist()
            assert slots == [request.state_slot for request in of_rank]


def test_every_prefill_is_dispatched_with_the_block_tables_of_its_own_requests(
    runner: ModelRunner, worker: ScriptedWorker
) -> None:
    first, second = active(0, 0, 10), active(0, 1, 20)
    for prefill_id, requests in enumerate(((first,), (second,), (second, first), (first,))):
        chunks = tuple(PrefillChunk(request, 0, 2) for request in requests)
        runner.execute_prefill(PrefillStep(prefill_id, (chunks, ())))
        for dispatch in worker.dispatches[-2:]:
            check_tables(dispatch, (requests, ()))
        assert worker.dispatches[-2].inputs["state_slots"][0, 0] == requests[0].state_slot
