"""Where the thresholds come from: `[gate]` tables and the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.errors import UnusableInputError
from analyzers.gate.model import GatePolicy, MetricPolicy
from analyzers.gate.policy import load_policy
from dsv4bench.profile import load_profile, profile_as_toml, profile_file

TABLE = """
[gate]
stage_runs = 6
[gate.metrics.tpot]
max_regression = 0.03
limit = 60.0
[gate.metrics."step_time[0].wall.mean"]
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_without_anything_tpot_may_regress_by_two_percent() -> None:
    assert load_policy(None, None) == GatePolicy({"tpot": MetricPolicy(0.02, None)}, judge_others=True)


def test_the_file_in_the_working_directory_is_read(tmp_path: Path) -> None:
    (tmp_path / "dsv4bench.toml").write_text(TABLE)
    policy = load_policy(None, None)
    assert policy.stage_runs == 6
    assert policy.metrics == {"tpot": MetricPolicy(0.03, 60.0), "step_time[0].wall.mean": MetricPolicy(0.02)}
    assert not policy.judge_others


def test_a_profile_stands_above_it_and_a_named_file_above_both(tmp_path: Path) -> None:
    (tmp_path / "dsv4bench.toml").write_text(TABLE)
    profile = tmp_path / "profile.toml"
    profile.write_text('name = "x"\n[gate]\nfail_p = 0.001\n[gate.metrics.ttft]\nmax_regression = 0.1\n')
    policy = load_policy(str(profile), None)
    assert (policy.stage_runs, policy.fail_p, list(policy.metrics)) == (6, 0.001, ["ttft"])
    file = tmp_path / "named.toml"
    file.write_text("[gate]\nstage_runs = 4\n")
    policy = load_policy(str(profile), file)
    assert (policy.stage_runs, policy.fail_p, list(policy.metrics)) == (4, 0.001, ["ttft"])


def test_the_command_line_names_all_that_is_judged(tmp_path: Path) -> None:
    (tmp_path / "dsv4bench.toml").write_text(TABLE)
    policy = load_policy(None, None, ["tpot", "ttft=5%", "tpot_ms[bs=32]", "tpot_ms[bs=16]=0.1"], ["e2e=900"])
    assert policy.metrics == {
        "tpot": MetricPolicy(0.03, 60.0),
        "ttft": MetricPolicy(0.05),
        "tpot_ms[bs=32]": MetricPolicy(0.02),
        "tpot_ms[bs=16]": MetricPolicy(0.1),
        "e2e": MetricPolicy(None, 900.0),
    }
    assert load_policy(None, None, [], ["tpot=50"]).metrics["tpot"] == MetricPolicy(0.03, 50.0)


@pytest.mark.parametrize("text", ["=0.1", "tpot=", "tpot=fast", "tpot=-0.1", "tpot=nan", "tpot=inf", ""])
def test_a_threshold_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UnusableInputError, match="--metric"):
        load_policy(None, None, [text])


@pytest.mark.parametrize("text", ["tpot", "tpot=0", "tpot=-1", "tpot=x"])
def test_a_limit_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UnusableInputError, match="--limit"):
        load_policy(None, None, [], [text])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[gate]\nstage_run = 5", "did you mean 'stage_runs'"),
        ("[gate]\nallow_different = true", "unknown key 'allow_different'"),
        ("[gate]\nstage_runs = 0", "stage_runs must be at least 1"),
        ("[gate]\nfail_p = 0.2", "fail_p <= stage_one_p"),
        ("gate = 3", "expected a table"),
        ("[gate.metrics.tpot]\nmax_regresion = 0.1", "max_regresion"),
        ("[gate.metrics.tpot]\nmax_regression = -0.1", "0 or more"),
        ("[gate.metrics.tpot]\nlimit = 0", "above 0"),
        ("[gate", "not valid TOML"),
    ],
)
def test_a_wrong_table_names_what_is_wrong(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(text)
    with pytest.raises(UnusableInputError, match=message):
        load_policy(None, file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableInputError, match="cannot be read"):
        load_policy(None, tmp_path / "none.toml")


def test_a_profile_may_say_what_is_judged(tmp_path: Path) -> None:
    text = 'name = "x"\n[load]\nrequests = 1\noutput_tokens = 4\nprompts = ["a"]\n' + TABLE
    file = tmp_path / "x.toml"
    file.write_text(text)
    profile = load_profile(str(file))
    assert profile.gate.stage_runs == 6
    assert profile.gate.metrics is not None
    assert profile.gate.metrics["tpot"].limit == 60.0
    again = tmp_path / "again.toml"
    again.write_text(profile_as_toml(profile))
    assert load_profile(str(again)) == profile
    assert load_policy(str(again), None).metrics == load_policy(str(file), None).metrics


def test_the_file_of_a_shipped_profile_is_found() -> None:
    assert load_policy(str(profile_file("smoke")), None).metrics == {"tpot": MetricPolicy(0.02)}
