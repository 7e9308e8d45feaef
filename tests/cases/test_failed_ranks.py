"""Captures in which a rank died or hung, in which engines follow each other, and in which ids are not shared."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from analyzers.analysis import analyze, judge
from analyzers.gate.check import check_runs
from analyzers.gate.model import GatePolicy
from analyzers.gate.policy import PolicyOptions, load_policy
from analyzers.measurement import measure
from analyzers.recording.recording import load_recording
from analyzers.report.model import Report
from tests.builders.places import TRACES
from tests.builders.strace import ready, record, write_log

KILLED = "simpler-n3_kill_dev527.log"
HUNG = "simpler-n2_hung1.log"
TWO_LIVES = "simpler-two_runs_in_one.log"
TWO_PROGRAMS = "pypto-n2_two_programs.log"
WITH_TRACE = "pypto-n2_with_sa"
WHOLE_STACK = "pypto-real_n2_20steps.log"


def milliseconds(values: Iterable[float]) -> list[float]:
    return [round(value / 1e6, 3) for value in values]


def failures(report: Report) -> list[tuple[str, int, str | None, list[int]]]:
    return [(entry.kind, entry.rank, entry.pid, entry.runs) for entry in report.failures]


def skews_of_rounds(name: str) -> tuple[list[float], list[float]]:
    """Runner-start and runner-end skew of every whole round, worked out of the runs themselves."""
    starts, ends = [], []
    for item in measure(load_recording([TRACES / name])).matching.rounds:
        if item.complete:
            runners = [run.phases["runner_run"] for run in item.runs.values()]
            starts.append(max(r.start_ns for r in runners) - min(r.start_ns for r in runners))
            ends.append(max(r.end_ns for r in runners) - min(r.end_ns for r in runners))
    return milliseconds(starts), milliseconds(ends)


def test_a_killed_rank_is_named_with_its_runs_and_keeps_its_number() -> None:
    report = analyze([TRACES / KILLED])
    assert (report.records, report.parsed, report.ranks.ranks) == (348, 348, [0, 1, 2])
    assert [(entry.rank, entry.logical_device) for entry in report.ranks.devices] == [(0, 5), (1, 2), (2, 7)]
    assert failures(report) == [("died", 1, "18006", [6, 7])]
    [finding] = [finding for finding in report.findings if finding.code == "rank_failed"]
    assert "outcome=2" in finding.evidence
    assert "signal=9" in finding.evidence
    assert "2 incomplete rounds" in finding.evidence
    assert not any("edge of the recording" in finding.evidence for finding in report.findings)
    assert judge(report).exit_code == 4
    assert skews_of_rounds(KILLED) == (
        [236.974, 15.358, 7.897, 3.395, 19.250],
        [282.627, 111.483, 87.871, 48.098, 115.689],
    )


def test_a_hung_rank_is_named_with_its_run() -> None:
    report = analyze([TRACES / HUNG])
    assert (report.records, report.parsed) == (171, 171)
    assert failures(report) == [("hung", 1, "4712", [5])]
    assert "run 6 was submitted and never dispatched" in report.failures[0].evidence
    [pipeline] = report.pipelines
    assert (pipeline.scheduled.overlapping, pipeline.scheduled.pairs) == (5, 5)
    [skew] = report.skew
    assert (skew.rounds, len(skew.incomplete)) == (5, 1)
    assert judge(report).exit_code == 4


def test_a_log_that_ends_while_a_rank_works_accuses_nobody(tmp_path: Path) -> None:
    text = re.sub("(?m)^.*timed out.*\n", "", (TRACES / HUNG).read_text())
    path = tmp_path / "cut.log"
    path.write_text(text)
    report = analyze([path])
    assert report.failures == []
    assert judge(report).exit_code == 0
    [finding] = [finding for finding in report.findings if finding.code == "incomplete_rounds"]
    assert "the recording ends before rank 1 completed what others did" in finding.evidence


POLL = "[l3] wait(timeout=0.0) RAISED builtins.TimeoutError: RunHandle.wait() timed out"


def test_a_poll_is_no_time_out_and_neither_is_one_before_the_run(tmp_path: Path) -> None:
    text = re.sub("(?m)^.*timed out.*\n", "", (TRACES / HUNG).read_text())
    for name, whole in (
        ("poll.log", text + POLL + "\n"),
        ("before.log", "wait 0 failed TimeoutError\n" + text),
    ):
        path = tmp_path / name
        path.write_text(whole)
        assert analyze([path]).failures == []
    path.write_text(text + "asyncio.TimeoutError\n")
    assert failures(analyze([path])) == [("hung", 1, "4712", [5])]


def test_a_completion_that_names_no_worker_accuses_nobody(tmp_path: Path) -> None:
    lines = two_ranks(outcome=0)
    torn = [
        line.partition(" worker_id=1")[0] if "name=node.complete" in line else line for line in lines[-1:]
    ]
    path = write_log(tmp_path / "server.log", *lines[:-1], *torn, "TimeoutError")
    assert analyze([path]).failures == []
    # Without that record nothing says that rank 1 completed its run.
    path = write_log(tmp_path / "server.log", *lines[:-1], "TimeoutError")
    assert failures(analyze([path])) == [("hung", 1, "101", [2])]


def test_two_ranks_that_died(tmp_path: Path) -> None:
    lines = [
        line.replace("outcome=0", "outcome=2") if "run_id=2" in line else line
        for line in two_ranks(outcome=2)
    ]
    report = analyze([write_log(tmp_path / "server.log", *lines)])
    assert failures(report) == [("died", 0, "100", [2]), ("died", 1, "101", [2])]


@pytest.mark.parametrize(("outcome", "kind"), [(1, "failed"), (2, "died"), (7, "failed")])
def test_the_outcome_of_a_completion_says_what_became_of_a_rank(
    outcome: int, kind: str, tmp_path: Path
) -> None:
    path = write_log(tmp_path / "server.log", *two_ranks(outcome=outcome))
    report = analyze([path])
    assert failures(report) == [(kind, 1, "101", [2])]
    assert judge(report).exit_code == 4


@pytest.mark.parametrize("outcome", [0, 3])
def test_success_and_what_was_skipped_are_no_failures(outcome: int, tmp_path: Path) -> None:
    report = analyze([write_log(tmp_path / "server.log", *two_ranks(outcome=outcome))])
    assert report.failures == []
    assert judge(report).exit_code == 0


def test_the_message_of_an_exit_is_evidence_by_itself(tmp_path: Path) -> None:
    message = "E: child process pid=101 exited before mailbox completion (exit code=1)"
    lines = [line for line in two_ranks(outcome=0) if "node." not in line]
    report = analyze([write_log(tmp_path / "server.log", *lines, message, message)])
    assert failures(report) == [("died", 1, "101", [])]
    assert "exit code=1" in report.failures[0].evidence


def two_ranks(*, outcome: int) -> list[str]:
    """Two runs on two ranks; the second of rank 1 has `outcome`."""
    lines = [ready(100, 0), ready(101, 1)]
    for run in (1, 2):
        at = run * 10_000
        lines.append(record("node.submit", at, 5, pid=9, inv=run, run_id=run))
        for worker in (0, 1):
            ended = outcome if (run, worker) == (2, 1) else 0
            lines += [
                record("node.dispatch", at + 10, 5, pid=9, inv=run, run_id=run, worker_id=worker),
                record("chip.run", at + 20 + worker, 100, pid=100 + worker, inv=run, hid="0"),
                record(
                    "node.complete", at + 200, 5, pid=9, inv=run, run_id=run, worker_id=worker, outcome=ended
                ),
            ]
    return lines


def test_two_engines_in_one_log_are_two_lives() -> None:
    report = analyze([TRACES / TWO_LIVES])
    assert report.ranks.lives == 2
    assert "several_lives" in [finding.code for finding in report.findings]
    flights = [(p.scheduled.overlapping, p.scheduled.pairs, p.most_in_flight) for p in report.pipelines]
    assert flights == [(4, 4, 2), (0, 3, 1)]
    figures = [(skew.rounds, skew.ranks, len(skew.incomplete)) for skew in report.skew]
    assert figures == [(5, [0, 1], 0), (4, [0, 1, 2], 0)]
    assert all(skew.runner_start_skew.max < 1_000_000_000 for skew in report.skew)


def test_rounds_are_named_by_the_hash_that_the_scheduler_knows() -> None:
    recording = load_recording([TRACES / TWO_PROGRAMS])
    rounds = measure(recording).matching.rounds
    names = [item.callable for item in rounds]
    assert len(rounds) == 11
    first, other = "hid fc088cf83eb5449b", "hid ce8bf737f871e333"
    assert names == [first, *[other] * 4, first, *[other] * 5]
    assert analyze([TRACES / TWO_PROGRAMS]).records == 398


def test_completion_is_the_schedulers_and_not_the_end_of_a_wait() -> None:
    report = analyze([TRACES / WITH_TRACE])
    [pipeline] = report.pipelines
    assert pipeline.callable == "deepseek_v4_decode"
    assert pipeline.state == "partly overlapped"
    assert (pipeline.scheduled.overlapping, pipeline.scheduled.pairs) == (15, 19)
    assert "15 of 19" in pipeline.statement
    figures = next(figures for figures in report.steps if figures.scope == "steady")
    # From the submit spans of the trace to the last node.complete of each run, worked out from the two files by hand.
    assert round(figures.completion.mean / 1e6, 3) == 516.630
    assert round(figures.completion.p50 / 1e6, 3) == 471.527
    # The driver waits late: by the ends of its waits all of them would overlap.
    assert (pipeline.in_flight.overlapping, pipeline.in_flight.pairs) == (19, 19)


def test_the_whole_stack() -> None:
    report = analyze([TRACES / WHOLE_STACK])
    assert (report.records, report.parsed) == (722, 722)
    [pipeline] = report.pipelines
    assert (pipeline.scheduled.overlapping, pipeline.scheduled.pairs) == (17, 19)
    [skew] = report.skew
    assert (skew.rounds, skew.roots) == (20, 40)
    start, end = skew.runner_start_skew, skew.runner_end_skew
    assert milliseconds([start.min, start.mean, start.max]) == [0.444, 7.091, 18.142]
    assert milliseconds([end.min, end.mean, end.max]) == [0.018, 21.271, 47.869]
    means = [skew.root.mean, skew.bind.mean, skew.runner_run.mean, skew.validate.mean]
    assert [round(mean) for mean in means] == [118_551_325, 40_642, 117_507_356, 5_037]


def test_rounds_are_joined_to_dispatches_by_their_times() -> None:
    recording = load_recording(upstream_files())
    measured = measure(recording)
    joined = {(join.callable, join.rounds) for join in measured.joins}
    assert joined == {
        ("deepseek_v4_decode_mtp_fused", 12),
        ("deepseek_v4_prefill", 1),
        ("deepseek_v4_mtp_prefill", 1),
    }
    assert all(join.is_joined and "round k of hid" in join.basis for join in measured.joins)
    steady = next(skew for skew in measured.skew if skew.scope == "steady")
    assert (steady.critical_rank.root.n, steady.critical_rank.root.mean) == (11, 29_500_000)
    assert (steady.runner_start_skew.min, steady.runner_start_skew.max) == (63_000, 63_000)
    assert steady.ranks == [0, 1, 2, 3, 4, 5, 6, 7]


def test_unequal_counts_are_not_joined(tmp_path: Path) -> None:
    trace, log = upstream_files()
    shutil.copy(trace, tmp_path / "trace.json")
    # The last decode round is gone.
    lines = [line for line in log.read_text().splitlines() if "inv=14 " not in line]
    (tmp_path / "server.log").write_text("\n".join(lines) + "\n")
    measured = measure(load_recording([tmp_path / "trace.json", tmp_path / "server.log"]))
    [refused] = [join for join in measured.joins if not join.is_joined]
    assert (refused.callable, refused.rounds) == ("hid d3", 11)
    assert "12 of deepseek_v4_decode_mtp_fused" in refused.basis


def upstream_files() -> tuple[Path, Path]:
    directory = TRACES.parent / "106-upstream-artifact-directory"
    return directory / "serving-trace" / "trace.json", directory / "server.log"


def test_no_gate_passes_on_a_recording_in_which_a_rank_failed() -> None:
    limit = load_policy(GatePolicy(), None, PolicyOptions(limits=["critical_rank=100000"]))
    result = check_runs([TRACES / KILLED], None, limit)
    assert result.verdict == "NO-DATA"
    assert "rank 1 (pid 18006) died" in result.headline
