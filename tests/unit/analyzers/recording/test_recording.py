"""Run directories: which files are read, who names the ranks, and what each record counts as."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from analyzers.analysis import analyze, judge
from analyzers.errors import UnusableInputError
from analyzers.recording.recording import load_recording
from analyzers.rundir import RunDirectory
from analyzers.table.spans import Clock
from tests.builders import strace
from tests.builders.manifests import device_map, write_manifest
from tests.builders.strace import write_log

EVENT = '{"ph":"X","name":"%s","cat":"worker","pid":1,"tid":1,"ts":1,"dur":1}'


def record(pid: int, inv: int, name: str = "chip.run", start: int = 100) -> str:
    return strace.record(name, start, 50, pid=pid, inv=inv)


def test_the_merged_trace_is_read_and_not_its_fragments(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    write_log(run.serving_trace, '{"traceEvents":[' + EVENT % "merged" + "]}")
    write_log(run.fragments / "trace.1.jsonl", EVENT % "fragment")
    recording = load_recording([tmp_path])
    assert list(recording.spans.iter_names()) == ["merged"]
    assert recording.spans.clock.tolist() == [Clock.HOST]


def test_fragments_are_read_when_nothing_was_merged(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    write_log(run.serving_trace, '{"traceEvents":[]}')
    write_log(run.fragments / "trace.1.jsonl", EVENT % "one", EVENT % "two")
    write_log(run.fragments / "trace.2.jsonl", EVENT % "three")
    assert list(load_recording([tmp_path]).spans.iter_names()) == ["one", "two", "three"]


def test_the_profiler_s_own_directory_is_readable(tmp_path: Path) -> None:
    write_log(tmp_path / "fragments" / "trace.1.jsonl", EVENT % "one")
    assert len(load_recording([tmp_path]).spans) == 1


def test_a_foreign_trace_has_a_clock_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    for name, category, clock in [
        ("matmul", "kernel", Clock.FILE),
        ("step", "gpu", Clock.FILE),
        ("decode.worker_submit", "kernel", Clock.HOST),
        ("scheduler.schedule", "scheduler", Clock.HOST),
    ]:
        event = (EVENT % name).replace('"cat":"worker"', f'"cat":"{category}"')
        path.write_bytes(gzip.compress(f"[{event}]".encode()))
        assert load_recording([path]).spans.clock.tolist() == [clock]


def test_ranks_come_from_the_names_of_their_logs(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    # Equal pids: every rank ran in a container of its own.
    for rank in (0, 10, 2):
        write_log(run.rank_log(rank), record(1, 1))
    recording = load_recording([tmp_path])
    assert recording.spans.rank.tolist() == [0, 2, 10]
    assert recording.ranks.bases == ["file name"]


def test_the_server_log_adds_only_what_no_rank_log_holds(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    write_log(run.rank_log(0), record(11, 1, "chip.run.runner_run"), record(11, 1))
    torn = record(11, 1).split(" dur=")[0]
    again, others = record(11, 1, "chip.run.runner_run"), (record(12, 1), record(9, 1, "node.submit"))
    write_log(run.server_log, again, torn, record(11, 2), *others)
    recording = load_recording([tmp_path])
    rows = [
        (recording.spans.name_of(row), recording.spans.lane_of(row).pid, int(recording.spans.rank[row]))
        for row in range(len(recording.spans))
    ]
    # pid 11 is rank 0 by its log, also for the record that only the server log holds.
    assert rows == [
        ("chip.run.runner_run", 11, 0),
        ("chip.run", 11, 0),
        ("chip.run", 11, 0),
        ("chip.run", 12, 1),
        ("node.submit", 9, -1),
    ]
    assert recording.lost == 0
    assert [(report.records, report.parsed) for report in recording.reports] == [(2, 2), (3, 3)]


def test_two_processes_that_claim_one_rank_are_a_conflict(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    write_log(log, strace.ready(11, 0), strace.ready(12, 0), record(11, 1), record(12, 1))
    [(rank, processes)] = load_recording([log]).ranks.conflicts
    assert rank == 0
    assert [pid for _, pid in processes] == [11, 12]


def test_a_rank_without_any_record_is_missing(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    write_manifest(run, status="interrupted", device_map=device_map(range(3)))
    for rank in (0, 2):
        write_log(run.rank_log(rank), record(10 + rank, 1), record(10 + rank, 2, start=200))
    report = analyze([tmp_path])
    titles = {finding.code: finding.title for finding in report.findings}
    assert titles["rank_missing"] == "no run of rank 1 was recorded"
    assert titles["run_status"] == "the run is interrupted: figures cover what was recorded until then"
    assert judge(report).exit_code == 0
    assert judge(report, strict=True).exit_code == 4


def test_a_round_lost_inside_is_invalid_and_one_cut_at_an_edge_is_not(tmp_path: Path) -> None:
    def verdict(missing: int) -> int:
        log = tmp_path / f"{missing}.log"
        lines = [
            record(pid, inv, start=100 * inv)
            for inv in range(1, 6)
            for pid in (11, 12)
            if (pid, inv) != (12, missing)
        ]
        write_log(log, strace.ready(11, 0), strace.ready(12, 1), *lines)
        report = analyze([log])
        [skew] = report.skew
        assert [(item.round, item.missing_ranks) for item in skew.incomplete] == [(missing - 1, [1])]
        assert skew.step_end_skew.n == 4
        return judge(report, strict=True).exit_code

    assert verdict(missing=3) == 4
    assert verdict(missing=5) == 0


def test_a_process_without_a_ready_line_takes_the_rank_left_over(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    write_log(log, strace.ready(12, 0), record(12, 1), record(11, 1))
    recording = load_recording([log])
    assert {pid: rank for (_, pid), rank in recording.ranks.ranks.items()} == {12: 0, 11: 1}
    assert recording.ranks.bases == ["ready lines", "pid order"]


@pytest.mark.parametrize("content", ["{}", '{"schema_version": 1, "device_map": 3, "timing": 4}', "[1, 2"])
def test_a_damaged_manifest_is_named(content: str, tmp_path: Path) -> None:
    write_log(tmp_path / "run.json", content)
    with pytest.raises(UnusableInputError, match="not a manifest"):
        load_recording([tmp_path])


def test_what_lies_beside_a_damaged_manifest_is_still_read(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    write_log(run.manifest, '{"schema_version": 1, "tool_v')
    write_log(run.rank_log(0), record(11, 1))
    report = analyze([tmp_path])
    assert [entry.roots for entry in report.skew] == [1]
    assert report.lost == 1
    assert "not a manifest" in next(f.evidence for f in report.findings if f.code == "lost_records")
    assert judge(report).exit_code == 4


def test_fragments_replace_a_damaged_merged_trace(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    write_log(run.serving_trace, "no trace at all")
    with pytest.raises(UnusableInputError, match="not a trace"):
        load_recording([tmp_path])
    write_log(run.fragments / "trace.1.jsonl", EVENT % "fragment")
    recording = load_recording([tmp_path])
    assert list(recording.spans.iter_names()) == ["fragment"]
    assert recording.lost == 0


def test_a_manifest_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    write_manifest(RunDirectory(tmp_path), schema_version=99)
    write_log(tmp_path / "server.log", record(11, 1))
    with pytest.raises(UnusableInputError, match="schema version 99 is newer"):
        load_recording([tmp_path])


def test_a_directory_of_something_else_says_what_was_looked_for(tmp_path: Path) -> None:
    write_log(tmp_path / "notes.txt", "hello")
    with pytest.raises(UnusableInputError, match=r"none of run\.json, sa_profile/"):
        load_recording([tmp_path])


def test_a_path_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    write_log(tmp_path / "server.log", record(1, 1))
    with pytest.raises(UnusableInputError, match="named twice: its records would count twice"):
        load_recording([tmp_path / "server.log", tmp_path / "server.log"])
