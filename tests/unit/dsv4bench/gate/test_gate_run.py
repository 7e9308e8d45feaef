"""Interleaved runs with a fake command: order, stages, failures, interruption, and what is left on disk."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from analyzers.gate.model import GateResult, Samples
from dsv4bench.cli import app
from dsv4bench.gate.interleave import abba, keys_of
from tests.builders.places import BUILDERS

pytestmark = pytest.mark.medium

FAKE = f"cmd:{sys.executable} -I -S {BUILDERS / 'fake_run.py'}"


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["gate", *map(str, arguments)])


class Gate:
    """One gate of fake commands, through the command line."""

    def __init__(self, directory: Path) -> None:
        self.out = directory / "gate"
        self.log = directory / "order"
        self.stderr = ""

    def __call__(self, head: str = "", *options: str, base: str = "", runs: int = 5) -> GateResult:
        common = f"{FAKE} --log {self.log}"
        sides = ["--base", f"{common} {base}", "--head", f"{common} {head}"]
        done = invoke("run", *sides, "--json", "--runs", runs, "--out", self.out, *options)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        self.stderr = done.stderr
        result = msgspec.json.decode(done.stdout, type=GateResult)
        assert done.exit_code == result.exit_code
        return result

    @property
    def order(self) -> list[str]:
        return self.log.read_text().split()


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


def test_the_order_is_abba() -> None:
    assert list(abba(3)) == ["base", "head", "head", "base", "base", "head"]
    assert list(abba(0)) == []


def test_sides_that_are_alike_pass_after_one_stage_behind_a_warm_up_each(gate: Gate) -> None:
    result = gate()
    assert result.verdict == "PASS"
    assert result.method == "interleaved ABBA, 1 stage of 5 runs a side"
    counted = [f"{side}/run-{number:02}" for number in (1, 2, 3, 4, 5) for side in ("base", "head")]
    assert sorted(gate.order[2:]) == sorted(counted)
    assert gate.order[:6] == [
        *("base/warm-up", "head/warm-up"),
        *("base/run-01", "head/run-01", "head/run-02", "base/run-02"),
    ]
    assert "base warm-up (not counted): tpot 9.98 ms" in gate.stderr
    assert "2/10 head run 1: tpot 10.01 ms" in gate.stderr
    # Noise without chance: run i has 10 ms (1 + (3 i mod 5 - 2) / 1000).
    tpot = next(metric for metric in result.metrics if metric.name == "tpot")
    assert (tpot.base_runs, tpot.head_runs, tpot.base_median, tpot.ratio) == (5, 5, 10.0, 1.0)


def test_a_slower_head_fails_after_a_second_stage_and_what_is_left_can_be_judged_again(gate: Gate) -> None:
    result = gate("--tpot 11", runs=4)
    assert result.verdict == "FAIL"
    assert result.method == "interleaved ABBA, 2 stages of 4 runs a side"
    assert "undecided after 4 runs a side, 4 more follow: tpot is 10 % worse (" in gate.stderr
    assert gate.order.count("head/run-08") == 1
    assert len(gate.order) == 2 + 16
    assert result.causes == ["step time"]
    assert result.headline.startswith("tpot is 10 % worse (")
    # All of eight above all of eight, 1 of C(16, 8) = 12,870, times the three looks at which it may be said.
    assert "2 % allowed; p = 0.00023" in result.headline
    done = invoke("check", gate.out / "head.json", "--baseline", gate.out / "base.json", "--json")
    assert msgspec.json.decode(done.stdout, type=GateResult).verdict == "FAIL"
    samples = msgspec.json.decode((gate.out / "head.json").read_bytes(), type=Samples)
    assert samples.metrics["tpot"][:2] == [pytest.approx(11.011), pytest.approx(10.989)]
    assert samples.runs[0] == str(gate.out / "head" / "run-01")
    assert "fake run of head/run-01" in (gate.out / "head" / "run-01" / "command.log").read_text()


def test_a_faster_head_needs_no_second_stage(gate: Gate) -> None:
    assert gate("--tpot 9").verdict == "PASS"
    assert len(gate.order) == 2 + 10


def test_fewer_tokens_a_step_are_named_and_not_step_time(gate: Gate) -> None:
    result = gate("--tpot 20", base="--per-step 2", runs=4)
    assert result.verdict == "FAIL"
    assert result.causes == ["tokens per step"]


def test_a_failed_run_of_the_head_fails_the_gate_without_a_second_stage(gate: Gate) -> None:
    result = gate("--tpot 11 --fail-in run-02")
    assert result.verdict == "FAIL"
    assert result.headline == (
        "1 of 5 head runs failed: head run 2: exit code 1: the fake device is on fire "
        f"(see {gate.out / 'head' / 'run-02'})"
    )
    assert len(gate.order) == 2 + 10
    assert "the fake device is on fire" in (gate.out / "head" / "run-02" / "command.log").read_text()
    assert len(msgspec.json.decode((gate.out / "head.json").read_bytes(), type=Samples).runs) == 4


def test_three_failed_runs_of_the_head_end_the_gate(gate: Gate) -> None:
    result = gate("--fail-in run-01,run-02,run-03,run-04")
    assert result.verdict == "FAIL"
    assert result.headline.startswith("3 of 3 head runs failed: head run 1: exit code 1")
    assert gate.order[-1] == "head/run-03"


def test_a_failed_run_of_the_base_is_no_data_at_once(gate: Gate) -> None:
    result = gate(base="--fail-in run-02")
    assert result.verdict == "NO-DATA"
    assert result.exit_code == 3
    assert result.headline.startswith("there is no base to compare with: 1 of 2 base runs failed: base run 2")
    assert gate.order[-1] == "base/run-02"


@pytest.mark.parametrize(
    ("option", "verdict", "headline"),
    [
        (
            "--fail-in warm-up",
            "FAIL",
            "head does not run: head warm-up: exit code 1: the fake device is on fire",
        ),
        ("--empty", "FAIL", "head does not run: head warm-up: left no run directory in "),
    ],
)
def test_a_head_that_does_not_run_fails_at_once(gate: Gate, option: str, verdict: str, headline: str) -> None:
    result = gate(option)
    assert result.verdict == verdict
    assert result.headline.startswith(headline)
    assert gate.order == ["base/warm-up", "head/warm-up"]


def test_sides_of_other_configurations_are_refused_behind_the_warm_up(gate: Gate) -> None:
    result = gate("--set engine.depth=1")
    assert result.verdict == "NOT-COMPARABLE"
    assert result.exit_code == 5
    assert "engine.depth 2 vs 1" in result.headline
    assert gate.order == ["base/warm-up", "head/warm-up"]


def test_a_run_of_another_configuration_than_its_side_has_failed(gate: Gate, tmp_path: Path) -> None:
    script = tmp_path / "changing.sh"
    fake = FAKE.removeprefix("cmd:")
    script.write_text(f'case "$2" in *run-03) set -- "$@" --set engine.depth=1;; esac\nexec {fake} "$@"\n')
    sides = ["--base", FAKE, "--head", f"cmd:sh {script}"]
    done = invoke("run", *sides, "--json", "--runs", 3, "--out", gate.out)
    result = msgspec.json.decode(done.stdout, type=GateResult)
    assert result.verdict == "FAIL"
    assert "head run 3: its configuration is not that of the runs before it: engine.depth" in result.headline


def test_runs_that_are_too_few_to_decide_are_said_to_be_before_they_are_made(gate: Gate) -> None:
    result = gate(runs=1)
    assert result.verdict == "UNDECIDED"
    assert "4 runs a side are too few for any verdict but on failures and limits" in gate.stderr
    assert len(gate.order) == 2 + 2


def test_noisy_sides_get_further_stages_up_to_the_limit_and_are_undecided_then(gate: Gate) -> None:
    result = gate("--noise 150", "--max-runs", "14", base="--noise 150")
    assert (result.verdict, result.exit_code) == ("UNDECIDED", 5)
    assert result.method == "interleaved ABBA, stages of 5, 5, 4 runs a side"
    assert len(gate.order) == 2 + 28
    assert "undecided after 10 runs a side, 4 more follow: tpot is unchanged" in gate.stderr
    (tpot,) = (metric for metric in result.metrics if metric.name == "tpot")
    assert tpot.runs_needed is not None
    assert tpot.runs_needed > 14
    assert f"about {tpot.runs_needed} runs a side would do" in result.headline


def test_a_pass_says_what_it_excludes_and_proof_asks_for_more(gate: Gate, tmp_path: Path) -> None:
    # Noise of -2 to 2 per mille.
    assert "at most +0.3 % slower (95 %)" in gate().headline
    gate.out = tmp_path / "proof"
    assert gate("", "--proof").metrics[0].excluded == 0.02
    gate.out = tmp_path / "excluded"
    result = gate("", "--excluded", "0.1%", "--metric", "tpot=0", "--max-runs", "5")
    assert result.verdict == "UNDECIDED"
    assert "a PASS must exclude 0.1 %" in result.headline


def test_an_override_of_the_gate_is_the_gates_and_not_that_of_its_runs(gate: Gate) -> None:
    table = "gate.metrics={tpot={max_regression=0.001, excluded=0.0001}}"
    result = gate("", "--set", "gate.max_runs=5", "--set", table, runs=5)
    # The fake run fails on a key of a section that it does not know.
    assert result.verdict == "UNDECIDED"
    assert result.metrics[0].excluded == 0.001
    assert result.method == "interleaved ABBA, 1 stage of 5 runs a side"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--set", "gate.fail_p=2"],
            "--set gate.fail_p=2: gate.fail_p = 2: expected a probability between 0 and 1",
        ),
        (["--head-set", "gate.fail_p=0.1"], "--head-set gate.fail_p=0.1: one policy judges both sides"),
        (["--runs", "6", "--max-runs", "5"], "gate.max_runs = 5 is less than one stage, gate.stage_runs = 6"),
        (["--excluded", "much"], "--excluded 'much': 'much' is no number"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_before_any_run(
    gate: Gate, arguments: list[str], message: str
) -> None:
    done = invoke("run", "--base", FAKE, "--head", FAKE, "--out", gate.out, *arguments)
    assert message.replace("--set gate.fail_p=2: ", "") in str(done.exception)
    assert not gate.out.exists()


def test_a_run_that_takes_too_long_is_ended_with_its_children(gate: Gate) -> None:
    result = gate("--hang-in warm-up", "--timeout", "1")
    assert result.verdict == "FAIL"
    assert "head warm-up: did not end within 1 s" in result.headline
    assert all_end(gate.out / "head" / "hanging")


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_gate_ends_its_run_and_keeps_what_was_measured(tmp_path: Path, stop: int) -> None:
    out = tmp_path / "gate"
    sides = ["--base", FAKE, "--head", f"{FAKE} --hang-in run-02"]
    process = subprocess.Popen(
        [sys.executable, "-m", "dsv4bench", "gate", "run", *sides, "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    hanging = out / "head" / "hanging"
    until = time.monotonic() + 50
    while not (hanging.exists() and hanging.read_text()) and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(stop)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert stdout == ""
    assert all_end(hanging)
    assert (
        f"dsv4bench: interrupted after 1 base and 1 head runs; what was measured is in {out}; judge it with: dsv4bench "
        f"gate check {out / 'head.json'} --baseline {out / 'base.json'}" in stderr
    )
    assert len(msgspec.json.decode((out / "head.json").read_bytes(), type=Samples).metrics["tpot"]) == 1


def test_a_directory_that_is_not_empty_is_refused(gate: Gate) -> None:
    gate.out.mkdir()
    (gate.out / "file").touch()
    done = invoke("run", "--base", FAKE, "--head", FAKE, "--out", gate.out)
    assert done.exit_code != 0
    assert "is not empty; name a new one with --out" in str(done.exception)


def test_an_override_of_prompts_declares_every_kind() -> None:
    assert keys_of(["engine.depth=1", "load.prompt_tokens=3"]) == {
        *("engine.depth", "load.prompt_tokens", "load.prompts", "load.prompts_file", "load.timetable")
    }
    assert keys_of([]) == frozenset()


def all_end(pids: Path) -> bool:
    """Whether the processes in the file are gone, or soon: a killed one needs a moment."""
    until = time.monotonic() + 10
    while any(map(alive, map(int, pids.read_text().split()))) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(map(alive, map(int, pids.read_text().split())))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, ProcessLookupError):
        return False
