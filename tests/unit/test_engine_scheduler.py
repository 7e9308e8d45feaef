"""The scheduler alone: what it forms, what it keeps, what it gives back. Outputs are written by hand."""

import numpy as np
import pytest

from dsv4bench.cache.layout import CacheLayout
from dsv4bench.engine.requests import Request, RequestHandle
from dsv4bench.engine.scheduler import Scheduler, reachable_headroom
from dsv4bench.engine.state_slots import StateSlots
from dsv4bench.engine.steps import DecodeOutput, DecodeStep, Outcome, PrefillOutput, PrefillStep
from dsv4bench.errors import EngineError
from dsv4bench.model.config import preset

CONFIG = preset("test-b")


def scheduler(ranks=2, requests_per_rank=1, prefill_tokens=64, speculative_tokens=1):
    layout = CacheLayout.derive(CONFIG, 128 + reachable_headroom(speculative_tokens))
    return Scheduler(layout, ranks, requests_per_rank, prefill_tokens, speculative_tokens, eos_token_id=1)


def add(scheduler, name, prompt=4, tokens=8, **options):
    handle = RequestHandle(Request(name, list(range(2, 2 + prompt)), tokens, **options), send_ns=0)
    scheduler.add(handle)
    return handle


def prefilled(step, tokens):
    """Outcome of a prefill step: `tokens[rank]` lists the first tokens of the rank's chunks."""
    sampled = np.zeros((len(tokens), 4), np.int32)
    for rank, of_rank in enumerate(tokens):
        sampled[rank, : len(of_rank)] = of_rank
    return Outcome(step, PrefillOutput(sampled))


def decoded(step, tokens):
    """Outcome of a decode step: `tokens[rank][row]` lists the tokens committed."""
    sampled, counts = np.zeros((len(tokens), 4, 2), np.int32), np.zeros((len(tokens), 4), np.int32)
    for rank, rows in enumerate(tokens):
        for row, committed in enumerate(rows):
            sampled[rank, row, : len(committed)] = committed
            counts[rank, row] = len(committed)
    return Outcome(step, DecodeOutput(sampled, counts))


def names(of_ranks):
    return [[request.request.request_id for request in requests] for requests in of_ranks]


def test_requests_spread_over_ranks_and_the_rest_waits_for_a_seat():
    engine = scheduler()
    a, b, c = add(engine, "a", tokens=1), add(engine, "b", tokens=3), add(engine, "c")
    prefill = engine.schedule()
    assert isinstance(prefill, PrefillStep)
    assert [[chunk.request.request.request_id for chunk in chunks] for chunks in prefill.chunks] == [
        ["a"],
        ["b"],
    ]
    # Nothing decodes before its terminal prefill was processed, and no seat is free for c.
    assert engine.schedule() is None
    engine.process(prefilled(prefill, [[10], [20]]), now_ns=5)
    assert (a.token_ids, a.finish_reason, a.token_times_ns) == ([10], "length", [5])
    assert b.token_ids == [20]
    # a is done: its seat on rank 0 goes to c, whose prefill comes before the next decode step.
    prefill = engine.schedule()
    assert isinstance(prefill, PrefillStep)
    assert c.rank == 0
    decode = engine.schedule()
    assert isinstance(decode, DecodeStep)
    assert (decode.step_id, decode.slot, names(decode.requests)) == (0, 0, [[], ["b"]])


def test_a_finish_leaves_the_next_step_in_flight_and_its_tokens_are_dropped():
    engine = scheduler(ranks=1)
    handle = add(engine, "a", tokens=4)
    engine.process(prefilled(engine.schedule(), [[10]]), 1)
    first, second = engine.schedule(), engine.schedule()
    assert (first.step_id, second.step_id, second.slot) == (0, 1, 1)
    waiting = add(engine, "b")
    engine.process(decoded(first, [[[11, 12]]]), 2)
    third = engine.schedule()
    engine.process(decoded(second, [[[13, 14]]]), 3)
    assert handle.token_ids == [10, 11, 12, 13]
    assert handle.finish_reason == "length"
    assert (handle.steps, handle.proposed, handle.accepted, handle.discarded) == (2, 2, 2, 1)
    # Step 2 was formed before the end of a was known; the seat stays taken until it is back.
    assert names(third.requests) == [["a"]]
    assert engine.schedule() is None
    assert waiting.rank is None
    engine.process(decoded(third, [[[15, 16]]]), 4)
    assert handle.token_ids == [10, 11, 12, 13]
    assert handle.steps == 2
    prefill = engine.schedule()
    assert isinstance(prefill, PrefillStep)
    (chunk,) = prefill.chunks[0]
    assert (chunk.request.state_slot, chunk.request.generation) == (0, 2)


def test_end_of_text_ends_a_request_inside_a_step():
    engine = scheduler(ranks=1)
    handle = add(engine, "a", ignore_eos=False)
    engine.process(prefilled(engine.schedule(), [[10]]), 1)
    engine.process(decoded(engine.schedule(), [[[1, 12]]]), 2)
    assert (handle.token_ids, handle.finish_reason, handle.discarded) == ([10, 1], "stop", 1)


def test_a_long_prompt_is_prefilled_in_chunks_that_share_the_budget():
    engine = scheduler(ranks=1, requests_per_rank=2, prefill_tokens=10)
    add(engine, "a", prompt=14)
    add(engine, "b", prompt=5)
    first, second = engine.schedule(), engine.schedule()
    chunks = [
        [
            (chunk.request.request.request_id, chunk.start, chunk.count, chunk.terminal)
            for chunk in step.chunks[0]
        ]
        for step in (first, second)
    ]
    assert chunks == [[("a", 0, 10, False)], [("a", 10, 4, True), ("b", 0, 5, True)]]


def test_a_failed_step_gives_everything_back_once_all_ended():
    engine = scheduler(ranks=1)
    handle = add(engine, "a")
    engine.process(prefilled(engine.schedule(), [[10]]), 1)
    first, second = engine.schedule(), engine.schedule()
    failure = EngineError("rank 3 died")
    engine.abandon(first)
    engine.end_all("error", failure)
    assert (handle.finish_reason, handle.error, handle.token_ids) == ("error", failure, [10])
    assert not engine.idle
    engine.abandon(second)
    assert engine.idle


def test_a_live_row_that_a_step_left_alone_is_an_error():
    engine = scheduler(ranks=1)
    add(engine, "a")
    engine.process(prefilled(engine.schedule(), [[10]]), 1)
    with pytest.raises(EngineError, match="no longer holds generation 1"):
        engine.process(decoded(engine.schedule(), [[[]]]), 2)


def test_cancel_works_for_waiting_and_running_requests():
    engine = scheduler(ranks=1)
    running, waiting = add(engine, "a"), add(engine, "b")
    prefill = engine.schedule()
    engine.cancel("b")
    engine.cancel("a")
    engine.cancel("unknown")
    assert (running.finish_reason, waiting.finish_reason) == ("cancelled", "cancelled")
    engine.process(prefilled(prefill, [[10]]), 1)
    assert running.token_ids == []
    assert engine.idle


def test_state_slots_count_generations_and_refuse_a_second_release():
    slots = StateSlots(2)
    assert [slots.allocate(), slots.allocate()] == [(0, 1), (1, 1)]
    assert slots.available == 0
    slots.release(0)
    assert slots.allocate() == (0, 2)
    slots.release(1)
    with pytest.raises(ValueError, match="state slot 1 is not taken"):
        slots.release(1)
