"""Logs as they are delivered (90, 98, 99, 113): twice, wrapped by a container runtime, in parts, of unrelated clocks."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from analyzers.analysis import analyze, analyze_runs, judge
from analyzers.errors import UnusableInputError
from analyzers.recording.recording import LoadOptions, load_runs
from analyzers.report.model import Report
from tests.builders.places import CASES

TWICE = CASES / "90-strace-record-twice"
WRAPPED = CASES / "98-log-wrapped-by-a-runtime"
ROTATED = CASES / "99-rotated-log"
CLOCKS = CASES / "113-logs-of-two-clocks-without-anchors"
READY = "[chip_process pid=100 dev=0] ready\n[chip_process pid=101 dev=1] ready\n"
ANCHORS = "".join(
    f"[CLOCK_ANCHOR] v=1 pid={pid} mono_ns=900000000 wall_ns=1780000000000000000\n" for pid in (100, 101)
)


def plain_lines() -> list[str]:
    return (WRAPPED / "plain.log").read_text().splitlines()


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def codes(report: Report) -> set[str]:
    return {finding.code for finding in report.findings}


def assert_five_rounds(report: Report, repeats: int = 0) -> None:
    assert (report.records, report.parsed, report.lost, judge(report).exit_code) == (20, 20, 0, 0)
    [skew] = report.skew
    assert (skew.rounds, skew.incomplete, skew.matched_by) == (5, [], "dispatch_id")
    assert (skew.runner_start_skew.mean, skew.runner_start_skew.max) == (100_000, 100_000)
    assert report.ranks.ranks == [0, 1]
    assert sum(file.count("record_repeated") for file in report.inputs) == repeats
    assert "straggler" not in codes(report)


@pytest.mark.parametrize(("name", "repeats"), [("clean.log", 0), ("one-root-twice.log", 1)])
def test_90_a_record_that_is_there_twice_is_one(name: str, repeats: int) -> None:
    assert_five_rounds(analyze([TWICE / name]), repeats)


@pytest.mark.parametrize("row", range(4))
def test_90_any_record_may_be_repeated_at_any_place(row: int, tmp_path: Path) -> None:
    lines = plain_lines()
    assert_five_rounds(analyze([write(tmp_path / "a.log", "\n".join([*lines, lines[row]]) + "\n")]), 1)
    assert_five_rounds(analyze([write(tmp_path / "b.log", lines[row] + "\n".join(lines) + "\n")]), 1)


@pytest.mark.parametrize("head", ["", READY, ANCHORS, ANCHORS + READY])
def test_90_a_whole_log_may_be_delivered_twice(head: str, tmp_path: Path) -> None:
    text = head + "\n".join(plain_lines()) + "\n"
    report = analyze([write(tmp_path / "run.log", text * 2)])
    assert_five_rounds(report, 20)
    assert not {"rank_conflict", "shared_pids"} & codes(report)


def test_90_records_that_differ_in_a_digit_are_two(tmp_path: Path) -> None:
    lines = plain_lines()
    again = [lines[1].replace("run_id=1", "run_id=1 note=8"), lines[1].replace("run_id=1", "run_id=1 note=9")]
    report = analyze([write(tmp_path / "run.log", "\n".join([*lines[:1], *again, *lines[2:]]) + "\n")])
    assert (report.records, report.parsed) == (21, 21)


def docker(line: str) -> str:
    return json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-01-01T00:00:00Z"})


def docker_in_parts(line: str) -> str:
    parts = [{"log": line[:60], "stream": "stderr"}, {"log": "x\n", "stream": "stdout"}]
    return "\n".join(json.dumps(part) for part in [*parts, {"log": line[60:] + "\n", "stream": "stderr"}])


def message(line: str) -> str:
    return json.dumps({"level": "info", "message": line, "ts": 1.5})


def own_key(line: str) -> str:
    return json.dumps({"severity": "INFO", "textPayload": "stderr: " + line})


def cri(line: str) -> str:
    return f"2026-01-01T00:00:00.123456789Z stderr F {line}"


def cri_in_parts(line: str) -> str:
    time = "2026-01-01T00:00:00.123456789+02:00"
    return f"{time} stderr P {line[:70]}\n{time} stdout F other\n{time} stderr P {line[70:90]}\n{time} stderr F {line[90:]}"


WRAPPINGS = [docker, docker_in_parts, message, own_key, cri, cri_in_parts]


def test_98_the_log_of_a_container_is_that_of_its_processes() -> None:
    assert_five_rounds(analyze([WRAPPED / "plain.log"]))
    assert_five_rounds(analyze([WRAPPED / "docker.log"]))


@pytest.mark.parametrize("wrap", WRAPPINGS)
@pytest.mark.parametrize("packed", [False, True])
def test_98_wrapped_logs_give_the_figures_of_the_plain_one(
    wrap: Callable[[str], str], packed: bool, tmp_path: Path
) -> None:
    text = "\n".join(
        wrap(line) for line in ["starting", "[1/2] loading", *READY.split("\n")[:2], *plain_lines()]
    )
    path = tmp_path / "pod.log"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    report = analyze([path])
    assert_five_rounds(report)
    assert [device.logical_device for device in report.ranks.devices] == [0, 1]


@pytest.mark.parametrize("wrap", [docker, message])
def test_98_an_object_cut_off_loses_its_record_alone(wrap: Callable[[str], str], tmp_path: Path) -> None:
    text = "\n".join(map(wrap, plain_lines()))
    report = analyze([write(tmp_path / "pod.log", text[: text.rindex("dur=")])])
    assert (report.records, report.parsed, report.lost) == (20, 19, 1)


def test_98_text_deeper_inside_is_refused_by_name(tmp_path: Path) -> None:
    lines = [json.dumps({"body": {"text": line}}) for line in plain_lines()]
    with pytest.raises(UnusableInputError, match=r"each line is a JSON object .* deeper inside"):
        analyze([write(tmp_path / "pod.log", "\n".join(lines))])


def test_98_a_plain_log_may_quote_json(tmp_path: Path) -> None:
    lines = plain_lines()
    quoted = [lines[0], json.dumps({"log": "tokens\n"}), *lines[1:]]
    assert_five_rounds(analyze([write(tmp_path / "run.log", "\n".join(quoted) + "\n")]))


@pytest.mark.parametrize("names", [("server.log.1", "server.log"), ("server.log", "server.log.1")])
def test_99_parts_of_a_rotated_log_are_one(names: tuple[str, str]) -> None:
    report = analyze([ROTATED / name for name in names])
    assert_five_rounds(report)
    assert "shared_pids" not in codes(report)


@pytest.mark.parametrize("cuts", [(4,), (6, 8), (4, 9, 15), (1,), (11,)])
def test_99_a_log_may_be_rotated_anywhere_and_often(cuts: tuple[int, ...], tmp_path: Path) -> None:
    lines = plain_lines()
    bounds = [0, *cuts, len(lines)]
    paths = []
    for index in range(len(bounds) - 1):
        part = "\n".join(lines[bounds[index] : bounds[index + 1]]) + "\n"
        paths.append(tmp_path / f"server.log.{len(bounds) - index}.gz")
        paths[-1].write_bytes(gzip.compress(((READY if not index else "") + part).encode()))
    report = analyze(reversed(paths))
    assert_five_rounds(report)
    assert [device.logical_device for device in report.ranks.devices] == [0, 1]


def test_99_files_that_share_pids_and_do_not_go_on_are_processes_of_their_own(tmp_path: Path) -> None:
    text = (WRAPPED / "plain.log").read_text()
    other = text.replace("ts=100", "ts=101")
    report = analyze([write(tmp_path / "a.log", text), write(tmp_path / "b.log", other)])
    [finding] = [finding for finding in report.findings if finding.code == "shared_pids"]
    assert finding.severity == "warning"
    assert finding.title.startswith("4 processes assumed")


def test_113_two_logs_that_nothing_ties_are_not_aligned() -> None:
    report = analyze([CLOCKS / "rank0.log", CLOCKS / "rank1.log"])
    assert (report.clocks.method, report.clocks.comparable) == ("not aligned", False)
    [skew] = report.skew
    assert (skew.runner_start_skew.n, skew.runner_end_skew.n, skew.step_end_skew.n) == (0, 0, 0)
    assert (skew.root.n, skew.root.mean) == (2, 3_000_000)
    assert "--one-clock" in report.clocks.statement


def test_113_the_user_s_word_one_log_or_a_ready_line_is_evidence(tmp_path: Path) -> None:
    paths = [CLOCKS / "rank0.log", CLOCKS / "rank1.log"]
    both = "".join(path.read_text() for path in paths)
    tied = write(tmp_path / "b.log", "[chip_process pid=21 dev=0] ready\n" + paths[1].read_text())
    for report in (
        analyze_runs(load_runs(paths, LoadOptions(one_clock=True))),
        analyze([write(tmp_path / "a.log", both)]),
        analyze([paths[0], tied]),
    ):
        assert report.clocks.method == "one host clock"
        assert report.skew[0].runner_start_skew.max == 17_000_000_000


def test_two_roots_of_one_identity_are_in_no_figure(tmp_path: Path) -> None:
    lines = (CASES / "90-strace-record-twice" / "clean.log").read_text().splitlines()
    root = next(line for line in lines if "pid=100 " in line and "inv=3 " in line and "depth=0" in line)
    path = tmp_path / "run.log"
    path.write_text("\n".join([*lines, root.replace("dur=900000", "dur=900001")]) + "\n")
    report = analyze([path])
    [skew] = report.skew
    assert skew.matched_by == "dispatch_id"
    assert (skew.rounds, [entry.missing_ranks for entry in skew.incomplete]) == (5, [[0]])
    assert skew.runner_start_skew.n == 4
    [finding] = [finding for finding in report.findings if finding.code == "runs_contradict"]
    assert "2 runs" in finding.title
    assert judge(report, strict=True).exit_code == 4


def test_a_line_that_is_nested_without_end_is_no_wrapped_log(tmp_path: Path) -> None:
    path = tmp_path / "deep.log"
    path.write_text('{"log":' * 20_000 + "\n" + (CASES / "90-strace-record-twice" / "clean.log").read_text())
    assert analyze([path]).parsed == 20
