"""Faults of what goes in and out of the command line: pipes, full disks, odd names, widths, and outputs that are inputs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from dsv4bench.cli import app
from tests.builders.places import CASES, SMOKE_RUN

OVERWRITTEN = CASES / "88-output-is-the-input"
PIPE = CASES / "89-input-from-a-pipe"
FULL = CASES / "91-standard-output-full"
WIDTH = CASES / "93-columns-zero"
READER = CASES / "94-reader-closes-the-pipe"
PROGRAM = f"{sys.executable} -m dsv4bench"


def invoke(*arguments: object, **environment: str) -> Result:
    return CliRunner(env=environment).invoke(app, [str(argument) for argument in arguments])


def code(result: Result) -> int:
    return getattr(result.exception, "exit_code", result.exit_code)


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        capture_output=True,
        env={**os.environ, **environment},
        timeout=120,
        check=False,
    )


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    directory = tmp_path / "inputs"
    shutil.copytree(OVERWRITTEN, directory)
    (directory / "link.json").symlink_to("trace.json")
    os.link(directory / "trace.json", directory / "hard.json")
    (directory / "base-link.json").symlink_to("base.json")
    return directory


COMMANDS: list[Sequence[str]] = [
    ("analyze", "trace.json", "--out", "trace.json"),
    ("analyze", "trace.json", "--out", "link.json"),
    ("analyze", "link.json", "--out", "hard.json"),
    ("analyze", "trace.json", "--format", "json", "--out", "../inputs/trace.json"),
    ("analyze", "trace.json", "--export-parquet", "./trace.json"),
    ("analyze", "trace.json", "--sql", "select 1", "--out", "trace.json"),
    ("validate", "trace.json", "--out", "hard.json"),
    ("swimlane", "trace.json", "-o", "trace.json"),
    ("swimlane", "trace.json", "-o", "link.json"),
    ("gate", "check", "head.json", "--baseline", "base.json", "--junit", "base.json"),
    ("gate", "check", "head.json", "--baseline", "base.json", "--markdown", "base-link.json"),
    ("gate", "check", "head.json", "--baseline", "base.json", "--out", "head.json"),
    ("gate", "check", "h*.json", "--baseline", "base.json", "--out", "head.json"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_output_takes_the_place_of_an_input(
    command: Sequence[str], inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(inputs)
    before = {path.name: path.read_bytes() for path in inputs.iterdir()}
    refused = invoke(*command)
    assert code(refused) == 2
    assert "that is an input" in str(refused.exception)
    assert {path.name: path.read_bytes() for path in inputs.iterdir()} == before


def test_a_report_may_lie_beside_the_run_and_be_made_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(SMOKE_RUN, run)
    assert code(invoke("analyze", run, "--out", run / "report.md", "--format", "md")) == 0
    assert code(invoke("analyze", run, "--out", run / "report.md", "--format", "md")) == 0
    for name in ("requests.jsonl", "sa_profile/trace.json", "run.json"):
        content = (run / name).read_bytes()
        assert code(invoke("analyze", run, "--out", run / name)) == 2
        assert code(invoke("compare", run, run, "--out", run / name)) == 2
        assert (run / name).read_bytes() == content


def log_of(rounds: int) -> bytes:
    """Two ranks, four records a round."""
    lines, at = [], 10**9
    for index in range(1, rounds + 1):
        for rank in range(2):
            head = f"[STRACE] v=1 pid={100 + rank} tid={100 + rank} inv={index} hid=abc"
            runner = f"ts={at + 100 + rank * 50000} dur=500000"
            lines.append(f"{head} depth=1 name=chip.run.runner_run {runner}")
            lines.append(
                f"{head} depth=0 name=chip.run ts={at} dur=900000 run_id={index} dispatch_id={index}"
            )
        at += 10**6
    return "\n".join(lines).encode() + b"\n"


@pytest.mark.medium
@pytest.mark.parametrize(
    "through", ["<(cat {})", "/dev/stdin < <(cat {})", "<(gzip -c {})", "/dev/stdin < {}"]
)
@pytest.mark.parametrize("kind", ["trace", "log"])
def test_a_pipe_is_read_whole(kind: str, through: str, tmp_path: Path) -> None:
    path = tmp_path / "input"
    # More than a pipe and a first piece of the reader hold.
    path.write_bytes((PIPE / "trace.json").read_bytes() if kind == "trace" else log_of(6000))
    told = shell(f"{PROGRAM} analyze {through.format(path)} --format json")
    assert told.returncode == 0, told.stderr
    report, expected = json.loads(told.stdout), json.loads(invoke("analyze", path, "--format", "json").stdout)
    for key in ("records", "parsed", "lost", "spans", "steps", "skew"):
        assert report[key] == expected[key]
    assert report["records"] == (24_000 if kind == "log" else 10)


@pytest.mark.medium
@pytest.mark.parametrize(
    "command",
    [
        f"gate check {FULL / 'head.json'} --baseline {FULL / 'base.json'}",
        f"analyze {FULL / 'trace.json'}",
        f"analyze {FULL / 'trace.json'} --format json",
        "profiles",
        "--help",
    ],
)
def test_a_full_standard_output_is_an_error_of_its_own(command: str) -> None:
    told = shell(f"{PROGRAM} {command} > /dev/full")
    assert told.returncode == 2
    assert told.stderr == b"dsv4bench: standard output cannot be written: No space left on device\n"


@pytest.mark.medium
def test_the_exit_code_is_the_verdicts_though_the_reader_leaves() -> None:
    check = f"{PROGRAM} gate check {READER / 'head.json'} --baseline {READER / 'base.json'}"
    worse = f"{PROGRAM} gate check {READER / 'base.json'} {FULL / 'trace.json'}"
    for command, expected in (
        (f"{check} | head -1", 0),
        (f"{check} | grep -q PASS", 0),
        (f"{PROGRAM} analyze {SMOKE_RUN} --full | head -1", 0),
        (f"{PROGRAM} profiles | true", 0),
        (f"{PROGRAM} --help | true", 0),
        (f"{worse} | true", 2),
    ):
        told = shell(command)
        assert told.returncode == expected, (command, told.stderr)
        assert b"Traceback" not in told.stderr
        assert b"Exception" not in told.stderr


@pytest.mark.medium
def test_a_verdict_of_fail_stays_one_though_the_reader_leaves(tmp_path: Path) -> None:
    slow = tmp_path / "slow.json"
    document = json.loads((READER / "base.json").read_text())
    document["metrics"] = {
        name: [value * 2 for value in values] for name, values in document["metrics"].items()
    }
    slow.write_text(json.dumps(document))
    assert shell(f"{PROGRAM} gate check {slow} --baseline {READER / 'base.json'} | true").returncode == 1


@pytest.mark.parametrize("columns", ["0", "", "abc", "-3", "00", "999999999999"])
def test_a_width_that_is_none_is_the_default(columns: str) -> None:
    gate = ("gate", "check", WIDTH / "head.json", "--baseline", WIDTH / "base.json")
    for command in (gate, ("analyze", WIDTH / "trace.json")):
        told, usual = invoke(*command, COLUMNS=columns), invoke(*command, COLUMNS="80")
        assert told.exit_code == usual.exit_code
        assert told.stdout == usual.stdout
        assert told.stdout.strip()


@pytest.mark.medium
def test_a_file_name_that_is_no_text(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/run-\xff.json"
    Path(os.fsdecode(name)).write_bytes((OVERWRITTEN / "trace.json").read_bytes())
    path = "\"$(printf '" + str(tmp_path) + "/run-\\xff.json')\""
    out = tmp_path / "out"
    for options in (
        "", "--format json", "--format md", f"--format html --out {out}.html", f"--format json --out {out}.json",
        f"--export-parquet {out}.parquet", "--sql 'select distinct file from spans'",
        "--sql 'select distinct file from spans' --sql-format json",
        "--sql 'select distinct file from spans' --sql-format csv",
    ):  # fmt: skip
        told = shell(f"{PROGRAM} analyze {path} {options}")
        assert told.returncode == 0, (options, told.stderr)
        told.stdout.decode()
    json.loads((tmp_path / "out.json").read_text())
    told = shell(f"{PROGRAM} swimlane {path} -o {out}.pftrace && {PROGRAM} swimlane {path} -o {out}2.json")
    assert told.returncode == 0, told.stderr
    assert b"Traceback" not in shell(f"{PROGRAM} analyze {path}x").stderr
