"""Filters keep steps whole: which spans are left, and what figures and report say of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from analyzers.analysis import analyze_recording, judge
from analyzers.measurement import AnalysisOptions
from analyzers.recording.filters import (
    FilterError,
    Filters,
    apply_filters,
    parse_ranks,
    parse_steps,
    parse_window,
)
from analyzers.recording.recording import Recording, load_recording
from analyzers.rundir import RequestRecord, RunTiming
from tests.builders import chrome, strace
from tests.builders.manifests import device_map, manifest
from tests.builders.requests import request, write_requests

US, MS = 1_000, 1_000_000
START = 1_000 * MS
DECODE = "decode"


def event(name: str, start: float, end: float, tid: int, **args: Any) -> dict[str, Any]:
    """A serving span; times in ms from START."""
    return chrome.event(name, (START + start * MS) / US, (end - start) * MS / US, tid=tid, **args)


def record(rank: int, inv: int, name: str, start: float, end: float, **ids: Any) -> str:
    at, lasts = START + round(start * MS), round((end - start) * MS)
    return strace.record(name, at, lasts, pid=10 + rank, inv=inv, **ids)


def sent(name: str, phase: str, rank: int, send: float, *tokens: float) -> RequestRecord:
    times = [START + round(time * MS) for time in tokens]
    return request(name, times, phase=phase, rank=rank, send_ns=START + round(send * MS))


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """Steps 4 to 9 of 10 ms each, from 40 to 100 ms, as dispatches 104 to 109 on ranks 0 and 1; a prefill before.

    As upstream writes them: only the dispatch and reclaim spans name the step, only roots carry ids.
    """
    events = [event("prefill.worker_run", 20, 35, 3, dispatch_id=103), event("http.completions", 15, 101, 9)]
    records = []
    for rank in (0, 1):
        records += [
            record(rank, 3, "chip.run.runner_run", 25, 30),
            record(rank, 3, "chip.run", 22, 33, dispatch_id=103),
        ]
    for step in range(4, 10):
        at, ids = 10 * step, {"step_id": step, "dispatch_id": 100 + step}
        events += [
            event("WorkerProcess.dispatch_decode", at, at + 2, 3, step_id=step),
            event(f"{DECODE}.worker_submit", at + 0.5, at + 1, 3, **ids),
            event("WorkerProcess.reclaim_decode", at + 3, at + 9.5, 4, step_id=step),
            event(f"{DECODE}.worker_wait", at + 4, at + 9, 4),
        ]
        for rank in (0, 1):
            records += [
                record(rank, step, "chip.run.runner_run", at + 3, at + 6),
                record(rank, step, "chip.run.runner_run.device_wall", 0, 2.5, clk="dev"),
                record(rank, step, "chip.run", at + 2, at + 7, dispatch_id=100 + step),
            ]
    requests = [
        sent("warm", "warmup", 0, 1, 5, 6),
        sent("a", "measured", 0, 15, 36, 50, 60, 70),
        sent("b", "measured", 1, 15, 37, 51, 99),
    ]
    ready = [strace.ready(10 + rank, rank) for rank in (0, 1)]
    return load_recording(
        [
            chrome.write_trace(tmp_path / "trace.json", events),
            strace.write_log(tmp_path / "server.log", *ready, *records),
            write_requests(tmp_path / "requests.jsonl", *requests),
        ]
    )


def with_manifest(recording: Recording, window_start: float) -> Recording:
    window_start_ns = START + round(window_start * MS)
    own = manifest(device_map=device_map((0, 1)), timing=RunTiming(START, window_start_ns=window_start_ns))
    return dataclasses.replace(recording, manifest=own)


def names(recording: Recording) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in recording.spans.iter_names():
        found[name] = found.get(name, 0) + 1
    return found


WHOLE_STEPS = {
    "WorkerProcess.dispatch_decode": 1,
    f"{DECODE}.worker_submit": 1,
    "WorkerProcess.reclaim_decode": 1,
    f"{DECODE}.worker_wait": 1,
    "chip.run.runner_run": 2,
    "chip.run.runner_run.device_wall": 2,
    "chip.run": 2,
}


def times(count: int) -> dict[str, int]:
    return {name: count * each for name, each in WHOLE_STEPS.items()}


@pytest.mark.parametrize(
    ("steps", "expected"), [((5, 8), 3), ((None, 6), 2), ((7, None), 3), ((9, 100), 1), ((None, None), 6)]
)
def test_steps_are_kept_with_everything_that_belongs_to_them(
    steps: tuple[int | None, int | None], expected: int, recording: Recording
) -> None:
    part = apply_filters(recording, Filters(steps=steps))
    # Neither the prefill nor the HTTP request is a step; requests have no figures for a few steps.
    assert names(part) == times(expected)
    assert part.requests == []


def test_ranks_leave_the_serving_trace_whole(recording: Recording) -> None:
    part = apply_filters(with_manifest(recording, 10), Filters(ranks=frozenset({1})))
    found = names(part)
    assert (found["chip.run"], found[f"{DECODE}.worker_submit"], found["http.completions"]) == (7, 6, 1)
    assert set(part.ranks.ranks.values()) == {1}
    assert [timing.request_id for timing in part.requests] == ["b"]
    report = analyze_recording(
        with_manifest(recording, 10), AnalysisOptions(filters=Filters(ranks=frozenset({1})))
    )
    # Rank 0 was not lost: nobody asked for it. And one rank cannot tell what the step waited for.
    assert not [finding for finding in report.findings if finding.code in ("rank_missing", "lost_records")]
    assert report.step_time == []


def test_a_callable_is_kept_with_its_runs(recording: Recording) -> None:
    assert names(apply_filters(recording, Filters(callable="dec*"))) == times(6)
    assert names(apply_filters(recording, Filters(callable="prefill"))) == {
        "prefill.worker_run": 1,
        "chip.run.runner_run": 2,
        "chip.run": 2,
    }


@pytest.mark.parametrize(
    ("window", "steps"),
    [
        # From the first span, at 15 ms: [40, 80) ms of the recording.
        ((25, 65), 4),
        ((25, 64), 3),
        ((26, 65), 3),
        ((None, 64), 3),
        ((66, None), 1),
    ],
)
def test_a_window_keeps_steps_that_lie_wholly_inside(
    window: tuple[int | None, int | None], steps: int, recording: Recording
) -> None:
    # A step lasts from 0 to 9.5 ms of its 10; its last half millisecond decides no case but the prefill's.
    edges = tuple(None if edge is None else edge * MS for edge in window)
    part = apply_filters(recording, Filters(window_ns=edges))  # type: ignore[arg-type]
    prefill = window[0] is None
    assert names(part).get("chip.run", 0) == 2 * (steps + prefill)
    assert names(part).get(f"{DECODE}.worker_wait", 0) == steps


def test_a_window_counts_from_the_measured_window_where_there_is_one(recording: Recording) -> None:
    part = apply_filters(with_manifest(recording, 50), Filters(window_ns=(0, 20 * MS)))
    assert names(part) == times(2)
    part = apply_filters(with_manifest(recording, 10), Filters(window_ns=(0, 61 * MS)))
    # Request a was answered at 70 ms, request b not before 99.
    assert [timing.request_id for timing in part.requests] == ["a"]


def test_warm_up_ends_where_the_measured_window_begins(recording: Recording) -> None:
    part = apply_filters(with_manifest(recording, 40), Filters(exclude_warmup=True))
    assert names(part) == times(6)
    assert [timing.phase for timing in part.requests] == ["measured", "measured"]


def test_warm_up_ends_with_the_first_measured_request_where_no_manifest_tells(recording: Recording) -> None:
    part = apply_filters(recording, Filters(exclude_warmup=True))
    assert len(part.spans) == len(recording.spans)
    assert [timing.request_id for timing in part.requests] == ["a", "b"]


def test_figures_are_those_of_the_part_and_the_report_says_so(recording: Recording) -> None:
    report = analyze_recording(recording, AnalysisOptions(filters=Filters(steps=(5, 7))))
    assert (report.lifecycle.pairs, report.lifecycle.edges, report.lost_runs) == (2, [], [])
    [rounds] = [skew.rounds for skew in report.skew if skew.scope == "all"]
    assert rounds == 2
    assert report.filters == ["steps 5:7"]
    [finding] = [finding for finding in report.findings if finding.code == "filtered"]
    assert finding.title == "figures cover a part of the recording: steps 5:7"


def test_filters_are_applied_together(recording: Recording) -> None:
    filters = Filters(steps=(5, None), ranks=frozenset({0}), callable="decode", window_ns=(0, 75 * MS))
    part = apply_filters(recording, filters)
    # Steps 5 to 7 end before 15 + 75 ms; step 8 ends at 89.5.
    assert names(part)["chip.run"] == 4
    assert filters.statements == ["steps 5:", "ranks 0", "callable decode", "window 0:75 ms"]


def test_nothing_left_is_no_data(recording: Recording) -> None:
    report = analyze_recording(recording, AnalysisOptions(filters=Filters(steps=(50, 60))))
    assert judge(report).exit_code == 3
    assert judge(report).reason == "no data: nothing passes the filters"


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        (Filters(ranks=frozenset({7})), "--ranks 7: no such rank; the input has 0, 1"),
        (Filters(callable="x*"), "--callable x*: no such callable; the input has decode, prefill"),
    ],
)
def test_what_the_input_does_not_have_is_an_error(
    filters: Filters, message: str, recording: Recording
) -> None:
    with pytest.raises(FilterError) as error:
        apply_filters(recording, filters)
    assert str(error.value) == message


def test_a_recording_without_steps_or_phases_cannot_be_filtered_by_them(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(record(0, 1, "chip.run", 0, 5, dispatch_id=1) + "\n")
    recording = load_recording([log])
    for filters, words in (
        (Filters(steps=(0, 1)), "names its step"),
        (Filters(exclude_warmup=True), "warm-up"),
    ):
        with pytest.raises(FilterError, match=words):
            apply_filters(recording, filters)


def test_runs_without_ids_are_kept_whole_by_their_invocation(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    # Of invocation 2, rank 1 runs past the window.
    records = [
        record(rank, inv, name, 10 * inv, 10 * inv + (5 if inv == 1 or rank == 0 else 9))
        for rank in (0, 1)
        for inv in (1, 2)
        for name in ("chip.run", "chip.run.bind")
    ]
    log.write_text("\n".join(records) + "\n")
    part = apply_filters(load_recording([log]), Filters(window_ns=(0, 16 * MS)))
    assert part.spans.invocation.tolist() == [1] * 4


@pytest.mark.parametrize(
    ("text", "expected"), [("3:10", (3, 10)), (":10", (None, 10)), ("3:", (3, None)), (" 3 : 4 ", (3, 4))]
)
def test_steps_are_a_range(text: str, expected: tuple[int | None, int | None]) -> None:
    assert parse_steps(text) == expected


@pytest.mark.parametrize("text", ["3", "a:b", "1:2:3", "4:4", "5:4", "1.5:2", ""])
def test_other_steps_are_refused(text: str) -> None:
    with pytest.raises(FilterError, match="--steps"):
        parse_steps(text)


def test_ranks_and_windows_are_parsed() -> None:
    assert parse_ranks("0, 3") == frozenset({0, 3})
    assert parse_window("0.5:1e3") == (500_000, 1_000 * MS)
    assert parse_window(":2") == (None, 2 * MS)
    for text in ("", "0-3", "0,,3", "-1"):
        with pytest.raises(FilterError, match="--ranks"):
            parse_ranks(text)
    for text in ("5", "x:1", "2:1"):
        with pytest.raises(FilterError, match="--window"):
            parse_window(text)
