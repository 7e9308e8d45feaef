"""Further kinds of what goes in and out of the command line: other names of inputs, other commands, closed outputs."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.builders.places import CASES, SMOKE_RUN
from tests.cases.test_command_line_faults import FULL, OVERWRITTEN, PIPE, PROGRAM, READER, code, invoke, shell

GATE = ("gate", "check", FULL / "head.json", "--baseline", FULL / "base.json")


def test_88_the_report_of_a_chosen_benchmark_is_an_input(tmp_path: Path) -> None:
    report = tmp_path / "sweep.json"
    shutil.copy(CASES / "95-guidellm-sweep" / "sweep.json", report)
    before = report.read_bytes()
    refused = invoke("analyze", f"{report}#1", "--out", report)
    assert code(refused) == 2
    assert "that is an input" in str(refused.exception)
    assert report.read_bytes() == before


@pytest.mark.parametrize("output", ["--out", "--markdown", "--junit"])
def test_88_what_says_how_a_gate_judges_is_an_input(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    default, profile = tmp_path / "dsv4bench.toml", tmp_path / "mine.toml"
    for file in (default, profile):
        file.write_text("[gate]\n")
    assert code(invoke(*GATE, output, "./dsv4bench.toml")) == 2
    assert code(invoke(*GATE, "--profile", "mine.toml", output, "mine.toml")) == 2
    if output != "--out":
        sides = ("gate", "run", "mine.toml", "--base", ".", "--head", ".")
        refused = invoke(*sides, output, "mine.toml")
        assert "that is an input" in str(refused.exception)
    assert default.read_text() == profile.read_text() == "[gate]\n"


def test_88_no_partial_file_takes_the_place_of_an_input(tmp_path: Path) -> None:
    content = (OVERWRITTEN / "trace.json").read_bytes()
    for name, options in (("out.json", ("swimlane", "-o")), ("out.parquet", ("analyze", "--export-parquet"))):
        recording = tmp_path / f"{name}.partial"
        recording.write_bytes(content)
        command, option = options
        assert code(invoke(command, recording, option, tmp_path / name)) == 0
        assert recording.read_bytes() == content
        assert (tmp_path / name).stat().st_size > 0
    assert len(list(tmp_path.iterdir())) == 4


def test_88_only_a_regular_file_is_replaced(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(SMOKE_RUN, run)
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    for command in (("analyze", run, "--export-parquet", run), ("swimlane", run, "-o", pipe)):
        refused = invoke(*command)
        assert code(refused) == 2
        assert "no regular file" in str(refused.exception)
    assert pipe.is_fifo()
    assert (run / "run.json").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pipe.json", "run"]


@pytest.mark.medium
@pytest.mark.parametrize(
    "arguments",
    [
        f"<(cat {FULL / 'head.json'}) --baseline {FULL / 'base.json'}",
        f"{FULL / 'head.json'} --baseline <(cat {FULL / 'base.json'})",
        f"<(cat {PIPE / 'trace.json'}) --limit tpot=60",
    ],
)
def test_89_a_gate_refuses_a_pipe(arguments: str) -> None:
    told = shell(f"{PROGRAM} gate check {arguments}")
    assert told.returncode == 2
    assert told.stdout == b""
    assert b"no regular file" in told.stderr
    assert told.stderr.count(b"\n") == 1


@pytest.mark.medium
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("output", "reason"), [("> /dev/full", b"No space left on device"), (">&-", b"Bad file descriptor")]
)
def test_91_no_library_swallows_that_nothing_can_be_written(
    output: str, reason: bytes, unbuffered: str, tmp_path: Path
) -> None:
    gate = f"gate check {FULL / 'head.json'} --baseline {FULL / 'base.json'}"
    swimlane = f"swimlane {FULL / 'trace.json'} -o {tmp_path / 'out.json'}"
    for command in ("profiles smoke", swimlane, gate, "analyze --help"):
        told = shell(f"{PROGRAM} {command} {output}", PYTHONUNBUFFERED=unbuffered)
        assert told.returncode == 2, command
        assert told.stderr == b"dsv4bench: standard output cannot be written: " + reason + b"\n"


@pytest.mark.medium
def test_91_who_writes_to_a_file_needs_no_standard_output(tmp_path: Path) -> None:
    out = tmp_path / "verdict.md"
    check = f"gate check {READER / 'head.json'} --baseline {READER / 'base.json'}"
    told = shell(f"{PROGRAM} {check} --format md --out {out} >&-")
    assert (told.returncode, told.stderr) == (0, b"")
    assert "PASS" in out.read_text()


def named(path: Path, name: bytes) -> str:
    """A path whose last name is no text, as Python has it."""
    return os.fsdecode(os.fsencode(path) + b"/" + name)


def test_92_samples_files_whose_name_is_no_text(tmp_path: Path) -> None:
    head, base = named(tmp_path, b"head-\xff.json"), named(tmp_path, b"base-\xfe.json")
    shutil.copy(FULL / "head.json", head)
    shutil.copy(FULL / "base.json", base)
    told = invoke("gate", "check", head, "--baseline", base, "--json", "--junit", tmp_path / "junit.xml")
    assert code(told) == 0
    assert json.loads(told.stdout)["exit_code"] == 0
    (tmp_path / "junit.xml").read_text(encoding="utf-8")
    shown = invoke("gate", "baseline", "show", base, "--json")
    assert json.loads(shown.stdout)["source"].endswith("base-?.json")


def test_92_runs_whose_name_is_no_text(tmp_path: Path) -> None:
    run = named(tmp_path, b"run-\xff")
    shutil.copytree(SMOKE_RUN, run)
    compared = invoke("compare", run, SMOKE_RUN, "--format", "json")
    assert code(compared) == 0
    assert json.loads(compared.stdout)["a"]["runs"][0].endswith("run-?")
    saved = tmp_path / "saved.json"
    assert code(invoke("gate", "baseline", "save", saved, run)) == 0
    assert json.loads(saved.read_text(encoding="utf-8"))["runs"][0].endswith("run-?")
    assert code(invoke("analyze", run, "--export-parquet", named(tmp_path, b"\xff.parquet"))) == 0
    assert Path(named(tmp_path, b"\xff.parquet")).is_file()


def test_92_copies_of_a_directory_that_holds_a_name_that_is_no_text(tmp_path: Path) -> None:
    runs = [tmp_path / "a", tmp_path / "b"]
    for run in runs:
        (run / "strace").mkdir(parents=True)
        shutil.copy(SMOKE_RUN / "strace" / "rank-0.log", run / "strace")
        shutil.copy(SMOKE_RUN / "server.log", named(run, b"\xff.log"))
    told = invoke("gate", "check", *runs, "--limit", "tpot=60", "--json")
    [note] = [text for text in json.loads(told.stdout)["warnings"] if "counted once" in text]
    assert str(runs[1]) in note
