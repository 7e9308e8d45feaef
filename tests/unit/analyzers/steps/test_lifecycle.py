"""Pairing by its three levels of trust, and every kind of fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from analyzers.analysis import analyze
from analyzers.ranks.rounds import match_rounds
from analyzers.ranks.scheduler import read_schedule
from analyzers.steps.lifecycle import Lifecycle, check_lifecycles
from analyzers.steps.pipeline import measure_pipeline
from analyzers.table.spans import ABSENT, Source, SpanTable, empty_table
from tests.builders.spans import Spans

SUBMIT, WAIT = "decode.worker_submit", "decode.worker_wait"

# name, start, end, tid, then ids
Span = tuple[str, int, int, int, dict[str, Any]]


def table(spans: list[Span], pid: int = 1) -> SpanTable:
    builder = Spans(Source.SERVING, pid=pid)
    for name, start, end, tid, ids in spans:
        builder.add(name, start, end, tid, **ids)
    return builder.build()


def check(spans: list[Span], depth: int | None = None, invalid: list[Span] | None = None) -> Lifecycle:
    return check_lifecycles(table(spans), table(invalid or []), depth=depth)


def pairs(lifecycle: Lifecycle) -> list[tuple[int, int, str]]:
    return [(step.interval.start_ns, step.interval.end_ns, step.paired_by) for step in lifecycle.steps]


def kinds(lifecycle: Lifecycle) -> list[str]:
    return sorted(fault.kind for fault in lifecycle.faults)


def dispatch(number: int, slot: int = ABSENT) -> dict[str, int]:
    return {"dispatch_id": number, "slot": slot}


def test_step_id_pairs_where_no_dispatch_id_does() -> None:
    lifecycle = check([(SUBMIT, 0, 1, 1, {"step_id": 4}), (WAIT, 5, 9, 2, {"step_id": 4})])
    assert pairs(lifecycle) == [(0, 9, "step_id")]
    assert lifecycle.steps[0].step_id == 4


def test_different_dispatches_of_one_step_are_not_a_pair() -> None:
    lifecycle = check(
        [
            (SUBMIT, 0, 1, 1, {"step_id": 4, "dispatch_id": 1}),
            (WAIT, 5, 9, 2, {"step_id": 4, "dispatch_id": 2}),
        ]
    )
    assert len(lifecycle.steps) == 0


def test_spans_without_ids_take_the_step_of_the_span_around_them() -> None:
    spans: list[Span] = [
        ("WorkerProcess.dispatch_decode", 0, 10, 1, {"step_id": 7}),
        (SUBMIT, 2, 4, 1, {}),
        ("WorkerProcess.dispatch_decode", 20, 30, 1, {"step_id": 8}),
        (SUBMIT, 22, 24, 1, {}),
        # Reclaimed in the other order, which no pairing by order would find.
        ("WorkerProcess.reclaim_decode", 30, 40, 2, {"step_id": 8}),
        (WAIT, 31, 39, 2, {}),
        ("WorkerProcess.reclaim_decode", 50, 60, 2, {"step_id": 7}),
        (WAIT, 51, 59, 2, {}),
    ]
    assert pairs(check(spans)) == [(2, 59, "enclosing step_id"), (22, 39, "enclosing step_id")]


def test_the_span_around_is_on_the_same_thread() -> None:
    spans: list[Span] = [
        ("WorkerProcess.dispatch_decode", 0, 10, 1, {"step_id": 7}),
        (SUBMIT, 2, 4, 1, {}),
        ("WorkerProcess.reclaim_decode", 20, 40, 2, {"step_id": 7}),
        (WAIT, 25, 30, 3, {}),
    ]
    assert pairs(check(spans)) == [(2, 30, "order")]


def test_a_fence_wait_outside_any_reclaim_still_finds_its_step() -> None:
    spans: list[Span] = []
    for step in range(4):
        at = 100 * step
        spans += [
            ("WorkerProcess.dispatch_decode", at, at + 10, 1, {"step_id": step}),
            (SUBMIT, at + 1, at + 9, 1, {}),
        ]
        if step == 2:
            # A prefill waited for it on the device lane; its reclaim has no wait.
            spans += [
                (WAIT, at + 50, at + 90, 1, {}),
                ("WorkerProcess.reclaim_decode", at + 60, at + 95, 2, {"step_id": 2}),
            ]
        else:
            spans += [
                ("WorkerProcess.reclaim_decode", at + 50, at + 95, 2, {"step_id": step}),
                (WAIT, at + 51, at + 90, 2, {}),
            ]
    lifecycle = check(spans)
    assert pairs(lifecycle) == [
        (1, 90, "enclosing step_id"),
        (101, 190, "enclosing step_id"),
        (201, 290, "order"),
        (301, 390, "enclosing step_id"),
    ]
    assert lifecycle.faults == []


def test_order_pairs_what_is_unambiguous() -> None:
    spans: list[Span] = [
        (SUBMIT, 0, 1, 1, {}),
        (SUBMIT, 10, 11, 1, {}),
        (WAIT, 5, 20, 2, {}),
        (WAIT, 21, 30, 2, {}),
    ]
    assert pairs(check(spans)) == [(0, 20, "order"), (10, 30, "order")]


def test_order_is_ambiguous_when_more_are_in_flight_than_declared() -> None:
    spans: list[Span] = [
        (SUBMIT, 0, 1, 1, {}),
        (SUBMIT, 10, 11, 1, {}),
        (WAIT, 5, 20, 2, {}),
        (WAIT, 21, 30, 2, {}),
    ]
    lifecycle = check(spans, depth=1)
    assert len(lifecycle.steps) == 0
    assert kinds(lifecycle) == ["ambiguous"]


def test_order_is_ambiguous_when_waits_end_out_of_order() -> None:
    spans: list[Span] = [
        (SUBMIT, 0, 1, 1, {}),
        (SUBMIT, 10, 11, 1, {}),
        (WAIT, 12, 40, 2, {}),
        (WAIT, 13, 30, 3, {}),
    ]
    assert kinds(check(spans)) == ["ambiguous"]


def test_order_is_ambiguous_when_the_numbers_differ() -> None:
    spans: list[Span] = [
        (SUBMIT, 0, 1, 1, {}),
        (SUBMIT, 10, 11, 1, {}),
        (WAIT, 12, 20, 2, {}),
        (WAIT, 21, 30, 2, {}),
        (WAIT, 31, 40, 2, {}),
    ]
    lifecycle = check(spans)
    assert len(lifecycle.steps) == 0
    assert "their numbers differ" in lifecycle.faults[0].detail


def test_a_pair_by_order_may_not_overtake_pairs_by_id() -> None:
    spans: list[Span] = [
        (SUBMIT, 0, 1, 1, {}),
        (SUBMIT, 10, 11, 1, dispatch(1)),
        (WAIT, 12, 20, 2, dispatch(1)),
        (WAIT, 90, 99, 2, {}),
    ]
    lifecycle = check(spans)
    assert pairs(lifecycle) == [(10, 20, "dispatch_id")]
    assert kinds(lifecycle) == ["ambiguous"]


def test_a_pair_by_order_may_not_be_overtaken_by_a_pair_by_id() -> None:
    spans: list[Span] = [
        (SUBMIT, 0, 1, 1, dispatch(1)),
        (SUBMIT, 10, 11, 1, {}),
        (SUBMIT, 20, 21, 1, dispatch(2)),
        (WAIT, 22, 30, 2, dispatch(2)),
        (WAIT, 31, 40, 2, {}),
        (WAIT, 41, 50, 2, dispatch(1)),
    ]
    lifecycle = check(spans, depth=3)
    [fault] = [fault for fault in lifecycle.faults if fault.kind == "ambiguous"]
    # Completed at 40: before dispatch 1, which was submitted earlier, and after dispatch 2, which was later.
    assert "would complete out of order with dispatch 1" in fault.detail


def test_pairs_by_order_keep_their_place_among_pairs_by_id() -> None:
    spans: list[Span] = [
        (SUBMIT, 0, 1, 1, dispatch(1)),
        (WAIT, 2, 9, 2, dispatch(1)),
        (SUBMIT, 10, 11, 1, {}),
        (WAIT, 12, 19, 2, {}),
        (SUBMIT, 20, 21, 1, dispatch(2)),
        (WAIT, 22, 29, 2, dispatch(2)),
    ]
    assert pairs(check(spans)) == [(0, 9, "dispatch_id"), (10, 19, "order"), (20, 29, "dispatch_id")]


def test_duplicates_are_faults_and_make_no_latency() -> None:
    spans: list[Span] = [
        (SUBMIT, 0, 1, 1, dispatch(1)),
        (WAIT, 2, 3, 2, dispatch(1)),
        (WAIT, 4, 5, 2, dispatch(1)),
        (SUBMIT, 10, 11, 1, dispatch(2)),
        (SUBMIT, 12, 13, 1, dispatch(2)),
        (WAIT, 14, 15, 2, dispatch(2)),
        (SUBMIT, 20, 21, 1, dispatch(3)),
        (WAIT, 22, 23, 2, dispatch(3)),
    ]
    lifecycle = check(spans)
    assert kinds(lifecycle) == ["duplicate_submit", "duplicate_wait"]
    assert pairs(lifecycle) == [(20, 23, "dispatch_id")]


def test_a_gap_inside_the_window_is_a_fault_not_an_edge() -> None:
    spans: list[Span] = []
    for number in range(6):
        at = 10 * number
        if number != 2:
            spans.append((SUBMIT, at, at + 1, 1, dispatch(number)))
        if number != 3:
            spans.append((WAIT, at + 2, at + 8, 2, dispatch(number)))
    lifecycle = check(spans)
    assert kinds(lifecycle) == ["submit_without_wait", "wait_without_submit"]
    assert lifecycle.edges == []


def test_more_open_ends_than_can_be_in_flight_are_faults() -> None:
    spans: list[Span] = [(SUBMIT, 0, 1, 1, dispatch(0)), (WAIT, 2, 3, 2, dispatch(0))]
    spans += [(SUBMIT, 10 * number, 10 * number + 1, 1, dispatch(number)) for number in range(1, 5)]
    lifecycle = check(spans, depth=2)
    assert [edge.span.dispatch_id for edge in lifecycle.edges] == [3, 4]
    assert [fault.spans[0].dispatch_id for fault in lifecycle.faults] == [1, 2]


def test_negative_duration_is_named_with_its_pair() -> None:
    lifecycle = check([(SUBMIT, 0, 1, 1, dispatch(1))], invalid=[(WAIT, 9, 4, 2, dispatch(1))])
    assert kinds(lifecycle) == ["negative_duration"]
    assert lifecycle.edges == []


def test_an_unfinished_wait_is_an_edge() -> None:
    lifecycle = check([(SUBMIT, 0, 1, 1, dispatch(1))], invalid=[(WAIT, 9, 9 - 1000, 2, dispatch(1))])
    assert lifecycle.faults == []
    assert [edge.kind for edge in lifecycle.edges] == ["open_at_end"]


def test_a_slot_taken_again_in_flight() -> None:
    spans: list[Span] = [
        (SUBMIT, 0, 1, 1, dispatch(1, slot=0)),
        (WAIT, 5, 30, 2, dispatch(1, slot=0)),
        (SUBMIT, 20, 21, 1, dispatch(2, slot=0)),
        (WAIT, 31, 50, 2, dispatch(2, slot=0)),
        (SUBMIT, 50, 51, 1, dispatch(3, slot=0)),
        (WAIT, 55, 60, 2, dispatch(3, slot=0)),
    ]
    lifecycle = check(spans)
    [fault] = lifecycle.faults
    assert fault.kind == "slot_reused_in_flight"
    assert "dispatch 2 takes slot 0 10 ns before dispatch 1" in fault.detail


def test_more_in_flight_than_declared() -> None:
    spans: list[Span] = [(SUBMIT, 10 * number, 10 * number + 1, 1, dispatch(number)) for number in range(3)]
    spans += [(WAIT, 40 + 10 * number, 45 + 10 * number, 2, dispatch(number)) for number in range(3)]
    assert kinds(check(spans, depth=2)) == ["depth_exceeded"]
    assert kinds(check(spans, depth=3)) == []
    assert kinds(check(spans, depth=None)) == []


def test_the_evidence_is_as_many_dispatches_as_exceed_the_depth() -> None:
    spans: list[Span] = [(SUBMIT, 10 * number, 10 * number + 1, 1, dispatch(number)) for number in range(9)]
    spans += [(WAIT, 100 + 10 * number, 105 + 10 * number, 2, dispatch(number)) for number in range(9)]
    faults = check(spans, depth=2).faults
    assert [fault.detail.split()[0] for fault in faults] == ["3", "4", "5", "6", "7", "8", "9"]
    assert all(len(fault.spans) == 3 for fault in faults)
    assert [span.dispatch_id for span in faults[-1].spans] == [8, 0, 1]


def test_a_submit_that_blocks_until_the_oldest_returns_exceeds_nothing() -> None:
    spans: list[Span] = [
        (SUBMIT, 0, 1, 1, dispatch(0)),
        (WAIT, 2, 40, 2, dispatch(0)),
        (SUBMIT, 10, 11, 1, dispatch(1)),
        (WAIT, 41, 60, 2, dispatch(1)),
        (SUBMIT, 20, 41, 1, dispatch(2)),
        (WAIT, 61, 80, 2, dispatch(2)),
    ]
    assert kinds(check(spans, depth=2)) == []


def test_preparing_a_slot_before_its_holder_was_reclaimed() -> None:
    spans: list[Span] = [
        ("WorkerProcess.prepare_decode", 0, 5, 1, {"step_id": 0}),
        ("WorkerProcess.reclaim_decode", 50, 60, 2, {"step_id": 0}),
        ("WorkerProcess.prepare_decode", 55, 58, 1, {"step_id": 2}),
        ("WorkerProcess.prepare_decode", 20, 30, 1, {"step_id": 1}),
    ]
    [fault] = check(spans, depth=2).faults
    assert fault.kind == "prepared_before_reclaim"
    assert fault.detail == "step 2 is prepared 5 ns before step 0 is reclaimed"


def test_faults_of_every_kind_are_in_order_of_time() -> None:
    spans: list[Span] = [
        ("WorkerProcess.prepare_decode", 0, 5, 1, {"step_id": 0}),
        ("WorkerProcess.prepare_decode", 20, 30, 1, {"step_id": 2}),
        ("WorkerProcess.reclaim_decode", 50, 60, 2, {"step_id": 0}),
        (SUBMIT, 70, 71, 1, dispatch(1)),
        (SUBMIT, 80, 81, 1, dispatch(2)),
        (WAIT, 90, 99, 2, dispatch(1)),
        (WAIT, 100, 110, 2, dispatch(2)),
        ("WorkerProcess.prepare_decode", 120, 125, 1, {"step_id": 4}),
        ("WorkerProcess.reclaim_decode", 140, 150, 2, {"step_id": 3}),
        ("WorkerProcess.reclaim_decode", 160, 170, 2, {"step_id": 2}),
    ]
    lifecycle = check(spans, depth=1)
    # With one in flight, step 4 waits for step 3 to be reclaimed; steps 2 and 0 have nobody one step ahead of them.
    found = [(fault.spans[0].start_ns, fault.kind) for fault in lifecycle.faults]
    assert found == [(80, "depth_exceeded"), (120, "prepared_before_reclaim")]
    lifecycle = check(spans, depth=2)
    found = [(fault.spans[0].start_ns, fault.kind) for fault in lifecycle.faults]
    assert found == [(20, "prepared_before_reclaim"), (120, "prepared_before_reclaim")]
    # A second wait of dispatch 1: the fault of the pairing stands between the two of the preparation.
    again = [*spans, (WAIT, 102, 104, 2, dispatch(1))]
    found = [(fault.spans[0].start_ns, fault.kind) for fault in check(again, depth=2).faults]
    assert found == [
        (20, "prepared_before_reclaim"),
        (102, "duplicate_wait"),
        (120, "prepared_before_reclaim"),
    ]


def sequential(count: int) -> list[Span]:
    spans: list[Span] = []
    for number in range(count):
        spans.append((SUBMIT, 100 * number, 100 * number + 1, 1, dispatch(number)))
        spans.append((WAIT, 100 * number + 5, 100 * number + 100, 2, dispatch(number)))
    return spans


def state(spans: list[Span], depth: int | None) -> tuple[str, str]:
    lifecycle = check(spans, depth=depth)
    result = measure_pipeline(
        "decode", read_schedule(table(spans)), lifecycle, match_rounds([]), full_batch=None
    )
    return result.figures.state, result.figures.statement


def test_a_collapsed_pipeline_is_told_from_a_declared_depth_of_one() -> None:
    collapsed, text = state(sequential(10), depth=2)
    assert collapsed == "collapsed"
    assert text.startswith("pipeline collapsed to depth one: depth 2 declared, but only 0 of 9 steps")
    assert state(sequential(10), depth=1) == (
        "depth one",
        "one in flight (depth one declared): 0 of 9 steps submitted before the previous one completed",
    )
    assert state(sequential(10), depth=None)[1].startswith("one in flight (no depth declared)")


def test_steps_with_a_fault_between_them_are_no_neighbours() -> None:
    spans = sequential(4)
    spans[3] = (WAIT, 100, 200, 2, dispatch(1))
    lifecycle = check(spans, depth=2)
    assert kinds(lifecycle) == ["wait_before_submit_end"]
    before, following = lifecycle.neighbours("decode")
    assert (before.dispatch_id.tolist(), following.dispatch_id.tolist()) == ([2], [3])


def test_an_empty_trace_has_no_lifecycles() -> None:
    lifecycle = check_lifecycles(empty_table(), empty_table())
    assert (len(lifecycle.steps), lifecycle.faults, lifecycle.edges) == (0, [], [])


def test_a_failed_dispatch_is_paired_and_in_no_latency(tmp_path: Path) -> None:
    events = [
        {"ph": "X", "name": SUBMIT, "pid": 1, "tid": 1, "ts": 0, "dur": 1, "args": {"dispatch_id": 1}},
        {"ph": "X", "name": WAIT, "pid": 1, "tid": 2, "ts": 5, "dur": 5, "args": {"dispatch_id": 1}},
        {"ph": "X", "name": SUBMIT, "pid": 1, "tid": 1, "ts": 10, "dur": 1, "args": {"dispatch_id": 2}},
        {
            "ph": "X", "name": WAIT, "pid": 1, "tid": 2, "ts": 20, "dur": 9000,
            "args": {"dispatch_id": 2, "failed": True},
        },
    ]  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(events))
    report = analyze([path])
    assert (report.lifecycle.pairs, report.lifecycle.failed, report.lifecycle.faults) == (1, 1, [])
    assert [(figures.latency.n, figures.latency.max) for figures in report.steps] == [(1, 10_000)]
