"""What charts draw is what was recorded: bounded, in order, and the same numbers as in the tables."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import pytest

from analyzers.analysis import analyze
from analyzers.charts.series import MAX_CELLS, MAX_POINTS, MAX_REQUESTS
from analyzers.charts.step_windows import STEPS_SHOWN
from analyzers.report.model import Report
from tests.builders.chrome import dispatch, event, write_trace
from tests.builders.places import TRACES
from tests.builders.requests import request, write_requests
from tests.builders.strace import record

CAPTURE = TRACES / "simpler-l3_n4_slow_rank2.log"
DECODE = "deepseek_v4_decode"


def step_trace(path: Path, steps: int, slowest: int | None = None) -> Path:
    """Two in flight: step i is submitted at i ms and completes at i + 1.5 ms; the slowest one 0.25 ms later."""
    events = []
    for step in range(steps):
        start, late = 1_000_000 + 1000 * step, 250 if step == slowest else 0
        submit, wait = (start, start + 200), (start + 1200, start + 1500 + late)
        events.append(
            event("WorkerProcess.prepare_decode", start - 400, 300, tid=2, category="worker", step_id=step)
        )
        events += dispatch(submit, wait, program=DECODE, step_id=step)
    return write_trace(path, events)


@pytest.fixture(scope="module")
def capture() -> Report:
    return analyze([CAPTURE])


def runners_of_the_capture() -> list[dict[int, tuple[int, int]]]:
    """(start, end) of runner_run by pid, a dict a round: the capture gives every round of a rank one inv after another."""
    records = re.findall(
        r"\[STRACE\] v=1 pid=(\d+) tid=\d+ inv=(\d+) \S+ depth=\d+ name=chip\.run\.runner_run ts=(\d+) dur=(\d+)",
        CAPTURE.read_text(errors="replace"),
    )
    rounds: dict[int, dict[int, tuple[int, int]]] = {}
    for pid, inv, ts, dur in records:
        rounds.setdefault(int(inv), {})[int(pid)] = (int(ts), int(ts) + int(dur))
    return [rounds[inv] for inv in sorted(rounds)]


@pytest.mark.parametrize(("edge", "index"), [("start", 0), ("end", 1)])
def test_lateness_is_the_time_after_the_rounds_median(capture: Report, edge: str, index: int) -> None:
    [grid] = [grid for grid in capture.series.lateness if grid.edge == edge]
    assert (grid.ranks, grid.rounds, grid.rounds_per_column) == ([0, 1, 2, 3], 24, 1)
    expected = []
    for members in runners_of_the_capture():
        times = [times[index] for times in members.values()]
        expected.append(sorted(time - statistics.median(times) for time in times))
    drawn = [sorted(column) for column in zip(*grid.after_median_ns, strict=True)]
    assert drawn == expected


def test_the_distribution_of_runner_run_holds_every_value(capture: Report) -> None:
    [distribution] = [entry for entry in capture.series.distributions if entry.figure == "runner_run"]
    durations = sorted(end - start for members in runners_of_the_capture() for start, end in members.values())
    assert distribution.values_ns == durations
    assert distribution.summary == capture.skew[0].runner_run


def test_blocking_runs_have_a_distribution_of_their_own(tmp_path: Path) -> None:
    durations = [40, 10, 30, 20]
    events = [
        {"ph": "X", "name": name, "cat": "kernel", "ts": 100 * index, "dur": duration, "pid": 7, "tid": 3}
        for index, duration in enumerate(durations)
        for name in (DECODE, f"{DECODE}.worker_run")
    ]
    # A single run is no distribution.
    events.append(
        {"ph": "X", "name": "p.worker_run", "cat": "kernel", "ts": 900, "dur": 5, "pid": 7, "tid": 3}
    )
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    report = analyze([path])
    [distribution] = report.series.distributions
    assert (distribution.figure, distribution.source) == ("blocking_kernel_span", "serving trace")
    assert distribution.of == f"{DECODE}, all runs"
    assert distribution.values_ns == [10_000, 20_000, 30_000, 40_000]
    [figures] = [entry for entry in report.steps if entry.callable == DECODE]
    assert distribution.summary == figures.latency


def test_steps_that_were_submitted_have_no_distribution_as_blocking_runs(tmp_path: Path) -> None:
    report = analyze([step_trace(tmp_path / "trace.json", 5)])
    assert [entry.figure for entry in report.series.distributions] == ["submit_to_completion"]


def test_two_in_flight_are_drawn_on_two_rows_and_nothing_overlaps(tmp_path: Path) -> None:
    report = analyze([step_trace(tmp_path / "trace.json", 5)])
    [timeline] = report.series.timelines
    assert (timeline.callable, timeline.which, timeline.shown, timeline.of) == (DECODE, "all steps", 5, 5)
    assert timeline.duration_ns == 5_500_000
    lanes = {lane.kind: lane for lane in timeline.lanes}
    assert list(lanes) == ["prepare", "submit", "in flight", "wait"]
    flight = lanes["in flight"]
    assert flight.number == [0, 1, 2, 3, 4]
    assert flight.row == [0, 1, 0, 1, 0]
    assert flight.start_ns == [0, 1_000_000, 2_000_000, 3_000_000, 4_000_000]
    assert flight.end_ns == [1_500_000, 2_500_000, 3_500_000, 4_500_000, 5_500_000]
    # The first step was prepared before the timeline begins.
    assert lanes["prepare"].number == [1, 2, 3, 4]
    assert lanes["prepare"].start_ns[0] == 600_000


def test_long_recordings_show_their_first_slowest_and_last_steps(tmp_path: Path) -> None:
    report = analyze([step_trace(tmp_path / "trace.json", 100, slowest=70)])
    shown = [(timeline.which, timeline.first, timeline.shown) for timeline in report.series.timelines]
    assert shown == [
        ("first steps", 0, STEPS_SHOWN),
        ("around the slowest step", 70 - STEPS_SHOWN // 2, STEPS_SHOWN),
        ("last steps", 100 - STEPS_SHOWN, STEPS_SHOWN),
    ]


def test_many_steps_are_drawn_as_few_points_that_keep_the_extremes(tmp_path: Path) -> None:
    report = analyze([step_trace(tmp_path / "trace.json", 3 * MAX_POINTS + 1, slowest=300)])
    [series] = report.series.step_latency
    assert (series.steps, series.steps_per_point) == (769, 4)
    assert len(series.max_ns) == 193
    assert series.first_step[:3] == [0, 4, 8]
    assert [point for point, value in enumerate(series.max_ns) if value == 1_750_000] == [300 // 4]
    assert set(series.median_ns) == {1_500_000}
    [distribution] = report.series.distributions
    assert len(distribution.values_ns) == MAX_POINTS
    assert (distribution.values_ns[0], distribution.values_ns[-1]) == (1_500_000, 1_750_000)


def test_grids_are_bounded_whatever_the_number_of_ranks(tmp_path: Path) -> None:
    lines = []
    for inv in range(1, 301):
        for rank in range(64):
            late = 9_000_000 if (inv, rank) == (123, 5) else 0
            start = inv * 20_000_000
            lines += [
                record("chip.run.runner_run", start, 1_000_000 + late, pid=100 + rank, inv=inv),
                record("chip.run", start, 2_000_000 + late, pid=100 + rank, inv=inv),
            ]
    (tmp_path / "server.log").write_text("\n".join(lines))
    report = analyze([tmp_path / "server.log"])
    grid = report.series.lateness[1]
    cells = sum(map(len, grid.after_median_ns))
    assert (grid.edge, len(grid.ranks), grid.rounds, grid.rounds_per_column) == ("end", 64, 300, 3)
    assert cells == 6400 <= MAX_CELLS
    late_cells = [
        (row, column) for row in range(64) for column in range(100) if grid.after_median_ns[row][column]
    ]
    assert late_cells == [(5, 122 // 3)]


def test_only_the_longest_of_many_requests_are_listed(tmp_path: Path) -> None:
    records = [
        request(f"r{index}", [index + 500, index + 1_000 * (index + 1)], send_ns=index)
        for index in range(MAX_REQUESTS + 50)
    ]
    path = write_requests(tmp_path / "requests.jsonl", *records)
    columns = analyze([path]).series.requests
    assert columns is not None
    assert (columns.requests, len(columns.id)) == (MAX_REQUESTS + 50, MAX_REQUESTS)
    assert (columns.id[0], columns.id[-1]) == ("r50", f"r{MAX_REQUESTS + 49}")
    assert columns.e2e_ns[0] == 51_000
    assert columns.tpot_ns[0] == 51_000 - 500


def test_a_trace_of_another_tool_has_nothing_to_draw(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1}]')
    series = analyze([path]).series
    assert (series.step_latency, series.lateness, series.timelines, series.distributions) == ([], [], [], [])
    assert series.requests is None
