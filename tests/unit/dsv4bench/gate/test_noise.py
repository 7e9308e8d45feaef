"""What a calibration says of runs whose noise is known."""

import sys
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from analyzers.gate.model import GatePolicy, MetricPolicy, Samples
from dsv4bench.cli import app
from dsv4bench.gate.noise import GateCalibration, calibrate_gate
from dsv4bench.gate.noise_tables import advice, calibration_tables
from tests.builders.places import BUILDERS

pytestmark = pytest.mark.medium

POLICY = GatePolicy(metrics={"tpot": MetricPolicy()})
FAKE = f"cmd:{sys.executable} -I -S {BUILDERS / 'fake_run.py'}"


def sides(*values: float) -> tuple[Samples, Samples]:
    base, head = list(values[::2]), list(values[1::2])
    return Samples({"tpot": base}, runs=["b"] * len(base)), Samples({"tpot": head}, runs=["h"] * len(head))


def normal(deviation: float, runs: int = 20) -> tuple[Samples, Samples]:
    return sides(*(10 * np.exp(np.random.default_rng(5).normal(0, deviation, runs))).tolist())


def test_noise_is_measured_over_both_sides() -> None:
    # Median 10; distances from it 0 0 1 1 2 2 -> 1.
    (noise,) = calibrate_gate(*sides(10, 10, 9, 11, 8, 12), POLICY, trials=5).noise
    assert (noise.runs, noise.median) == (6, 10)
    assert noise.spread == pytest.approx(0.14826)
    assert noise.range == pytest.approx(0.4)


def test_a_drift_is_the_second_half_against_the_first() -> None:
    found = calibrate_gate(
        *sides(10, 10.01, 10.02, 10.03, 10.04, 11, 11.01, 11.02, 11.03, 11.04), POLICY, trials=5
    )
    assert found.noise[0].drift == pytest.approx(0.1, abs=0.002)
    # All of five above all of five, two-sided: 2 / 252.
    assert found.noise[0].drift_p == pytest.approx(2 / 252)
    assert any("tpot drifted by +10.0 %" in caveat for caveat in found.caveats)


def test_noise_decides_how_small_a_change_is_caught_and_which_gate_is_advised() -> None:
    quiet, loud = (calibrate_gate(*normal(deviation), POLICY, trials=40) for deviation in (0.003, 0.12))
    for found in (quiet, loud):
        caught = [plan.detectable["tpot"] or 9 for plan in found.plans]
        # More runs catch smaller changes, within what forty trials resolve.
        assert all(more <= fewer + 0.002 for fewer, more in pairwise(caught))
        assert all(change > 0.02 for change in caught)
        assert all(plan.false_alarms <= 0.05 < plan.false_alarms_at_most for plan in found.plans)
    assert (quiet.recommended_runs, quiet.recommended_max_regression) == (5, 0.02)
    # Noise of 0.3 % over ten runs a side: the ratio's deviation is 0.3 % * sqrt(2 / 10) * 1.02, and 90 % of the trials
    # are beyond 2 % from 2 % + 1.28 deviations on.
    assert quiet.plans[0].detectable["tpot"] == pytest.approx(0.0218, abs=0.001)
    assert loud.recommended_runs == 20
    assert loud.recommended_max_regression is not None
    assert 0.02 < loud.recommended_max_regression < 0.07
    assert advice(quiet) == "advice: --runs 5 --metric tpot=2%"


def test_the_same_runs_give_the_same_figures() -> None:
    assert calibrate_gate(*normal(0.02), POLICY, trials=20) == calibrate_gate(
        *normal(0.02), POLICY, trials=20
    )


def test_few_runs_are_said_to_tell_little() -> None:
    found = calibrate_gate(*sides(10, 11), POLICY, trials=5)
    assert (
        "a spread from 2 runs may be off by any factor either way (95 %), and with it all that follows from it"
        in (found.caveats)
    )
    assert "by a factor of 1.7 either way" in calibrate_gate(*normal(0.02), POLICY, trials=5).caveats[0]


def test_without_usable_values_there_is_no_advice() -> None:
    none = Samples({"tpot": [None, None]}), Samples({"tpot": [None, 0.0]})
    found = calibrate_gate(*none, POLICY, trials=5)
    assert (found.noise, found.plans, found.recommended_runs) == ([], [], None)
    assert found.caveats == ["no usable values of tpot: nothing is said of it"]
    assert advice(found).startswith("no advice")
    assert [table.rows for table in calibration_tables(found)] == [[], []]


def test_the_command_runs_both_sides_in_turn_and_prints_a_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsv4bench.gate.noise.STAGE_RUNS", (5,))
    options = ["--command", FAKE, "--runs", "2", "--out", str(tmp_path / "gate"), "--json"]
    done = CliRunner().invoke(app, ["gate", "calibrate", *options])
    assert done.exit_code == 0, done.exception
    found = msgspec.json.decode(done.stdout, type=GateCalibration)
    assert found.runs == 4
    assert "2/4 head run 1: tpot 10.01 ms" in done.stderr
    # Runs 1 and 2 of each side: 10.01 and 9.99.
    assert found.noise[0].range == pytest.approx(0.002)


def test_a_failed_run_is_no_calibration(tmp_path: Path) -> None:
    command = f"{FAKE} --fail-in run-01"
    options = ["--command", command, "--runs", "2", "--out", str(tmp_path / "gate")]
    done = CliRunner().invoke(app, ["gate", "calibrate", *options])
    assert "1 of 1 base runs failed: base run 1: exit code 1: the fake device is on fire" in str(
        done.exception
    )
