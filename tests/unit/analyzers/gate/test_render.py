"""What people see of a verdict: terminal, Markdown, JSON, JUnit, annotations; and `gate check` around it."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from analyzers.errors import UnusableInputError
from analyzers.gate.model import GatePolicy, GateResult, MetricPolicy, Samples
from analyzers.gate.render import (
    github_annotations,
    render_json,
    render_junit,
    render_markdown,
    render_terminal,
)
from analyzers.gate.verdict import decide
from analyzers.gate.wording import amount, p_text, percent
from dsv4bench.cli import app

BASE = [10.0, 10.1, 9.9, 10.05, 9.95, 10.02, 9.98, 10.07, 9.93, 10.01]
HOSTILE = "evil\n::error title=x::y\r%0A | <script>*_`]]>&\"' \x1b[31m\x00[bold]%"


def slower(factor: float, name: str = "tpot_ms") -> GateResult:
    base = Samples({name: [*BASE]}, source="base.json")
    head = Samples({name: [value * factor for value in BASE]}, source="head.json")
    return decide(base, head, GatePolicy({name: MetricPolicy()}), method="stored runs", stored=True)


def terminal(result: GateResult, width: int = 80) -> str:
    text = io.StringIO()
    render_terminal(result, Console(file=text, width=width))
    return text.getvalue()


def test_the_verdict_comes_first_and_one_sentence_says_why() -> None:
    result = slower(1.06)
    sentence = "tpot_ms is 6 % worse (10 -> 10.61 ms), 2 % allowed; p < 0.0001"
    assert terminal(result).splitlines()[0] == f"FAIL: {sentence}"
    lines = render_markdown(result).splitlines()
    assert lines[0].endswith("FAIL: performance gate")
    assert lines[2].replace("\\", "") == f"**{sentence}**"
    assert github_annotations(result).splitlines()[0] == (
        "::error title=dsv4bench gate%3A FAIL::" + sentence.replace("%", "%25")
    )


def test_the_table_has_names_for_people_and_fits_80_columns() -> None:
    result = slower(1.06)
    assert (
        "time per output token (tpot\\_ms), ms | 10 | 10.61 | +6 % | +2 % | \\<0.0001 | FAIL"
        in render_markdown(result)
    )
    table = terminal(result).partition("\n\n")[2].partition("\n\n")[0]
    assert max(map(len, table.splitlines())) <= 80
    assert re.search(r"^tpot_ms, ms +10 +10\.61 +\+6 % +<0\.0001 +FAIL *$", table, re.MULTILINE)


def test_warnings_and_what_the_runs_can_see_are_said() -> None:
    text = terminal(slower(1.0))
    assert "warning: the baseline was stored" in text
    found = re.search(r"a regression of ([\d.]+) % is caught with 90 % probability", text)
    assert found is not None
    assert 2 < float(found[1]) < 4


def test_junit_has_a_case_for_the_whole_and_for_every_judged_metric() -> None:
    for factor, failures in ((1.0, 0), (1.06, 2)):
        suites = ElementTree.fromstring(render_junit(slower(factor)))
        cases = suites.findall("testsuite/testcase")
        assert [case.get("name") for case in cases] == ["verdict", "time per output token (tpot_ms)"]
        assert len(suites.findall("testsuite/testcase/failure")) == failures
        assert (suites.get("failures"), suites.get("errors")) == (str(failures), "0")
    undecided = decide(
        Samples({"tpot": [1.0]}),
        Samples({"tpot": [1.0]}),
        GatePolicy({"tpot": MetricPolicy()}),
        method="",
        stored=True,
    )
    suites = ElementTree.fromstring(render_junit(undecided))
    assert suites.get("errors") == "2", "what cannot be told is red"
    error = suites.find("testsuite/testcase/error")
    assert error is not None
    assert (error.get("type"), (error.get("message") or "")[:9]) == ("UNDECIDED", "UNDECIDED")


def test_every_metric_that_passes_says_everywhere_what_it_excludes() -> None:
    side = Samples({"tpot": [*BASE], "throughput": [*BASE]})
    policy = GatePolicy({"tpot": MetricPolicy(), "throughput": MetricPolicy()})
    result = decide(side, Samples(side.metrics), policy, method="", stored=False)
    assert result.verdict == "PASS"
    # Equal sides: the 28th largest of a hundred ratios, as in test_verdict.
    slower, worse = "at most +0.5 % slower (95 %)", "at most +0.5 % worse (95 %)"
    assert max(a / b for a in BASE for b in BASE) > 1.005
    markdown = render_markdown(result).replace("\\", "")
    for text in (
        terminal(result, 200), markdown, render_junit(result), github_annotations(result).replace("%25", "%"),
    ):  # fmt: skip
        assert slower in text
        assert worse in text
    assert [metric.excludes for metric in result.metrics] == [pytest.approx(0.005, abs=0.0001)] * 2


def test_json_holds_the_whole_result_and_its_exit_code() -> None:
    result = slower(1.06)
    document = json.loads(render_json(result))
    assert document.pop("exit_code") == 1
    assert msgspec.convert(document, GateResult) == result


def test_names_of_strangers_are_markup_nowhere() -> None:
    result = slower(1.06, HOSTILE)
    assert result.verdict == "FAIL"
    annotations = github_annotations(result)
    assert all(
        re.match(r"::(error|warning) title=dsv4bench gate[^:]*::", line) for line in annotations.splitlines()
    )
    assert "\x1b" not in annotations
    markdown = render_markdown(result)
    assert "<script>" not in markdown.replace("\\<", "")
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1
    suites = ElementTree.fromstring(render_junit(result))
    name = suites.findall("testsuite/testcase")[1].get("name")
    assert name is not None
    assert name.startswith("evil")
    assert name.endswith("[bold]%")
    text = terminal(result, 200)
    assert "\x1b" not in text
    assert "\x00" not in text
    assert "[bold]%" in text


def test_figures_in_words() -> None:
    assert [percent(value) for value in (0.02, 0.0618, 0.00001, -0.005, 12.0)] == [
        "2 %", "6.18 %", "0 %", "-0.5 %", "1200 %",
    ]  # fmt: skip
    assert [percent(value, signed=True) for value in (0.02, -0.02, 0.0)] == ["+2 %", "-2 %", "0 %"]
    assert [amount(value, "ms") for value in (9.9566, 12345.6, 0.00012)] == [
        "9.957 ms",
        "12346 ms",
        "0.00012 ms",
    ]
    assert [p_text(value) for value in (1.0, 0.0321, 0.00001)] == ["p = 1", "p = 0.032", "p < 0.0001"]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with base.json, same.json and slow.json."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    for name, factor in (("base", 1.0), ("same", 1.001), ("slow", 1.06)):
        values = [value * factor for value in BASE]
        Path(f"{name}.json").write_text(json.dumps({"metrics": {"tpot_ms": values}}))
    return tmp_path


def check(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["gate", "check", *arguments])


def test_every_output_that_is_asked_for_is_written(files: Path) -> None:
    options = ["--markdown", "deep/gate.md", "--junit", "gate.xml", "--format", "json", "--out", "gate.json"]
    done = check("slow.json", "--baseline", "base.json", *options)
    assert (done.exit_code, done.output) == (1, "")
    assert json.loads((files / "gate.json").read_text())["verdict"] == "FAIL"
    assert "FAIL: performance gate" in (files / "deep" / "gate.md").read_text()
    assert ElementTree.parse(files / "gate.xml").getroot().get("failures") == "2"
    assert check("same.json", "--baseline", "base.json", "--format", "md").output.startswith("# ")
    assert check("same.json", "--baseline", "base.json", "--out", "t.txt").exit_code == 0
    assert (files / "t.txt").read_text().startswith("PASS: ")


def test_github_gets_annotations_and_a_summary(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = files / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    done = check("slow.json", "--baseline", "base.json")
    assert "::error title=dsv4bench gate%3A FAIL::" in done.stdout
    assert summary.read_text().startswith("before\n# ")
    as_json = check("slow.json", "--baseline", "base.json", "--json")
    assert json.loads(as_json.stdout)["verdict"] == "FAIL", "one document and nothing else"
    assert "::error" in as_json.stderr
    assert summary.read_text().count("FAIL: performance gate") == 2


def test_thresholds_from_the_command_line_and_from_a_file(files: Path) -> None:
    assert check("slow.json", "--baseline", "base.json", "--metric", "tpot=0.1").exit_code == 0
    Path("dsv4bench.toml").write_text("[gate.metrics.tpot]\nmax_regression = 0.1\n")
    assert check("slow.json", "--baseline", "base.json").exit_code == 0
    assert check("slow.json", "--baseline", "base.json", "--limit", "tpot=10.5").exit_code == 1
    Path("strict.toml").write_text("[gate.metrics.tpot]\nmax_regression = 0.01\n")
    assert check("slow.json", "--baseline", "base.json", "--config", "strict.toml").exit_code == 1
    # The file in the working directory allows tpot 10 %; the profile's table does not speak of metrics.
    assert check("slow.json", "--baseline", "base.json", "--profile", "smoke").exit_code == 0


def test_limits_need_no_baseline(files: Path) -> None:
    assert check("slow.json", "--limit", "tpot=10").exit_code == 1
    assert check("slow.json", "--limit", "tpot=11").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["slow.json"], "nothing to compare with"),
        (["slow.json", "--baseline", "none"], r"baselines/none\.json: does not exist"),
        (["none.json", "--baseline", "base.json"], r"none\.json: does not exist"),
        (["slow.json", "--baseline", "base.json", "--metric", "tpott"], "did you mean"),
        (["slow.json", "--baseline", "base.json", "--limit", "tpot"], "write NAME=VALUE"),
        (["slow.json", "--baseline", "base.json", "--junit", "base.json/x"], "cannot be written"),
    ],
)
def test_bad_usage_is_one_clear_line(files: Path, arguments: list[str], message: str) -> None:
    done = check(*arguments)
    assert isinstance(done.exception, UnusableInputError)
    assert done.exception.exit_code == 2
    assert re.search(message, str(done.exception))
