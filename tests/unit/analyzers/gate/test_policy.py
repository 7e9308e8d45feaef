"""Where the thresholds come from: `[gate]` tables and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from analyzers.errors import UnusableInputError
from analyzers.gate.model import GatePolicy, MetricPolicy
from analyzers.gate.policy import PolicyOptions, excluded_regression
from dsv4bench.cli.gate_policy import gate_policy
from dsv4bench.errors import UsageError
from dsv4bench.profile import load_profile, profile_as_toml

TABLE = """
[gate]
stage_runs = 6
[gate.metrics.tpot]
max_regression = 0.03
limit = 60.0
[gate.metrics."step_time[0].wall.mean"]
"""


RUNNABLE = 'name = "x"\n[load]\nrequests = 1\noutput_tokens = 4\nprompts = ["a"]\n'


def load_policy(
    profile: str | None, file: Path | None, overrides: Sequence[str] = (), **options: object
) -> GatePolicy:
    """The policy of a command with these options; `overrides` are those of the profile (--set)."""
    return gate_policy(profile, file, PolicyOptions(**options), overrides)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_without_anything_tpot_may_regress_by_two_percent() -> None:
    policy = load_policy(None, None)
    assert policy.metrics == {"tpot": MetricPolicy(0.02, None)}
    assert policy.judge_others
    assert (policy.stage_runs, policy.max_runs, policy.excluded) == (10, None, 0.1)


def test_the_file_in_the_working_directory_is_read(tmp_path: Path) -> None:
    (tmp_path / "dsv4bench.toml").write_text(TABLE)
    policy = load_policy(None, None)
    assert policy.stage_runs == 6
    assert policy.metrics == {"tpot": MetricPolicy(0.03, 60.0), "step_time[0].wall.mean": MetricPolicy(0.02)}
    assert not policy.judge_others


def test_a_profile_stands_above_it_and_a_named_file_above_both(tmp_path: Path) -> None:
    (tmp_path / "dsv4bench.toml").write_text(TABLE)
    profile = tmp_path / "profile.toml"
    profile.write_text(RUNNABLE + "[gate]\nfail_p = 0.001\n[gate.metrics.ttft]\nmax_regression = 0.1\n")
    policy = load_policy(str(profile), None)
    assert (policy.stage_runs, policy.fail_p, list(policy.metrics)) == (6, 0.001, ["ttft"])
    file = tmp_path / "named.toml"
    file.write_text("[gate]\nstage_runs = 4\n")
    policy = load_policy(str(profile), file)
    assert (policy.stage_runs, policy.fail_p, list(policy.metrics)) == (4, 0.001, ["ttft"])


def test_the_command_line_names_all_that_is_judged(tmp_path: Path) -> None:
    (tmp_path / "dsv4bench.toml").write_text(TABLE)
    policy = load_policy(
        None, None, metrics=["tpot", "ttft=5%", "tpot_ms[bs=32]", "tpot_ms[bs=16]=0.1"], limits=["e2e=900"]
    )
    assert policy.metrics == {
        "tpot": MetricPolicy(0.03, 60.0),
        "ttft": MetricPolicy(0.05),
        "tpot_ms[bs=32]": MetricPolicy(0.02),
        "tpot_ms[bs=16]": MetricPolicy(0.1),
        "e2e": MetricPolicy(None, 900.0),
    }
    assert load_policy(None, None, limits=["tpot=50"]).metrics["tpot"] == MetricPolicy(0.03, 50.0)


@pytest.mark.parametrize("text", ["=0.1", "tpot=", "tpot=fast", "tpot=-0.1", "tpot=nan", "tpot=inf", ""])
def test_a_threshold_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UnusableInputError, match="--metric"):
        load_policy(None, None, metrics=[text])


@pytest.mark.parametrize("text", ["tpot", "tpot=0", "tpot=-1", "tpot=x"])
def test_a_limit_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UnusableInputError, match="--limit"):
        load_policy(None, None, limits=[text])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stage_run = 5", "unknown key 'stage_run' in [gate] (did you mean 'stage_runs'?); known: metrics, "),
        ("allow_different = true", "unknown key 'allow_different' in [gate]"),
        ("stage_runs = 0", "gate.stage_runs = 0: expected a whole number of at least 1"),
        ("max_runs = 0", "gate.max_runs = 0: expected a whole number of at least 1"),
        ("fail_p = 1", "gate.fail_p = 1: expected a probability between 0 and 1"),
        ("excluded = -0.1", "gate.excluded = -0.1: expected a share of 0 or more"),
        ("excluded = inf", "gate.excluded = inf: expected a share of 0 or more"),
        ("judge_others = 1", "gate.judge_others = 1: expected true or false"),
        ("metrics = 3", "gate.metrics = 3: expected a table of metrics"),
        ("metrics = {tpot = 3}", "gate.metrics.tpot = 3: expected a table [gate.metrics.tpot]"),
        ("metrics = {tpot = {max_regresion = 0.1}}", "unknown key 'max_regresion' in [gate.metrics.tpot]"),
        (
            "metrics = {tpot = {max_regression = -0.1}}",
            "gate.metrics.tpot.max_regression = -0.1: expected a share of 0 or more",
        ),
        (
            "metrics = {tpot = {max_regression = nan}}",
            "gate.metrics.tpot.max_regression = nan: expected a share of 0 or more",
        ),
        ("metrics = {tpot = {limit = 0}}", "gate.metrics.tpot.limit = 0: expected a number above 0"),
    ],
)
def test_a_wrong_value_is_refused_with_the_same_words_wherever_it_stands(
    text: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(f"[gate]\n{text}\n")
    with pytest.raises(UnusableInputError) as of_file:
        load_policy(None, file)
    assert str(of_file.value).startswith(f"{file}: {message}")
    file.write_text(f"{RUNNABLE}[gate]\n{text}\n")
    with pytest.raises(UsageError) as of_profile:
        load_policy(str(file), None)
    assert str(of_profile.value).startswith(f"profile {file}: {message}")
    key, _, value = text.partition(" = ")
    with pytest.raises(UsageError) as of_option:
        load_policy("smoke", None, [f"gate.{key}={value}"])
    assert message in str(of_option.value)


@pytest.mark.parametrize(("text", "message"), [("gate = 3", "expected a table"), ("[gate", "not valid TOML")])
def test_what_is_no_table_is_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(text)
    with pytest.raises(UnusableInputError, match=message):
        load_policy(None, file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_runs=9", "gate.max_runs = 9 is less than one stage, gate.stage_runs = 10"),
        ("fail_p=0.2", "gate.fail_p = 0.2 is above gate.stage_one_p = 0.05"),
    ],
)
def test_keys_that_contradict_each_other_are_refused_once_all_are_known(text: str, message: str) -> None:
    with pytest.raises(UnusableInputError, match=message):
        load_policy("smoke", None, [f"gate.{text}"])
    assert load_policy("smoke", None, ["gate.max_runs=9"], stage_runs=9).max_runs == 9


def test_an_override_of_the_profile_changes_the_policy(tmp_path: Path) -> None:
    (tmp_path / "dsv4bench.toml").write_text("[gate]\nstage_runs = 6\nfail_p = 0.002\n")
    policy = load_policy("smoke", None, ["gate.stage_runs=10", "gate.excluded=0.05", "engine.ranks=1"])
    # What is said is said, though it is the default.
    assert (policy.stage_runs, policy.excluded, policy.fail_p) == (10, 0.05, 0.002)
    policy = load_policy("smoke", None, ["gate.metrics={ttft={max_regression=0.1, excluded=0.2}}"])
    assert policy.metrics == {"ttft": MetricPolicy(0.1, None, 0.2)}


def test_the_regression_to_exclude_is_never_less_than_what_is_allowed(tmp_path: Path) -> None:
    def excluded(**options: Any) -> list[float]:
        policy = load_policy(None, tmp_path / "own.toml", **options)
        assert policy.metrics is not None
        return [excluded_regression(policy, asked) for asked in policy.metrics.values()]

    (tmp_path / "own.toml").write_text(
        "[gate]\nexcluded = 0.06\n[gate.metrics.tpot]\n"
        "[gate.metrics.ttft]\nmax_regression = 0.2\n[gate.metrics.e2e]\nexcluded = 0.03\n"
    )
    assert excluded() == [0.06, 0.2, 0.03]
    assert excluded(excluded="8%") == [0.08, 0.2, 0.08]
    assert excluded(proof=True) == [0.02, 0.2, 0.02]
    for text in ("few", "-1", "nan", ""):
        with pytest.raises(UnusableInputError, match="--excluded"):
            excluded(excluded=text)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableInputError, match="cannot be read"):
        load_policy(None, tmp_path / "none.toml")


def test_a_profile_may_say_what_is_judged(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text(RUNNABLE + TABLE)
    profile = load_profile(str(file))
    assert profile.gate.stage_runs == 6
    assert profile.gate.metrics is not None
    assert profile.gate.metrics["tpot"].limit == 60.0
    again = tmp_path / "again.toml"
    again.write_text(profile_as_toml(profile))
    assert load_profile(str(again)) == profile
    assert load_policy(str(again), None).metrics == load_policy(str(file), None).metrics


def test_a_shipped_profile_says_nothing_else() -> None:
    assert load_policy("smoke", None).metrics == {"tpot": MetricPolicy(0.02)}
