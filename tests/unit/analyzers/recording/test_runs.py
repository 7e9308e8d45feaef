"""Several runs given at once: said so, and kept apart; what is of one run stays one recording."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from analyzers.analysis import analyze, judge
from analyzers.errors import UnusableInputError
from analyzers.measurement import AnalysisOptions
from analyzers.recording.filters import FilterError, Filters
from analyzers.recording.recording import load_recording, load_runs
from analyzers.report.html import render_html
from analyzers.report.json import render_json
from analyzers.report.model import Report
from analyzers.report.tables import report_tables
from analyzers.rundir import RunDirectory
from dsv4bench.cli import app
from tests.builders.comparable_runs import DECODE, RANKS, STEPS, write_run

MS = 1_000_000


def without_manifest(run: Path) -> Path:
    RunDirectory(run).manifest.unlink()
    return run


def joined(report: Report) -> list[str]:
    """The findings that several runs were joined, as title and evidence."""
    return [f"{f.title}; {f.evidence}" for f in report.findings if f.code == "runs_joined"]


def serving(path: Path, start_ms: int, steps: int = 4, wait_ms: int = 8) -> Path:
    """A trace of decode steps with ids from 0, 10 ms apart."""
    events = [
        {
            "name": f"decode.{end}",
            "cat": "kernel",
            "ph": "X",
            "pid": 1,
            "tid": tid,
            "ts": (start_ms + 10 * step + after) * 1000,
            "dur": duration * 1000,
            "args": {"step_id": step, "dispatch_id": step},
        }
        for step in range(steps)
        for end, tid, after, duration in (("worker_submit", 1, 0, 1), ("worker_wait", 2, 1, wait_ms - 1))
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def rank_log(path: Path, pid: int, start_ms: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(
            f"[STRACE] v=1 pid={pid} tid={pid} inv={step + 1} hid=a depth=0 name=chip.run "
            f"ts={(start_ms + 10 * step) * MS} dur={MS} dispatch_id={step}\n"
            for step in range(4)
        )
    )
    return path


@pytest.mark.parametrize("has_manifest", [True, False])
def test_every_run_of_a_report_is_measured_as_if_it_were_alone(has_manifest: bool, tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", runner_ms=30.0, rank_runner_ms={3: 45.0})]
    if not has_manifest:
        runs = [without_manifest(run) for run in runs]
    report = analyze(runs)
    assert [run.name for run in report.runs] == [str(run) for run in runs]
    assert [run.report for run in report.runs] == [analyze([run]) for run in runs]
    # Rank 0 of one run is not rank 0 of the other, and their rounds are not matched: 24 of 8 ranks each.
    for run in report.runs:
        skew = next(entry for entry in run.report.skew if entry.scope == "all")
        assert (skew.ranks, skew.rounds, skew.incomplete) == (list(range(RANKS)), STEPS, [])
        assert run.report.lifecycle.pairs == STEPS
        assert run.report.lifecycle.declared_depth == (1 if has_manifest else None)
    why = "have a run.json" if has_manifest else "submit dispatch 1"
    [said] = joined(report)
    assert said.startswith(f"2 runs in one report: {runs[0]}, {runs[1]}; both {why}; ")
    assert report.lifecycle.pairs == 2 * STEPS
    assert report.lost == 0
    assert (report.run, report.lifecycle.declared_depth, report.skew, report.steps) == (None, None, [], [])


def test_two_servers_traces_count_their_steps_each_for_itself(tmp_path: Path) -> None:
    paths = [serving(tmp_path / "one.json", 0), serving(tmp_path / "two.json", 5, steps=3, wait_ms=9)]
    report = analyze(paths)
    assert [run.report.lifecycle.pairs for run in report.runs] == [4, 3]
    latencies = [
        next(entry.latency.mean for entry in run.report.steps if entry.scope == "all") for run in report.runs
    ]
    assert latencies == [8 * MS, 9 * MS]
    assert "both submit dispatch 0" in joined(report)[0]


def test_a_submission_of_one_run_is_no_match_for_the_wait_of_another(tmp_path: Path) -> None:
    one, two = serving(tmp_path / "a" / "trace.json", 0), serving(tmp_path / "b" / "trace.json", 500, steps=5)
    # The first lost the wait of step 3, the second the submission: by id they would be one step of half a second.
    for path, name in ((one, "decode.worker_wait"), (two, "decode.worker_submit")):
        document = json.loads(path.read_text())
        document["traceEvents"] = [
            event
            for event in document["traceEvents"]
            if (event["name"], event["args"]["step_id"]) != (name, 3)
        ]
        path.write_text(json.dumps(document))
    report = analyze([one.parent, two.parent])
    assert report.lifecycle.cross_process == []
    assert [run.report.lifecycle.pairs for run in report.runs] == [3, 4]


def test_a_log_of_another_run_is_no_part_of_a_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    other = write_run(tmp_path / "b", runner_ms=30.0)
    log = RunDirectory(other).rank_log(2)
    report = analyze([run, log])
    assert [entry.name for entry in report.runs] == [str(run), str(log)]
    assert report.runs[0].report == analyze([run])
    assert report.runs[1].report.ranks.ranks == [2]


def test_files_of_one_run_directory_are_one_run_of_several(tmp_path: Path) -> None:
    paths = []
    for name, runner_ms in (("a", 20.0), ("b", 30.0)):
        run = RunDirectory(write_run(tmp_path / name, runner_ms=runner_ms))
        paths += [run.serving_trace, run.requests, *(run.rank_log(rank) for rank in range(RANKS))]
    report = analyze(paths)
    assert [run.name for run in report.runs] == [str(tmp_path / "a"), str(tmp_path / "b")]
    for part, runner_ms in zip(report.runs, (20.0, 30.0), strict=True):
        [skew] = [entry for entry in part.report.skew if entry.scope == "all"]
        assert (skew.rounds, skew.runner_run.p50) == (STEPS, runner_ms * MS)
        assert [figures.requests for figures in part.report.requests] == [4]


def test_what_nothing_ties_to_one_of_several_runs_stands_alone(tmp_path: Path) -> None:
    paths = [serving(tmp_path / "one.json", 0), serving(tmp_path / "two.json", 7)]
    paths.append(rank_log(tmp_path / "rank-0.log", 9, 0))
    report = analyze(paths)
    assert [run.name for run in report.runs] == list(map(str, paths))


def test_logs_of_the_ranks_of_two_hosts_are_one_run(tmp_path: Path) -> None:
    rank_log(tmp_path / "node0" / "rank-0.log", 7, 0)
    rank_log(tmp_path / "node1" / "rank-1.log", 7, 0)
    report = analyze([tmp_path / "node0", tmp_path / "node1"])
    assert report.runs == []
    [skew] = report.skew
    assert (skew.ranks, skew.rounds) == ([0, 1], 4)
    assert joined(report) == []


def test_logs_of_one_rank_in_two_directories_are_two_runs(tmp_path: Path) -> None:
    paths = [rank_log(tmp_path / name / "rank-0.log", pid, 0) for name, pid in (("a", 7), ("b", 8))]
    report = analyze([path.parent for path in paths])
    assert [entry.report.ranks.ranks for entry in report.runs] == [[0], [0]]
    assert "both have a log of rank 0" in joined(report)[0]
    assert [finding.code for finding in report.findings if finding.severity == "error"] == []


def test_a_serving_trace_and_the_logs_of_its_ranks_are_one_run(tmp_path: Path) -> None:
    paths = [serving(tmp_path / "x" / "trace.json", 0), rank_log(tmp_path / "y" / "rank-0.log", 9, 2)]
    report = analyze(paths)
    assert report.runs == []
    assert [entry.callable for entry in report.skew if entry.scope == "all"] == ["decode"]


def test_findings_name_the_run_that_they_are_of(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", rank_runner_ms={5: 40.0})]
    report = analyze(runs)
    [straggler] = [finding for finding in report.findings if finding.code == "straggler"]
    assert straggler.title.startswith(f"{runs[1]}: {DECODE}: rank 5 ")
    assert [finding.code for finding in report.runs[0].report.findings if finding.code == "straggler"] == []


def test_a_filter_must_be_answered_by_every_run(tmp_path: Path) -> None:
    paths = [serving(tmp_path / "one.json", 0), serving(tmp_path / "two.json", 7)]
    part = analyze(paths, AnalysisOptions(filters=Filters(steps=(1, 3))))
    assert [run.report.lifecycle.pairs for run in part.runs] == [2, 2]
    with pytest.raises(FilterError, match=r"one\.json: --ranks 5: no such rank"):
        analyze(paths, AnalysisOptions(filters=Filters(ranks=frozenset({5}))))


def test_one_run_in_which_every_request_failed_fails_the_report(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", runner_ms=30.0)]
    requests = RunDirectory(runs[1]).requests
    records = [json.loads(line) for line in requests.read_text().splitlines()]
    requests.write_text("".join(json.dumps({**record, "error": "gone"}) + "\n" for record in records))
    verdict = judge(analyze(runs))
    assert (verdict.exit_code, verdict.reason) == (1, "failed=4 of 4: every request failed")


def test_every_rendering_keeps_the_runs_apart(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", runner_ms=30.0)]
    report = analyze(runs)
    titles = [table.title for table in report_tables(report)]
    assert titles == [f"{run}: {table.title}" for run in runs for table in report_tables(analyze([run]))]
    ids = re.findall(r' id="([^"]+)"', render_html(report, "Analysis"))
    assert len(ids) == len(set(ids)) > 2 * 5
    document = json.loads(render_json(report))
    assert [run["report"]["lifecycle"]["pairs"] for run in document["runs"]] == [STEPS, STEPS]
    # A report of one run is as it always was.
    assert "runs" not in json.loads(render_json(analyze(runs[:1])))


def test_what_shows_one_run_refuses_several_and_names_them(tmp_path: Path) -> None:
    paths = [serving(tmp_path / "one.json", 0), serving(tmp_path / "two.json", 7)]
    with pytest.raises(UnusableInputError, match=r"one\.json, .*two\.json: 2 runs \(both submit dispatch 0"):
        load_recording(paths)
    assert len(load_runs(paths).recordings) == 2
    for arguments in (
        ["swimlane", *map(str, paths), "-o", str(tmp_path / "out.json")],
        ["analyze", *map(str, paths), "--export-parquet", str(tmp_path / "out.parquet")],
    ):
        result = CliRunner().invoke(app, arguments)
        assert isinstance(result.exception, UnusableInputError)
        assert not list(tmp_path.glob("out.*"))
    result = CliRunner().invoke(app, ["analyze", *map(str, paths)])
    assert result.exit_code == 0
    assert "2 runs in one report" in result.stdout


def test_two_manifests_without_their_directories_are_refused(tmp_path: Path) -> None:
    for name, requests in (("a", 4), ("b", 5)):
        run = write_run(tmp_path / name, settings={"load": {"requests": requests}})
        RunDirectory(run).manifest.rename(tmp_path / f"{name}.json")
    with pytest.raises(UnusableInputError, match="a second run"):
        load_runs([tmp_path / "a.json", tmp_path / "b.json"])
