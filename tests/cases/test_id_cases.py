"""Ids as values (case 87), and ids that are used again (case 111)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from analyzers.analysis import analyze
from analyzers.readers.strace import read_strace
from analyzers.report.model import Report
from tests.builders.places import CASES
from tests.builders.strace import record

Use = tuple[int, int, int, int]
"""Start and end of a submit and of its wait, in us."""

DISTINCT: list[list[Any]] = [
    [1, 2, 3, 4, 5, 6, 7, 8],
    [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
    ["1", "01", "1.0", " 1", "", "true", "null", "é"],
    [1, "1", True, 1.5, [1], {"1": 1}, [[1]], False],
    [0.25, -1, -2, 0, -(2**63), 2**63, 2**64 - 1, 2**64],
    [10**40, 10**40 + 1, -(10**40), 1e300, 2e300, 2**53, 2**53 + 1, 2**62],
    [{"a": 1, "b": 2}, {"a": 2, "b": 1}, [1, 2], [2, 1], [], {}, [None], [[]]],
]


def span(end: str, start: int, duration: int, key: str, value: Any, **more: Any) -> dict[str, Any]:
    name = f"decode.worker_{end}"
    return {
        "ph": "X",
        "name": name,
        "ts": start,
        "dur": duration,
        "pid": 1,
        "tid": 1,
        "args": {key: value},
        **more,
    }


def crossing(ids: Sequence[Any], key: str = "dispatch_id") -> list[dict[str, Any]]:
    """Dispatches two at a time, of which the second completes first: 2.0 and 0.3 ms."""
    events = []
    for pair in range(len(ids) // 2):
        at, (first, second) = 5000 * pair, ids[2 * pair : 2 * pair + 2]
        events += [
            span("submit", at, 100, key, first),
            span("submit", at + 200, 100, key, second),
            span("wait", at + 400, 100, key, second),
            span("wait", at + 600, 1400, key, first),
        ]
    return events


def report_of(path: Path, events: list[dict[str, Any]]) -> Report:
    path.write_text(json.dumps({"traceEvents": events}))
    return analyze([path])


def latency(report: Report) -> tuple[int, float | None, float | None, dict[str, int]]:
    """How many, the mean and the most in ns, and what paired them."""
    found = [figures for figures in report.steps if figures.scope == "all"]
    if not found:
        return 0, None, None, {}
    [figures] = found
    return figures.latency.n, figures.latency.mean, figures.latency.max, figures.paired_by


ALL_EIGHT = (8, 1_150_000.0, 2_000_000.0)


@pytest.mark.parametrize("name", ["int.json", "text.json"])
def test_87_the_pairs_are_those_of_the_ids(name: str) -> None:
    report = analyze([CASES / "87-dispatch-id-no-integer" / name])
    assert latency(report) == (*ALL_EIGHT, {"dispatch_id": 8})
    assert not report.lifecycle.faults


@pytest.mark.parametrize("key", ["dispatch_id", "step_id"])
@pytest.mark.parametrize("ids", DISTINCT)
def test_87_anything_that_json_holds_is_an_id(tmp_path: Path, ids: list[Any], key: str) -> None:
    assert latency(report_of(tmp_path / "trace.json", crossing(ids, key))) == (*ALL_EIGHT, {key: 8})


def test_87_begin_and_end_events_carry_them_too(tmp_path: Path) -> None:
    events = []
    for event in crossing([f"step-{number}" for number in range(8)]):
        lane = {"pid": 1, "tid": event["ts"]}
        name, args = event["name"], event["args"]
        on_end = event["ts"] % 1000 == 200
        events.append({"ph": "B", "name": name, "ts": event["ts"], "args": {} if on_end else args, **lane})
        end = event["ts"] + event["dur"]
        events.append({"ph": "E", "name": name, "ts": end, "args": args if on_end else {}, **lane})
    assert latency(report_of(tmp_path / "trace.json", events)) == (*ALL_EIGHT, {"dispatch_id": 8})


def test_87_a_fragment_of_lines_carries_them_too(tmp_path: Path) -> None:
    path = tmp_path / "fragment.jsonl"
    path.write_text(
        "".join(json.dumps(event) + "\n" for event in crossing(["a", "b", "c", "d", "e", "f", "g", "h"]))
    )
    assert latency(analyze([path])) == (*ALL_EIGHT, {"dispatch_id": 8})


def test_87_the_span_around_carries_them_too(tmp_path: Path) -> None:
    events = []
    for event in crossing([f"step-{number}" for number in range(8)], "step_id"):
        around = "dispatch_decode" if "submit" in event["name"] else "reclaim_decode"
        lane = {"pid": 1, "tid": event["ts"]}
        events.append({**event, **lane, "name": f"WorkerProcess.{around}"})
        events.append({**event, **lane, "args": {}})
    assert latency(report_of(tmp_path / "trace.json", events)) == (*ALL_EIGHT, {"enclosing step_id": 8})


@pytest.mark.parametrize(
    ("first", "second"), [(7, 7.0), (100, 1e2), ({"a": 1, "b": [2]}, {"b": [2.0], "a": 1.0}), (-0.0, 0)]
)
def test_87_equal_values_are_one_id(tmp_path: Path, first: Any, second: Any) -> None:
    events = [span("submit", 0, 1, "dispatch_id", first), span("wait", 5, 4, "dispatch_id", second)]
    assert latency(report_of(tmp_path / "trace.json", events))[:2] == (1, 9000.0)


@pytest.mark.parametrize(
    ("first", "second"), [(7, "7"), (1, True), ("7", "07"), ([1], 1), (2**64, 2**64 + 1), (-1, 2**64 - 1)]
)
def test_87_other_values_are_not(tmp_path: Path, first: Any, second: Any) -> None:
    events = [span("submit", 0, 1, "dispatch_id", first), span("wait", 5, 4, "dispatch_id", second)]
    assert latency(report_of(tmp_path / "trace.json", events))[0] == 0


def test_87_an_id_that_cannot_be_used_is_said_and_not_paired_by_order(tmp_path: Path) -> None:
    events = crossing([None] * 2)[:1] + crossing([None] * 2)[2:3]
    report = report_of(tmp_path / "trace.json", events)
    assert latency(report)[0] == 0
    assert [fault.kind for fault in report.lifecycle.faults] == ["unusable_id", "unusable_id"]
    assert any(finding.code == "lifecycle_fault" for finding in report.findings)
    without = [{**event, "args": {}} for event in events]
    assert latency(report_of(tmp_path / "without.json", without))[3] == {"order": 1}, "as without any id"


def test_87_another_id_is_used_where_one_cannot_be(tmp_path: Path) -> None:
    events = crossing(list(range(8)), "step_id")
    for event in events:
        event["args"]["dispatch_id"] = None
    assert latency(report_of(tmp_path / "trace.json", events)) == (*ALL_EIGHT, {"step_id": 8})


def test_87_faults_name_the_id_of_the_file(tmp_path: Path) -> None:
    report = report_of(tmp_path / "trace.json", crossing(["x", "x"]))
    [fault] = [fault for fault in report.lifecycle.faults if fault.kind == "duplicate_submit"]
    assert "dispatch x is submitted again while in flight" in fault.detail
    assert fault.spans[0].dispatch_id == "x"


def test_87_ids_of_records_are_texts_or_numbers() -> None:
    lines = [
        record("simpler_run.chip.run", 0, 9, pid=1, dispatch_id=value) for value in ("7", "step-7", "step-8")
    ]
    spans = read_strace("\n".join(lines).encode(), "run.log").spans
    assert [spans.id_of(code) for code in spans.dispatch_id.tolist()] == [7, "step-7", "step-8"]


def uses(*times: Use, value: Any = 3) -> list[dict[str, Any]]:
    return [
        event
        for submit, returned, wait, end in times
        for event in (
            span("submit", submit, returned - submit, "dispatch_id", value),
            span("wait", wait, end - wait, "dispatch_id", value),
        )
    ]


def test_111_used_again_after_completion_it_is_the_next_generation() -> None:
    report = analyze([CASES / "111-id-used-again" / "trace.json"])
    assert latency(report) == (3, 14_000.0, 17_000.0, {"dispatch_id": 3})
    [fault] = report.lifecycle.faults
    assert fault.kind == "duplicate_submit"
    assert (
        "dispatch 4 is submitted again while in flight, at 304000 ns, after the one at 300000 ns"
        in fault.detail
    )


@pytest.mark.parametrize("value", [3, "slot-3", [3]])
def test_111_a_generation_may_begin_when_the_one_before_ends(tmp_path: Path, value: Any) -> None:
    again = uses((0, 1, 5, 10), (10, 11, 15, 30), value=value)
    assert latency(report_of(tmp_path / "trace.json", again))[:3] == (2, 15_000.0, 20_000.0)


def test_111_one_that_begins_earlier_is_in_flight(tmp_path: Path) -> None:
    report = report_of(tmp_path / "trace.json", uses((0, 1, 5, 10), (9, 10, 15, 30)))
    assert latency(report)[0] == 0
    assert "duplicate_submit" in {fault.kind for fault in report.lifecycle.faults}


def test_111_two_slots_in_turn_that_complete_out_of_order(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    for turn in range(6):
        at = 1000 * turn
        events += uses((at, at + 1, at + 50, at + 90), value=0) + uses(
            (at + 10, at + 11, at + 20, at + 40), value=1
        )
    report = report_of(tmp_path / "trace.json", list(reversed(events)))
    assert latency(report) == (12, 60_000.0, 90_000.0, {"dispatch_id": 12})
    assert not report.lifecycle.faults


def test_111_the_window_may_cut_the_first_and_the_last_generation(tmp_path: Path) -> None:
    events = uses((-9, -8, 1, 5), (10, 11, 15, 20), (30, 31, 35, 39))[1:] + uses((50, 51, 60, 70))[:1]
    report = report_of(tmp_path / "trace.json", events)
    assert latency(report)[:3] == (2, 9_500.0, 10_000.0)
    assert [edge.kind for edge in report.lifecycle.edges] == ["open_at_start", "open_at_end"]
    assert not report.lifecycle.faults


def test_111_generations_before_the_fault_and_other_ids_keep_their_figures(tmp_path: Path) -> None:
    events = [
        *uses((0, 1, 5, 10), (20, 21, 25, 30)),
        span("submit", 22, 1, "dispatch_id", 3),
        *uses((40, 41, 45, 52), value=4),
    ]
    report = report_of(tmp_path / "trace.json", events)
    assert latency(report)[:3] == (2, 11_000.0, 12_000.0)
    assert [fault.kind for fault in report.lifecycle.faults] == ["duplicate_submit"]


def test_111_spans_of_a_step_are_joined_only_by_an_id_that_names_one(tmp_path: Path) -> None:
    """Ids of steps that are used again say nothing about which prepare belongs to which step."""
    events: list[dict[str, Any]] = []
    for turn in range(6):
        at, step = 1000 * turn, turn % 2
        both = {"dispatch_id": turn, "step_id": step}
        events += [{**event, "args": both} for event in uses((at + 100, at + 110, at + 200, at + 900))]
        for name, start in (("WorkerProcess.prepare_decode", at), ("WorkerProcess.reclaim_decode", at + 905)):
            around = {
                "ph": "X",
                "name": name,
                "ts": start,
                "dur": 50,
                "pid": 1,
                "tid": 9,
                "args": {"step_id": step},
            }
            events.append(around)
    report = report_of(tmp_path / "trace.json", events)
    assert latency(report)[:3] == (6, 800_000.0, 800_000.0)
    assert [step_time.published_by for step_time in report.step_time] == ["worker_wait"]
    known = {entry.phase: entry.charged.mean for entry in report.step_time[0].phases}
    assert not known.get("prepare")
