"""Samples on which gates cried wolf or stayed silent; each test is named after its case."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import mean

import pytest
from typer.testing import CliRunner

from analyzers.gate.model import GatePolicy, MetricPolicy, Samples
from analyzers.gate.stages import Stage
from analyzers.gate.verdict import decide
from dsv4bench.cli import app
from tests.builders.places import CASES


def check(case: str, *options: str) -> tuple[int, str]:
    """Exit code and output of `gate check` on the files of a case."""
    directory = CASES / case
    arguments = [str(directory / "candidate.json"), "--baseline", str(directory / "baseline.json"), *options]
    done = CliRunner().invoke(app, ["gate", "check", *arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def verdict(case: str, *options: str) -> dict[str, object]:
    """The JSON document of the verdict, which agrees with the exit code."""
    code, output = check(case, "--json", *options)
    document: dict[str, object] = json.loads(output)
    assert document["exit_code"] == code
    return document


def metric(document: dict[str, object], index: int = 0) -> dict[str, object]:
    metrics = document["metrics"]
    assert isinstance(metrics, list)
    found: dict[str, object] = metrics[index]
    return found


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)


def test_72_all_requests_failed_is_no_data_and_no_improvement() -> None:
    requests = CASES / "72-percentile-of-nothing" / "requests.jsonl"
    baseline = CASES / "79-gate-same-code" / "baseline.json"
    done = CliRunner().invoke(app, ["gate", "check", str(requests), "--baseline", str(baseline)])
    assert done.exit_code == 3
    assert done.output.startswith("NO-DATA: no data")
    assert "2 of 2 requests failed" in done.output
    assert "100 %" not in done.output


def test_75_a_renamed_metric_is_not_green() -> None:
    code, output = check("75-gate-missing-baseline")
    assert code == 5
    assert "no common metric between baseline and candidate" in output
    document = verdict("75-gate-missing-baseline", "--allow-new")
    assert document["exit_code"] == 5
    assert document["new_metrics"] == ["tpot_ms[bs=32]"]
    assert "(new): tpot_ms[bs=32]" in check("75-gate-missing-baseline", "--allow-new")[1]


def test_76_a_baseline_of_zero_is_no_number_to_compare_with() -> None:
    code, output = check("76-gate-zero-baseline")
    assert code == 5
    assert "baseline tpot_ms is not a positive number" in output
    assert metric(verdict("76-gate-zero-baseline"))["ratio"] is None


def test_77_another_configuration_or_machine() -> None:
    code, output = check("77-gate-different-config")
    assert code == 5
    assert "not comparable: batch 16 vs 32, machine a vs b" in output
    code, output = check("77-gate-different-config", "--force-compare")
    assert code == 0
    assert "warning: the sides differ: batch 16 vs 32, machine a vs b" in output


def test_79_one_slow_run_of_the_same_code_passes() -> None:
    case = CASES / "79-gate-same-code"
    values = [json.loads((case / f"{name}.json").read_text()) for name in ("baseline", "candidate")]
    base, head = (document["metrics"]["tpot_ms"] for document in values)
    assert mean(head) / mean(base) > 1.03, "the ratio of the means alone would alarm"
    document = verdict("79-gate-same-code")
    assert document["verdict"] == "PASS"
    assert 1 < metric(document)["ratio"] < 1.02  # type: ignore[operator]
    assert metric(document)["p_value"] >= 0.01  # type: ignore[operator]
    assert metric(document)["head_outliers"] == 1


def test_80_a_real_regression_fails() -> None:
    document = verdict("80-gate-real-regression")
    assert (document["verdict"], document["exit_code"]) == ("FAIL", 1)
    # Every value of the candidate is above every one of the baseline: 1 of C(20, 10) arrangements.
    assert metric(document)["p_value"] == pytest.approx(1 / 184_756)
    assert metric(document)["ratio"] == pytest.approx(1.06, abs=0.01)


def test_82_equal_samples_pass_without_outliers() -> None:
    document = verdict("82-gate-all-equal-samples")
    found = metric(document)
    assert document["verdict"] == "PASS"
    assert (found["ratio"], found["p_value"]) == (1.0, 1.0)
    assert (found["base_outliers"], found["head_outliers"]) == (0, 0)
    assert "a zero MAD disables the outlier rule" in check("82-gate-all-equal-samples")[1]


def test_119_what_excludes_nothing_does_not_pass() -> None:
    case = "119-pass-that-excludes-nothing"
    document = verdict(case)
    found = metric(document)
    assert (document["verdict"], document["exit_code"]) == ("UNDECIDED", 5)
    assert found["ratio"] == pytest.approx(1.174, abs=0.0005)
    assert found["p_value"] == pytest.approx(0.15, abs=0.005)
    # Of 36 pairs, P(U <= 7) is 0.047 and P(U <= 8) 0.066: the 8th largest ratio is the bound.
    values = [json.loads((CASES / case / f"{name}.json").read_text()) for name in ("baseline", "candidate")]
    base, head = (document["metrics"]["tpot"] for document in values)
    ratios = sorted(mine / other for mine in head for other in base)
    assert found["excludes"] == pytest.approx(ratios[-8] - 1)
    assert found["excludes"] > 0.4  # type: ignore[operator]
    _, output = check(case)
    assert output.startswith("UNDECIDED: tpot is 17.4 % worse")
    assert f"about {found['runs_needed']} runs a side would do" in output
    assert found["runs_needed"] > 50  # type: ignore[operator]
    assert "busy" not in output, "the files say nothing of the machine"
    # The same figures as the last stage of interleaved runs, on a machine that others used.
    before, after = (Samples({"tpot": [*side]}, busy=True) for side in (base, head))
    policy = GatePolicy({"tpot": MetricPolicy()})
    live = decide(before, after, policy, method="", stored=False, stage=Stage(2, 2))
    assert live.verdict == "UNDECIDED"
    assert "the machine was busy" in live.headline


@pytest.mark.parametrize("case", ["79-gate-same-code", "82-gate-all-equal-samples"])
def test_every_pass_says_which_regression_it_excludes(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    document = verdict(case)
    excludes = metric(document)["excludes"]
    assert isinstance(excludes, float)
    assert 0 <= excludes < 0.1
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    said = re.compile(r"at most \+?([\d.]+) % slower")
    code, output = check(case, "--markdown", "gate.md", "--junit", "gate.xml")
    assert code == 0
    verdict_line = output.splitlines()[0]
    annotation = next(line for line in output.splitlines() if line.startswith("::notice")).replace("%25", "%")
    texts = [
        verdict_line,
        annotation,
        Path("gate.md").read_text().replace("\\", ""),
        Path("gate.xml").read_text(),
    ]
    for text in texts:
        found = said.search(text)
        assert found is not None, text
        assert float(found[1]) == pytest.approx(100 * excludes, abs=0.005)
