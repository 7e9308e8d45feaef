"""Case 114: a rank of which only the head of a torn record is left keeps its number, and its rounds are incomplete."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.analysis import analyze, judge
from analyzers.report.model import Report
from tests.builders.places import CASES
from tests.builders.strace import ready, record, write_log

CASE = CASES / "114-the-only-record-of-a-rank-is-torn"


def root(pid: int, inv: int = 1, at: int = 1000) -> str:
    return record("chip.run", at, 900, pid=pid, inv=inv)


def torn(line: str) -> str:
    return line[: line.index(" hid=") + 7]


def devices(report: Report) -> list[tuple[int, int | None, list[str]]]:
    return [(entry.rank, entry.logical_device, entry.pids) for entry in report.ranks.devices]


@pytest.mark.parametrize(("name", "device"), [("run.log", 1), ("no-ready-lines.log", None)])
def test_case_114(name: str, device: int | None) -> None:
    report = analyze([CASE / name])
    assert (report.records, report.parsed, report.lost) == (3, 2, 1)
    assert judge(report).exit_code == 4
    assert [entry[0] for entry in devices(report)] == [0, 1, 2]
    assert devices(report)[1] == (1, device, ["32"])
    assert devices(report)[2][2] == ["33"]
    [skew] = report.skew
    assert skew.ranks == [0, 1, 2]
    assert [entry.missing_ranks for entry in skew.incomplete] == [[1]]
    assert (skew.step_end_skew.n, skew.by_rank[1].root.n, skew.by_rank[1].root.mean) == (0, 0, None)
    [finding] = [finding for finding in report.findings if finding.code == "rank_missing"]
    assert "rank 1 (pid 32)" in finding.title


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("with_ready", [True, False])
def test_the_others_keep_their_numbers_wherever_the_torn_one_is(
    place: int, with_ready: bool, tmp_path: Path
) -> None:
    pids = [31, 32, 33]
    lines = [ready(pid, 2 * index) for index, pid in enumerate(pids)] if with_ready else []
    lines += [torn(root(pid)) if index == place else root(pid) for index, pid in enumerate(pids)]
    report = analyze([write_log(tmp_path / "server.log", *lines)])
    assert [entry[2] for entry in devices(report)] == [["31"], ["32"], ["33"]]
    assert [entry.missing_ranks for entry in report.skew[0].incomplete] == [[place]]
    assert judge(report).exit_code == 4


def test_a_ready_rank_without_any_record_is_missed_too(tmp_path: Path) -> None:
    lines = [ready(31, 0), ready(32, 1), ready(33, 2), root(31), root(33)]
    report = analyze([write_log(tmp_path / "server.log", *lines)])
    assert report.ranks.ranks == [0, 1, 2]
    assert [entry.missing_ranks for entry in report.skew[0].incomplete] == [[1]]


def test_a_rank_that_lost_one_record_of_several_is_no_new_process(tmp_path: Path) -> None:
    lines = [root(pid, inv, 1000 * inv) for inv in (1, 2, 3) for pid in (31, 32)]
    lines[3] = torn(lines[3])
    report = analyze([write_log(tmp_path / "server.log", *lines)])
    assert report.ranks.ranks == [0, 1]
    assert [(entry.round, entry.missing_ranks) for entry in report.skew[0].incomplete] == [(1, [1])]


def test_a_pid_that_was_cut_within_its_digits_is_no_process(tmp_path: Path) -> None:
    cut = root(32).partition("pid=3")[0] + "pid=3"
    report = analyze([write_log(tmp_path / "server.log", root(31), cut + root(33))])
    assert report.ranks.ranks == [0, 1]
    assert report.lost == 1


def test_a_torn_record_of_the_scheduler_is_no_rank(tmp_path: Path) -> None:
    node = record("node.submit", 900, 10, pid=9, run_id=1)
    lines = [node, root(31), root(33), torn(record("node.complete", 2000, 10, pid=9, run_id=1))]
    assert analyze([write_log(tmp_path / "server.log", *lines)]).ranks.ranks == [0, 1]
