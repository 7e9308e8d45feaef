"""The scheduler alone: what it forms, what it keeps, what it gives back. Outputs are written by hand."""

from typing import Any

import numpy as np
import pytest

from dsv4bench.cache.layout import CacheGroup, CacheLayout, GroupLayout
from dsv4bench.engine.reach import reachable_headroom, rows_per_rank, step_positions
from dsv4bench.engine.requests import Request, RequestHandle
from dsv4bench.engine.scheduler import Scheduler
from dsv4bench.engine.state_slots import StateSlots
from dsv4bench.engine.steps import DecodeOutput, DecodeStep, Outcome, PrefillOutput, PrefillStep
from dsv4bench.errors import EngineError, UsageError
from dsv4bench.model.config import preset

CONFIG = preset("test-b")


def scheduler(
    ranks: int = 2, requests_per_rank: int = 1, prefill_tokens: int = 64, speculative_tokens: int = 1
) -> Any:
    layout = CacheLayout.derive(CONFIG, 128 + reachable_headroom(speculative_tokens))
    return Scheduler(layout, ranks, requests_per_rank, prefill_tokens, speculative_tokens, eos_token_id=1)


def small(pages: int, ring: int | None = None, tokens_per_page: int = 4, **options: Any) -> Any:
    """One rank whose groups have `pages` pages each, of 4 positions; with `ring`, group ORI is one of so many pages."""
    groups = tuple(
        GroupLayout(group, 1, tokens_per_page, 4, 1, ring if group is CacheGroup.ORI else None, 64)
        for group in CacheGroup
    )
    chosen = {"requests_per_rank": 2, "prefill_tokens": 64, "speculative_tokens": 0, **options}
    return Scheduler(CacheLayout(256, 1, groups), 1, eos_token_id=1, pages=[pages] * 7, **chosen)


def add(scheduler: Scheduler, name: str, prompt: int = 4, tokens: int = 8, **options: Any) -> RequestHandle:
    handle = RequestHandle(Request(name, list(range(2, 2 + prompt)), tokens, **options), send_ns=0)
    scheduler.add(handle)
    return handle


def prefilled(step: Any, tokens: Any) -> Outcome:
    """Outcome of a prefill step: `tokens[rank]` lists the first tokens of the rank's chunks."""
    sampled = np.zeros((len(tokens), 4), np.int32)
    for rank, of_rank in enumerate(tokens):
        sampled[rank, : len(of_rank)] = of_rank
    return Outcome(step, PrefillOutput(sampled))


def decoded(step: Any, tokens: Any) -> Outcome:
    """Outcome of a decode step: `tokens[rank][row]` lists the tokens committed."""
    sampled, counts = np.zeros((len(tokens), 4, 2), np.int32), np.zeros((len(tokens), 4), np.int32)
    for rank, rows in enumerate(tokens):
        for row, committed in enumerate(rows):
            sampled[rank, row, : len(committed)] = committed
            counts[rank, row] = len(committed)
    return Outcome(step, DecodeOutput(sampled, counts))


def start(scheduler: Scheduler, *tokens: int) -> None:
    """Prefill everything that was admitted; `tokens` are the first ones of the requests."""
    scheduler.process(prefilled(scheduler.schedule(), [list(tokens)]), 0)


def decode(scheduler: Scheduler, *committed: Any) -> Any:
    """One decode step from formation to processing; returns its requests."""
    step = scheduler.schedule()
    assert isinstance(step, DecodeStep)
    scheduler.process(decoded(step, [list(committed)]), 0)
    return step.requests[0]


def names(of_ranks: Any) -> list[list[str]]:
    return [[request.request.request_id for request in requests] for requests in of_ranks]


def test_requests_spread_over_ranks_and_the_rest_waits_for_a_seat() -> None:
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


def test_a_finish_leaves_the_next_step_in_flight_and_its_tokens_are_dropped() -> None:
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


def test_end_of_text_ends_a_request_inside_a_step() -> None:
    engine = scheduler(ranks=1)
    handle = add(engine, "a", ignore_eos=False)
    engine.process(prefilled(engine.schedule(), [[10]]), 1)
    engine.process(decoded(engine.schedule(), [[[1, 12]]]), 2)
    assert (handle.token_ids, handle.finish_reason, handle.discarded) == ([10, 1], "stop", 1)


def test_a_long_prompt_is_prefilled_in_chunks_that_share_the_budget() -> None:
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


def test_a_failed_step_gives_everything_back_once_all_ended() -> None:
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


def test_a_live_row_that_a_step_left_alone_is_an_error() -> None:
    engine = scheduler(ranks=1)
    add(engine, "a")
    engine.process(prefilled(engine.schedule(), [[10]]), 1)
    with pytest.raises(EngineError, match="no longer holds generation 1"):
        engine.process(decoded(engine.schedule(), [[[]]]), 2)


def test_cancel_works_for_waiting_and_running_requests() -> None:
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


def test_a_reused_id_names_its_latest_registration() -> None:
    engine = scheduler(ranks=1, requests_per_rank=2)
    old, new = add(engine, "a"), add(engine, "a")
    start(engine, 10, 20)
    engine.cancel("a")
    assert (old.finish_reason, new.finish_reason) == (None, "cancelled")
    decode(engine, [11, 12])
    assert old.token_ids == [10, 11, 12]
    newest = add(engine, "a")
    engine.cancel("a")
    assert (old.finish_reason, newest.finish_reason) == (None, "cancelled")
    engine.cancel("a")
    assert (old.finish_reason, old.token_ids) == ("cancelled", [10, 11, 12])
    assert engine.idle


def test_the_end_of_an_old_registration_leaves_the_new_one_alone() -> None:
    engine = scheduler(ranks=1, requests_per_rank=2)
    old = add(engine, "a", tokens=1)
    prefill = engine.schedule()
    new = add(engine, "a", tokens=3)
    second = engine.schedule()
    engine.process(prefilled(prefill, [[10]]), 1)
    engine.process(prefilled(second, [[20]]), 2)
    assert (old.token_ids, old.finish_reason, new.token_ids) == ([10], "length", [20])
    (request,) = decode(engine, [21, 22])
    assert (request.handle, request.state_slot) == (new, 1)
    assert (new.finish_reason, engine.idle) == ("length", True)


def test_cancel_in_the_middle_of_a_prompt() -> None:
    engine = scheduler(ranks=1, prefill_tokens=10)
    handle = add(engine, "a", prompt=25)
    first, second = engine.schedule(), engine.schedule()
    engine.process(prefilled(first, [[0]]), 1)
    engine.cancel("a")
    assert not engine.idle
    assert engine.schedule() is None
    engine.process(prefilled(second, [[0]]), 1)
    assert (handle.token_ids, handle.prefills, engine.idle) == ([], 0, True)


def test_a_request_grows_by_whole_pages_before_a_step_can_reach_them() -> None:
    """Prompt 4, K = 1: the first step writes positions 4 and 5. Pages of 4; the ring stops at 2 of them."""
    engine = small(16, ring=2, speculative_tokens=1)
    add(engine, "a", tokens=20)
    start(engine, 10)
    # Positions 0-7 are held. Nothing is in flight: a step with n positions published writes up to n.
    first = engine.schedule()
    (request,) = first.requests[0]
    blocks = request.blocks
    assert [len(ids) for ids in blocks] == [2] * 7
    # In flight that step may move on to position 6, so that the next one writes up to 7.
    second = engine.schedule()
    assert request.blocks is blocks
    engine.process(decoded(first, [[[11, 12]]]), 0)
    # 7 published: the one in flight may get to 8, the next one writes up to 9.
    third = engine.schedule()
    assert names(third.requests) == [["a"]]
    assert [len(ids) for ids in request.blocks] == [2, 3, 3, 3, 3, 3, 3]
    assert [len(ids) for ids in blocks] == [2] * 7
    assert all(np.array_equal(new[:2], old) for new, old in zip(request.blocks, blocks, strict=True))
    engine.process(decoded(second, [[[13]]]), 0)
    engine.process(decoded(third, [[[14]]]), 0)
    assert request.capacity == 12


def test_growth_takes_no_more_than_it_needs_when_pages_are_few() -> None:
    """Group CMP_C4 has pages of 2 positions, the others of 8: a request grows by 8, if need be by 2."""
    groups = tuple(
        GroupLayout(group, 1, 2 if group is CacheGroup.CMP_C4 else 8, 1, 1, None, 64) for group in CacheGroup
    )
    layout = CacheLayout(256, 1, groups)

    def admitted(pages_of_c4: int, prompt_of_b: int) -> list[tuple[int, int]]:
        pages = [8] * 7
        pages[CacheGroup.CMP_C4] = pages_of_c4
        engine: Any = Scheduler(layout, 1, 2, 64, 0, eos_token_id=1, pages=pages)
        add(engine, "a", prompt=4, tokens=2)
        add(engine, "b", prompt=prompt_of_b, tokens=2)
        requests = [chunk.request for chunk in engine.schedule().chunks[0]]
        return [(len(request.blocks[CacheGroup.CMP_C4]), request.capacity) for request in requests]

    # A prompt of n and the first step need n + 1 positions; a gets a whole 8 each time.
    assert admitted(8, 5) == [(4, 8), (4, 8)]
    assert admitted(7, 5) == [(4, 8), (3, 6)]
    assert admitted(7, 6) == [(4, 8)]


def test_the_latest_arrival_gives_way_and_starts_again_from_what_it_published() -> None:
    """Six pages of 4: a and b hold 3 each when both have 13 positions, and a needs the next one first."""
    engine = small(6)
    a, b = add(engine, "a", tokens=13), add(engine, "b", tokens=13)
    start(engine, 100, 200)
    for index in range(1, 9):
        decode(engine, [100 + index], [200 + index])
    held = decode(engine, [109])
    assert [request.handle for request in held] == [a]
    assert (a.preemptions, b.preemptions, b.token_ids) == (0, 1, list(range(200, 209)))
    # b needs 14 positions, 4 pages; a holds 4 of 6. The steps of a alone come first.
    for index in range(10, 12):
        assert len(decode(engine, [100 + index])) == 1
    decode(engine, [112])
    assert (a.token_ids, a.finish_reason) == (list(range(100, 113)), "length")
    prefill = engine.schedule()
    ((chunk,),) = prefill.chunks
    assert (chunk.request.handle, chunk.request.generation) == (b, 2)
    assert chunk.request.prompt_token_ids == [2, 3, 4, 5, *range(200, 209)]
    assert (chunk.start, chunk.count, chunk.terminal) == (0, 13, True)
    engine.process(prefilled(prefill, [[209]]), 7)
    for index in range(10, 13):
        decode(engine, [200 + index])
    assert (b.token_ids, b.finish_reason) == (list(range(200, 213)), "length")
    assert (b.prefills, b.steps, b.preemptions) == (2, 11, 1)
    assert b.token_times_ns[9] == 7
    assert engine.idle


def until_pages_run_out(engine: Any, *handles: RequestHandle) -> Any:
    """All hold 3 pages of 4 and have 12 positions, with one step in flight: the next one needs more. Returns it."""
    start(engine, *(100 * (1 + row) for row in range(len(handles))))
    first = engine.schedule()
    for index in range(1, 8):
        second = engine.schedule()
        assert [request.handle for request in second.requests[0]] == list(handles)
        engine.process(decoded(first, [[[100 * (1 + row) + index] for row in range(len(handles))]]), 0)
        first = second
    assert [len(handle.token_ids) for handle in handles] == [8] * len(handles)
    return first


def test_a_preempted_request_holds_its_pages_until_its_steps_are_back() -> None:
    engine = small(6)
    a, b = add(engine, "a", tokens=13), add(engine, "b", tokens=13)
    in_flight = until_pages_run_out(engine, a, b)
    # 12 positions published, one more in flight, and pages for 12: a cannot grow until b's pages are back.
    assert engine.schedule() is None
    assert (a.preemptions, b.preemptions) == (0, 1)
    engine.process(decoded(in_flight, [[[108], [208]]]), 0)
    # What b's step brought is dropped: it will be prefilled again up to what it published.
    assert (a.token_ids[-1], b.token_ids[-1]) == (108, 207)
    assert [request.handle for request in decode(engine, [109])] == [a]
    for index in range(10, 13):
        decode(engine, [100 + index])
    start(engine, 208)
    assert b.token_ids == list(range(200, 209))
    assert b.prefills + b.steps + b.accepted == len(b.token_ids) + b.discarded


def test_cancel_while_preempted() -> None:
    engine = small(6)
    a, b = add(engine, "a", tokens=13), add(engine, "b", tokens=13)
    in_flight = until_pages_run_out(engine, a, b)
    assert engine.schedule() is None
    engine.cancel("b")
    assert b.finish_reason == "cancelled"
    engine.process(decoded(in_flight, [[[108], [208]]]), 0)
    assert len(b.token_ids) == 8
    for index in range(9, 13):
        decode(engine, [100 + index])
    assert (a.finish_reason, engine.idle) == ("length", True)


def test_nobody_is_preempted_for_pages_that_are_coming_back() -> None:
    engine = small(9, requests_per_rank=3)
    a, b, c = (add(engine, name, tokens=13) for name in "abc")
    in_flight = until_pages_run_out(engine, a, b, c)
    engine.cancel("b")
    assert engine.schedule() is None
    engine.process(decoded(in_flight, [[[108], [208], [308]]]), 0)
    assert [request.handle for request in decode(engine, [109], [309])] == [a, c]
    assert (a.preemptions, b.preemptions, c.preemptions) == (0, 0, 0)


def test_pages_go_to_who_runs_before_anybody_is_admitted() -> None:
    """a holds 3 of 6 pages and needs a fourth; b, which waits, could have the 3 that are free."""
    engine = small(6)
    a = add(engine, "a", tokens=13)
    start(engine, 100)
    for index in range(1, 9):
        decode(engine, [100 + index])
    b = add(engine, "b", prompt=8)
    assert [request.handle for request in decode(engine, [109])] == [a]
    assert (b.rank, b.preemptions) == (None, 0)


def test_preempted_requests_wait_in_order_of_arrival_before_all_others() -> None:
    engine = small(9, requests_per_rank=3)
    a, b, c = (add(engine, name, tokens=20) for name in "abc")
    d = add(engine, "d", tokens=20)
    start(engine, 100, 200, 300)
    while not b.preemptions:
        step = engine.schedule()
        engine.process(decoded(step, [[[7]] * len(step.requests[0])]), 0)
    assert (a.preemptions, c.preemptions) == (0, 1)
    while not a.finish_reason:
        step = engine.schedule()
        engine.process(decoded(step, [[[7]] * len(step.requests[0])]), 0)
    prefill = engine.schedule()
    assert next(chunk.request.handle for chunk in prefill.chunks[0]) is b
    assert d.rank is None


@pytest.mark.parametrize(
    ("prompt", "tokens", "message"), [(4, 18, "need 7 pages of group ORI; a rank has 6")]
)
def test_a_request_that_could_never_run_is_refused(prompt: int, tokens: int, message: str) -> None:
    engine = small(6)
    with pytest.raises(UsageError, match=message):
        add(engine, "a", prompt, tokens)
    add(engine, "b", prompt, tokens - 1)
    with pytest.raises(UsageError, match=r"1\.\.256 positions, got 257"):
        small(100).check(Request("c", [2] * 200, 54))


def test_a_row_that_was_left_alone_still_lets_the_engine_end() -> None:
    engine = scheduler(ranks=1, requests_per_rank=2)
    add(engine, "a")
    add(engine, "b")
    start(engine, 10, 20)
    with pytest.raises(EngineError, match="left request a alone"):
        engine.process(decoded(engine.schedule(), [[[], [21]]]), 2)
    engine.end_all("error")
    assert engine.idle


def test_requests_of_a_failed_step_start_again_and_what_is_behind_it_is_dropped() -> None:
    engine = scheduler(ranks=1)
    handle, waiting = add(engine, "a"), add(engine, "b")
    start(engine, 10)
    first, second = engine.schedule(), engine.schedule()
    engine.abandon(first)
    # Without the tokens of the first step those of the second would leave a gap.
    engine.process(decoded(second, [[[13, 14]]]), 2)
    assert (handle.token_ids, handle.preemptions, waiting.rank) == ([10], 1, None)
    prefill = engine.schedule()
    ((chunk,),) = prefill.chunks
    assert (chunk.request.handle, chunk.request.generation) == (handle, 2)
    assert chunk.request.prompt_token_ids == [2, 3, 4, 5, 10]
    engine.process(prefilled(prefill, [[11]]), 3)
    assert (handle.token_ids, handle.prefills, handle.steps) == ([10, 11], 2, 0)


def test_nothing_of_a_step_that_left_a_row_alone_is_published() -> None:
    engine = scheduler(ranks=1, requests_per_rank=2)
    a, b = add(engine, "a"), add(engine, "b")
    start(engine, 10, 20)
    first, second = engine.schedule(), engine.schedule()
    with pytest.raises(EngineError, match="left request b alone: state slot 1 of rank 0"):
        engine.process(decoded(first, [[[11, 12], []]]), 2)
    engine.process(decoded(second, [[[13], []]]), 3)
    assert (a.token_ids, b.token_ids, a.preemptions, b.preemptions) == ([10], [20], 1, 1)


def test_a_restart_seats_everybody_anew_in_order_of_arrival() -> None:
    engine = scheduler(ranks=1, requests_per_rank=2)
    a, b, c = add(engine, "a"), add(engine, "b"), add(engine, "c")
    start(engine, 10, 20)
    step = engine.schedule()
    engine.abandon(step)
    engine.restart()
    assert (a.preemptions, b.preemptions, c.preemptions) == (1, 1, 0)
    again = engine.schedule()
    assert [(chunk.request.handle, chunk.request.generation) for chunk in again.chunks[0]] == [(a, 1), (b, 1)]
    engine.process(prefilled(again, [[11, 21]]), 3)
    assert engine.schedule().step_id == 1
    engine.restart()
    assert (a.preemptions, b.preemptions, c.preemptions) == (2, 2, 0)


def test_rows_of_a_decode_tile() -> None:
    assert [rows_per_rank(k) for k in range(8)] == [8, 8, 4, 4, 2, 2, 2, 2]
    assert all(rows_per_rank(k) * (k + 1) <= 16 for k in range(8))
    for k in (-1, 8):
        with pytest.raises(UsageError, match=rf"must be 0\.\.7, got {k}"):
            rows_per_rank(k)


def test_positions_that_a_step_writes() -> None:
    """K = 3, T = 10: rows 11-14; with all of them right T is 14, and drafts 2 and 3 are made at 15 and 16."""
    assert [step_positions(k) for k in (0, 1, 2, 3)] == [1, 2, 4, 6]


def test_state_slots_count_generations_and_refuse_a_second_release() -> None:
    slots = StateSlots(2)
    assert [slots.allocate(), slots.allocate()] == [(0, 1), (1, 1)]
    assert slots.available == 0
    slots.release(0)
    assert slots.allocate() == (0, 2)
    slots.release(1)
    with pytest.raises(ValueError, match="state slot 1 is not taken"):
        slots.release(1)
