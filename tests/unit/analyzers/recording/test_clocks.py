"""Clocks of several hosts, by their anchors: one, aligned, or not comparable; and what that does to the figures.

Real time runs from 0 to 3 s. A host's monotonic clock shows real time plus `HOSTS[host]`; wall time is real time plus WALL.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.analysis import analyze, analyze_recording, analyze_runs
from analyzers.measurement import measure
from analyzers.readers.log_processes import ClockAnchor
from analyzers.recording.clocks import SAME_CLOCK_NS, ProcessClock, align_clocks
from analyzers.recording.recording import LoadOptions, load_recording, load_runs
from analyzers.report.model import Report
from analyzers.report.tables import report_tables
from analyzers.rundir import RunDirectory
from analyzers.swimlane import timeline_of
from analyzers.table.spans import Clock
from tests.builders.manifests import write_manifest
from tests.builders.strace import record

WALL = 1_780_000_000_000_000_000
MS = 1_000_000
SECOND = 1_000 * MS
HOSTS = (5_000 * SECOND, 77_000 * SECOND)
LATE = 2 * MS
"""Rank 1 does everything so much later."""


def anchor(pid: int, host: int, at_ns: int, error_ns: int = 0) -> str:
    return (
        f"[mono_ns={at_ns + host}][T0x1][TIMING] clock_anchor: [CLOCK_ANCHOR] v=1 pid={pid} "
        f"mono_ns={at_ns + host} wall_ns={WALL + at_ns + error_ns}"
    )


def runs(pid: int, host: int, late_ns: int = 0, first: int = 1) -> list[str]:
    lines = []
    for index in range(3):
        start = SECOND + index * 100 * MS + late_ns + host
        inv = first + index
        lines += [
            record("chip.run.runner_run", start + MS, 50 * MS, pid=pid, inv=inv),
            record("chip.run", start, 60 * MS, pid=pid, inv=inv, dispatch_id=inv),
        ]
    return lines


def write_ranks(tmp_path: Path, first: list[str], second: list[str]) -> list[Path]:
    paths = [tmp_path / "rank-0.log", tmp_path / "rank-1.log"]
    for path, lines in zip(paths, (first, second), strict=True):
        path.write_text("\n".join(lines) + "\n")
    return paths


def two_hosts(tmp_path: Path, *anchors: tuple[int, int]) -> list[Path]:
    """Ranks on two hosts, both pid 1; `anchors` are (real time, error) of those of rank 0."""
    first = [anchor(1, HOSTS[0], at_ns, error_ns) for at_ns, error_ns in anchors]
    second = [anchor(1, HOSTS[1], at_ns) for at_ns, _ in anchors]
    return write_ranks(tmp_path, [*first, *runs(1, HOSTS[0])], [*second, *runs(1, HOSTS[1], late_ns=LATE)])


def notes(report: Report) -> str:
    return "\n".join(note for table in report_tables(report) for note in table.notes)


def test_hosts_are_aligned_by_their_anchors_and_one_anchor_tells_no_uncertainty(tmp_path: Path) -> None:
    report = analyze(two_hosts(tmp_path, (0, 0)))
    clocks = report.clocks
    assert (clocks.method, clocks.uncertainty_ns, clocks.base_ns) == ("clock anchors", None, WALL - HOSTS[0])
    assert [host.shift_ns for host in clocks.hosts] == [0, HOSTS[0] - HOSTS[1]]
    [skew] = report.skew
    assert (skew.runner_start_skew.p50, skew.runner_end_skew.p50) == (LATE, LATE)
    assert "uncertainty unknown, single anchor (rank-0.log pid 1)" in notes(report)
    assert "uncalibrated" in skew.clocks
    assert skew.clocks in notes(report)
    # Rank 0's host keeps its clock.
    assert report.host_window_ns == (HOSTS[0] + SECOND, HOSTS[0] + SECOND + 260 * MS + LATE)


def test_anchors_that_disagree_tell_the_uncertainty_and_the_drift(tmp_path: Path) -> None:
    report = analyze(two_hosts(tmp_path, (0, 0), (2 * SECOND, 300_000)))
    assert (report.clocks.method, report.clocks.uncertainty_ns) == ("clock anchors", 300_000)
    first, second = report.clocks.hosts
    # 300 us in 2 s; the middle of both readings is what rank 0's clock is placed by.
    assert (first.anchors, first.disagreement_ns) == (2, 300_000)
    assert (second.anchors, second.disagreement_ns) == (2, 0)
    assert [host.drift_ppm for host in (first, second)] == pytest.approx([150, 0])
    [skew] = report.skew
    assert skew.runner_start_skew.p50 == LATE - 150_000
    assert skew.clocks == ""
    assert "uncertainty 300.000 us" in notes(report)


def test_skews_within_the_uncertainty_are_withheld(tmp_path: Path) -> None:
    report = analyze(two_hosts(tmp_path, (0, 0), (2 * SECOND, 30 * MS)))
    assert report.clocks.uncertainty_ns == 30 * MS
    [skew] = report.skew
    assert [skew.runner_start_skew.n, skew.runner_end_skew.n, skew.step_end_skew.n] == [0, 0, 0]
    assert (skew.late_starts, skew.last_to_end.counts, skew.last_to_end.test) == ([], {}, None)
    assert skew.runner_run.p50 == 50 * MS
    assert skew.clocks.startswith("withheld: runner-start skew, runner-end skew, step-end skew")


def test_hosts_without_anchors_are_not_compared(tmp_path: Path) -> None:
    paths = write_ranks(tmp_path, runs(1, HOSTS[0]), runs(1, HOSTS[1], late_ns=LATE))
    recording = load_recording(paths)
    assert recording.clocks.method == "not aligned"
    [skew] = analyze_recording(recording).skew
    assert (skew.rounds, skew.runner_start_skew.n, skew.root.n) == (3, 0, 6)
    drawn = timeline_of(measure(recording)).groups
    assert [group.name for group in drawn] == ["rank 0, clock not aligned", "rank 1, clock not aligned"]
    assert [counter.name for counter in drawn[0].counters] == []


@pytest.mark.parametrize("with_anchors", [True, False])
def test_one_host_s_clock_is_compared_as_it_is(tmp_path: Path, with_anchors: bool) -> None:
    host = HOSTS[0]
    first = [anchor(11, host, 0)] if with_anchors else []
    second = [anchor(12, host, 40 * MS, SAME_CLOCK_NS)] if with_anchors else []
    paths = write_ranks(tmp_path, first + runs(11, host), second + runs(12, host, late_ns=LATE))
    report = analyze_runs(load_runs(paths, LoadOptions(one_clock=not with_anchors)))
    assert (report.clocks.method, report.clocks.uncertainty_ns) == ("one host clock", 0)
    assert report.skew[0].runner_start_skew.p50 == LATE
    evidence = "2 anchors of 2 processes agree within 5.000 ms" if with_anchors else "as --one-clock says"
    assert evidence in notes(report)


def test_two_logs_whose_times_lie_close_are_not_on_one_clock_for_that(tmp_path: Path) -> None:
    paths = write_ranks(tmp_path, runs(11, HOSTS[0]), runs(12, HOSTS[0], late_ns=LATE))
    report = analyze(paths)
    assert report.clocks.method == "not aligned"
    assert (report.skew[0].runner_start_skew.n, report.skew[0].root.n) == (0, 6)
    assert "--one-clock" in notes(report)


def test_a_ready_line_of_a_process_in_another_log_ties_the_two(tmp_path: Path) -> None:
    paths = write_ranks(
        tmp_path,
        ["[chip_process pid=12 dev=1] ready", *runs(11, HOSTS[0])],
        runs(12, HOSTS[0], late_ns=LATE),
    )
    report = analyze(paths)
    assert report.clocks.method == "one host clock"
    assert report.skew[0].runner_start_skew.p50 == LATE


def test_a_wall_clock_that_is_set_does_not_part_the_processes_of_one_log(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    host = HOSTS[0]
    lines = [anchor(11, host, 0), anchor(12, host, 40 * MS, SECOND), "[chip_process pid=11 dev=0] ready"]
    lines += ["[chip_process pid=12 dev=1] ready", *runs(11, host), *runs(12, host, late_ns=LATE)]
    log.write_text("\n".join(lines) + "\n")
    report = analyze([log])
    assert report.clocks.method == "one host clock"
    assert "the wall clock was set meanwhile" in report.clocks.evidence
    assert report.skew[0].runner_start_skew.p50 == LATE


def test_the_serving_trace_keeps_its_clock_and_the_logs_of_other_hosts_are_moved_to_it(
    tmp_path: Path,
) -> None:
    run = RunDirectory(tmp_path)
    run.strace.mkdir()
    write_ranks(
        run.strace,
        [anchor(1, HOSTS[0], 0), *runs(1, HOSTS[0])],
        [anchor(1, HOSTS[1], 0), *runs(1, HOSTS[1], late_ns=LATE)],
    )
    run.sa_profile.mkdir()
    at_us = (SECOND + HOSTS[1]) // 1000
    event = f'{{"ph":"X","name":"scheduler.schedule","cat":"scheduler","pid":1,"tid":1,"ts":{at_us},"dur":1}}'
    run.serving_trace.write_text('{"traceEvents":[\n' + event + "\n]}")
    # The launcher is on rank 1's host.
    write_manifest(run, clocks={"monotonic_ns": HOSTS[1], "wall_ns": WALL + 1_000})
    recording = load_recording([tmp_path])
    clocks = recording.clocks
    assert (clocks.method, clocks.base_ns) == ("clock anchors", WALL - HOSTS[1] + 500)
    serving = recording.spans.named("scheduler.schedule")
    assert recording.spans.start_ns[serving].tolist() == [at_us * 1000]
    roots = recording.spans.named("chip.run") & (recording.spans.rank == 0)
    # The middle of two anchors that differ by 1 us is 500 ns from each.
    assert int(recording.spans.start_ns[roots].min()) == SECOND + HOSTS[1] - 500


def test_a_serving_trace_that_nothing_ties_to_the_logs_stays_on_its_own_clock(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text(
        '{"traceEvents":[{"ph":"X","name":"scheduler.schedule","cat":"scheduler","pid":9,"tid":1,"ts":5,"dur":1}]}'
    )
    log = tmp_path / "server.log"
    log.write_text("\n".join([*runs(11, HOSTS[0]), *runs(12, HOSTS[0], late_ns=LATE)]) + "\n")
    recording = load_recording([trace, log])
    assert recording.clocks.method == "one host clock"
    assert "trace.json pid 9 lies apart" in recording.clocks.evidence
    assert set(recording.spans.clock[recording.spans.named("scheduler.schedule")].tolist()) == {Clock.FILE}


def test_a_difference_of_two_hosts_has_the_errors_of_both() -> None:
    processes = [
        ProcessClock(
            (f"{name}.log", 1),
            tuple(ClockAnchor(1, at_ns, at_ns + offset) for at_ns, offset in anchors),
            (0, SECOND),
        )
        for name, anchors in {
            "a": [(0, 0), (1, 40)],
            "b": [(0, 10 * SECOND), (1, 10 * SECOND + 7)],
            "c": [(0, 20 * SECOND), (1, 20 * SECOND + 100)],
        }.items()
    ]
    aligned = align_clocks(processes)
    assert aligned.alignment.uncertainty_ns == 140
    # From the middle of a's anchors (20) to the middle of the others' (rounded down).
    assert aligned.shifts == {("b.log", 1): 10 * SECOND + 3 - 20, ("c.log", 1): 20 * SECOND + 50 - 20}
