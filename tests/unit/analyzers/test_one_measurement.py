"""Report, JSON, timeline, comparison and gate say the same of one recording: they are made of one measurement.

Every count and figure that two of them share is taken from what each of them shows, and held against the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from analyzers.analysis import report_of
from analyzers.compare.compare import compare
from analyzers.gate.metrics import REGISTRY, run_values
from analyzers.gate.samples import read_samples
from analyzers.measurement import AnalysisOptions, Measured, measure
from analyzers.recording.clocks import ClockAlignment
from analyzers.recording.filters import Filters
from analyzers.recording.recording import load_recording
from analyzers.report.json import render_json
from analyzers.report.model import Report
from analyzers.swimlane import Timeline, timeline_of
from analyzers.swimlane.model import FlowPhase, Slice
from analyzers.table.callables import is_prefill
from analyzers.table.spans import Source, SpanTable
from tests.builders.comparable_runs import STEPS, write_run
from tests.builders.recordings import recording_of
from tests.builders.spans import Spans

TESTS = Path(__file__).parents[2]
CAPTURES = sorted((TESTS / "cases" / "data" / "traces").iterdir())
SMOKE_RUN = TESTS / "properties" / "data" / "smoke-run"


def slices(timeline: Timeline) -> Iterator[Slice]:
    return (item for track in timeline.tracks() for item in track.slices)


def ends_of_flows(timeline: Timeline) -> tuple[int, int]:
    """How many slices flows leave, and at how many they end."""
    drawn = list(slices(timeline))
    return (
        sum(any(point.phase is FlowPhase.BEGIN for point in item.flows) for item in drawn),
        sum(any(point.phase is FlowPhase.END for point in item.flows) for item in drawn),
    )


def counters(timeline: Timeline, name: str) -> list[list[tuple[int, float]]]:
    """The points of every counter of this name."""
    return [
        list(counter.points)
        for group in timeline.groups
        for counter in group.counters
        if counter.name == name
    ]


def values(timeline: Timeline, name: str) -> list[float]:
    return [value for points in counters(timeline, name) for _, value in points]


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory of 24 steps on 8 ranks, worked out by hand; rank 5 is late."""
    return write_run(tmp_path_factory.mktemp("run") / "a", rank_runner_ms={5: 30.0})


@pytest.fixture(params=[*CAPTURES, SMOKE_RUN, "generated"], ids=lambda it: getattr(it, "stem", it))
def path(request: pytest.FixtureRequest, generated: Path) -> Path:
    return generated if request.param == "generated" else Path(request.param)


@pytest.fixture
def measured(path: Path) -> Measured:
    return measure(load_recording([path]))


def test_every_view_of_a_recording_has_the_same_counts_and_figures(path: Path, measured: Measured) -> None:
    report, timeline = report_of(measured), timeline_of(measured)
    document = json.loads(render_json(report))
    check_pairs(document, timeline)
    check_in_flight(report, document, timeline)
    check_skews(document, timeline)
    check_lateness(document)
    if report.requests:
        check_samples_and_comparison(path, report, document)


def check_pairs(document: dict[str, Any], timeline: Timeline) -> None:
    pairs = document["lifecycle"]["pairs"]
    assert ends_of_flows(timeline) == (pairs, pairs)
    of_callables = {
        entry["callable"]: entry["latency"]["n"]
        for entry in document["steps"]
        if entry["source"] == "submit_to_completion" and entry["scope"] == "all"
    }
    assert sum(of_callables.values()) == pairs


def check_in_flight(report: Report, document: dict[str, Any], timeline: Timeline) -> None:
    drawn = counters(timeline, "dispatches in flight")
    assert bool(drawn) == bool(report.lifecycle.pairs)
    assert all(points[-1][1] == 0 for points in drawn)
    if drawn:
        # One process submits in each of these recordings, and it submits decode steps alone.
        assert [max(value for _, value in points) for points in drawn] == [
            entry["most_in_flight"] for entry in document["pipelines"]
        ]


def check_skews(document: dict[str, Any], timeline: Timeline) -> None:
    for edge in ("start", "end"):
        figures = [
            entry[f"runner_{edge}_skew"]
            for entry in document["skew"]
            if entry["scope"] == "all" and not is_prefill(entry["callable"])
        ]
        drawn = values(timeline, f"runner-{edge} skew (ns)")
        # A point a round: as many as the report compares, and as large.
        assert len(drawn) == sum(entry["n"] for entry in figures)
        if drawn:
            # The timeline draws the rounds of all decode callables on one track.
            compared = [entry for entry in figures if entry["n"]]
            assert min(entry["min"] for entry in compared) == min(drawn)
            assert max(entry["max"] for entry in compared) == max(drawn)
            assert sum(entry["mean"] * entry["n"] for entry in compared) == pytest.approx(sum(drawn))
            if len(compared) == 1:
                assert compared[0]["p50"] == pytest.approx(median(drawn))


def check_lateness(document: dict[str, Any]) -> None:
    """The charts draw, round by round and rank by rank, what the figures of late ranks were made of."""
    figures = {entry["callable"]: entry for entry in document["skew"] if entry["scope"] == "all"}
    for grid in document["series"]["lateness"]:
        skew, edge = figures[grid["callable"]], grid["edge"]
        assert (grid["rounds"], grid["rounds_per_column"]) == (skew["rounds"], 1)
        cells = dict(zip(grid["ranks"], grid["after_median_ns"], strict=True))
        late = {
            (number, rank): cell
            for rank, row in cells.items()
            for number, cell in enumerate(row)
            if cell is not None and cell > grid["late_ns"]
        }
        events = skew["late_starts" if edge == "start" else "long_tails"]
        assert {(event["round"], event["rank"]): event["after_median_ns"] for event in events} == late
        last = dict.fromkeys(grid["ranks"], 0)
        for column in zip(*cells.values(), strict=True):
            if None not in column and sorted(column)[-1] > sorted(column)[-2]:
                last[grid["ranks"][column.index(max(column))]] += 1
        counts = skew[f"last_to_{edge}"]["counts"]
        assert {rank: counts[str(rank)] for rank in grid["ranks"]} == last


def check_samples_and_comparison(path: Path, report: Report, document: dict[str, Any]) -> None:
    names = ["lifecycle.pairs", "pipelines[0].most_in_flight", "skew[0].runner_end_skew.max"]
    samples = read_samples([path], names).metrics
    expected = {name: [value] for name, value in run_values(report, REGISTRY).items()}
    assert {name: samples[name] for name in REGISTRY} == expected
    assert [samples[name] for name in names] == [
        [document["lifecycle"]["pairs"]],
        [document["pipelines"][0]["most_in_flight"]],
        [document["skew"][0]["runner_end_skew"]["max"]],
    ]
    comparison = compare([str(path)], [str(path)])
    assert {entry.name for entry in comparison.metrics} >= {"tpot", "step_time", "ttft"}
    for change in comparison.metrics:
        if change.name in expected:
            assert change.a == change.b == expected[change.name], change.name


def test_a_generated_run_has_the_counts_that_it_was_written_with(generated: Path) -> None:
    measured = measure(load_recording([generated]))
    report, timeline = report_of(measured), timeline_of(measured)
    assert report.lifecycle.pairs == STEPS
    assert ends_of_flows(timeline) == (STEPS, STEPS)
    assert values(timeline, "dispatches in flight") == [1, 0] * STEPS
    # Rank 5 takes 10 ms longer than the others, in every round.
    assert values(timeline, "runner-end skew (ns)") == [10_000_000] * STEPS


def unidentified(*, wait_of_the_second_ns: int = 600) -> SpanTable:
    """Two dispatches in flight at once that nothing but their order tells apart."""
    table = Spans(Source.SERVING)
    for tid, name, start_ns, end_ns in [
        (1, "decode.worker_submit", 0, 10),
        (1, "decode.worker_submit", 100, 110),
        (2, "decode.worker_wait", 150, 400),
        (2, "decode.worker_wait", 410, wait_of_the_second_ns),
    ]:
        table.add(name, start_ns, end_ns, tid)
    return table.build()


def test_pairs_that_the_report_calls_ambiguous_are_not_drawn() -> None:
    measured = measure(recording_of(unidentified(), depth=1))
    report, timeline = report_of(measured), timeline_of(measured)
    # With one in flight at most, the second submit must wait for the first: their order proves nothing.
    assert report.lifecycle.pairs == 0
    assert [fault.kind for fault in report.lifecycle.faults] == ["ambiguous"]
    assert len(list(slices(timeline))) == 4
    assert ends_of_flows(timeline) == (0, 0)
    assert counters(timeline, "dispatches in flight") == []


def test_without_a_declared_depth_the_same_pairs_are_counted_and_drawn() -> None:
    measured = measure(recording_of(unidentified()))
    report, timeline = report_of(measured), timeline_of(measured)
    assert (report.lifecycle.pairs, report.pipelines[0].most_in_flight) == (2, 2)
    assert ends_of_flows(timeline) == (2, 2)
    assert counters(timeline, "dispatches in flight") == [[(10, 1), (110, 2), (400, 1), (600, 0)]]


def test_a_submit_that_waits_for_the_step_ahead_puts_nothing_in_flight() -> None:
    table = Spans(Source.SERVING)
    for dispatch, (submit_ns, returned_ns, completed_ns) in enumerate([(0, 10, 100), (20, 105, 200)], 1):
        table.add("decode.worker_submit", submit_ns, returned_ns, 1, dispatch_id=dispatch)
        table.add("decode.worker_wait", returned_ns, completed_ns, 2, dispatch_id=dispatch)
    measured = measure(recording_of(table.build(), depth=2))
    assert report_of(measured).pipelines[0].most_in_flight == 1
    drawn = counters(timeline_of(measured), "dispatches in flight")
    assert drawn == [[(10, 1), (100, 0), (105, 1), (200, 0)]]


def test_a_submit_of_negative_duration_makes_an_id_of_two_submits_ambiguous_for_everybody() -> None:
    valid, invalid = (Spans(Source.SERVING) for _ in range(2))
    valid.add("decode.worker_submit", 0, 10, 1, dispatch_id=7)
    valid.add("decode.worker_wait", 20, 50, 2, dispatch_id=7)
    invalid.add("decode.worker_submit", 12, 8, 1, dispatch_id=7)
    measured = measure(recording_of(valid.build(), invalid=invalid.build()))
    report, timeline = report_of(measured), timeline_of(measured)
    assert (report.lifecycle.pairs, [fault.kind for fault in report.lifecycle.faults]) == (
        0,
        ["duplicate_submit"],
    )
    assert ends_of_flows(timeline) == (0, 0)


def apart(*skews_ns: int) -> SpanTable:
    """Rounds of two ranks whose runners start together and end so far apart."""
    table = Spans(Source.STRACE)
    for number, skew_ns in enumerate(skews_ns, 1):
        for rank in (0, 1):
            at, end = 10_000 * number, 10_000 * number + 5_000 + rank * skew_ns
            ids: dict[str, Any] = {"pid": 10 + rank, "rank": rank, "invocation": number}
            table.add("chip.run.runner_run", at, end, **ids)
            table.add("chip.run", at, end, dispatch_id=number, **ids)
    return table.build()


@pytest.mark.parametrize(
    ("uncertainty_ns", "drawn"), [(0, [200, 300, 400]), (300, [200, 300, 400]), (301, [])]
)
def test_a_skew_that_the_report_withholds_is_not_drawn(uncertainty_ns: int, drawn: list[int]) -> None:
    # The median skew is 300: clocks that may be further apart than that tell nothing.
    clocks = ClockAlignment("clock anchors", uncertainty_ns=uncertainty_ns)
    measured = measure(recording_of(apart(200, 300, 400), clocks=clocks))
    [skew] = report_of(measured).skew
    assert skew.runner_end_skew.n == len(drawn)
    assert values(timeline_of(measured), "runner-end skew (ns)") == drawn


def test_a_part_of_a_recording_is_measured_and_drawn_alike(generated: Path) -> None:
    filters = Filters(steps=(4, 9))
    measured = measure(load_recording([generated]), AnalysisOptions(filters=filters))
    report, timeline = report_of(measured), timeline_of(measured)
    [rounds] = [entry.rounds for entry in report.skew if entry.scope == "all"]
    assert (report.lifecycle.pairs, rounds) == (5, 5)
    assert ends_of_flows(timeline) == (5, 5)
    assert len(values(timeline, "runner-end skew (ns)")) == 5
