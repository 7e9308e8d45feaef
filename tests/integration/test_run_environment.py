"""`dsv4bench run` under upstream's variables, on real ranks."""

import json
from collections import defaultdict
from pathlib import Path

import pytest

from tests.integration.command import SMALL, manifest_of, measured_of, run

RUNNER = "chip.run.runner_run"
WALL = f"{RUNNER}.device_wall"
SHORT = [*SMALL, "--set", "load.output_tokens=8", "--set", "load.requests=4"]


def records_of(log: Path) -> dict[int, dict[str, dict[str, str]]]:
    """The records of one rank by invocation and name."""
    found: dict[int, dict[str, dict[str, str]]] = defaultdict(dict)
    for line in log.read_text().splitlines():
        if "[STRACE]" in line:
            fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
            found[int(fields["inv"])][fields["name"]] = fields
    return found


def test_every_variable_acts_and_an_override_outweighs_it(
    environment: dict[str, str], tmp_path: Path
) -> None:
    out, trace = tmp_path / "run", tmp_path / "traces" / "x.json"
    asked = {
        "SA_PROFILE_OUTPUT": str(trace),
        "SA_PROFILE_LEVEL": "E2E,,Kernel",
        "PYPTO_RUNTIME_LOG": "WARN",
        "SIMPLER_DEVICE_STRACE_ENABLE": "1",
    }
    # --set takes the log level back.
    done = run(environment | asked, "run", "gbs32-mtp1", *SHORT, "--set", "trace.strace=true", "--out", out)
    assert done.returncode == 0, done.stderr
    assert str(trace) in done.stdout
    assert trace.read_bytes() == (out / "sa_profile" / "trace.json").read_bytes()
    assert len(list((tmp_path / "traces" / "x.json.fragments").iterdir())) == 1
    manifest = manifest_of(out)
    assert {name: entry.source for name, entry in manifest.tracing.items()} == {
        "SA_PROFILE_OUTPUT": "environment",
        "SA_PROFILE_LEVEL": "environment",
        "PYPTO_RUNTIME_LOG": "--set",
        "SIMPLER_DEVICE_STRACE_ENABLE": "environment",
    }
    assert {name: manifest.environment[name] for name in asked} == asked

    decodes = 0
    for rank in range(4):
        for run_records in records_of(out / "strace" / f"rank-{rank}.log").values():
            wall, orch, sched = (run_records[name] for name in (WALL, f"{WALL}.orch", f"{WALL}.sched"))
            assert {entry["clk"] for entry in (wall, orch, sched)} == {"dev"}
            assert (wall["ts"], orch["ts"], sched["ts"]) == ("0", "0", orch["dur"])
            assert int(orch["dur"]) + int(sched["dur"]) <= int(wall["dur"])
            assert int(wall["dur"]) <= int(run_records[RUNNER]["dur"])
            decodes += 1
    report = json.loads((out / "report.json").read_bytes())
    assert report["run"]["tracing"]["SA_PROFILE_LEVEL"] == {"value": "e2e,kernel", "source": "environment"}
    everything = [figures for figures in report["skew"] if figures["scope"] == "all"]
    assert sum(figures["host_excess"]["n"] for figures in everything) == decodes


@pytest.mark.slow
def test_below_timing_level_ranks_are_ready_and_leave_no_records(
    environment: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    asked = {"PYPTO_RUNTIME_LOG": "warn", "SIMPLER_DEVICE_STRACE_ENABLE": "1", "SA_PROFILE_OUTPUT": "other"}
    done = run(
        environment | asked,
        *("run", "gbs32-mtp1", *SHORT, "--set", "trace.sa_profile=off", "--out", out),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    log = (out / "server.log").read_text()
    assert log.count("] ready") == 4
    assert "[STRACE]" not in log
    # Switched off by --set, serving spans are nowhere.
    assert not (out / "sa_profile").exists()
    assert not (tmp_path / "other").exists()
    assert len(measured_of(out)) == 4


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {"SA_PROFILE_LEVEL": "e2e,debug"},
            "SA_PROFILE_LEVEL: unknown trace level 'debug' in 'e2e,debug'; use a comma list of e2e, kernel, verbose",
        ),
        ({"SA_PROFILE_OUTPUT": "/proc/nowhere"}, "cannot write the serving trace to /proc/nowhere"),
        ({"SA_PROFILE_OUTPUT": "taken"}, "cannot write the serving trace to taken"),
        ({"SA_PROFILE_OUTPUT": "run/sa_profile"}, "lies in the run directory run"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_2_before_anything_starts(
    environment: dict[str, str], tmp_path: Path, variables: dict[str, str], message: str
) -> None:
    (tmp_path / "taken").write_text("mine")
    done = run(environment | variables, "run", "gbs32-mtp1", *SHORT, "--out", "run", cwd=tmp_path)
    assert done.returncode == 2
    [line] = [line for line in done.stderr.splitlines() if line.startswith("dsv4bench: ")]
    assert message in line
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
