"""The pytest plugin on runs of known speed: what passes, what fails, what its user is told."""

import sys
from collections.abc import Callable

import pytest

from tests.builders.places import BUILDERS, REPOSITORY

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.medium

FAKE = f"{sys.executable} {BUILDERS / 'fake_run.py'}"
STEADY = [10.0, 10.1, 9.9, 10.2, 9.8]

MARKED = """
import pytest

@pytest.mark.tpot(max_regression=0.02)
def test_decode(dsv4_run):
    dsv4_run("smoke")
"""


@pytest.fixture
def sample(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pytest.RunResult]:
    """Run pytest in a project of its own, where runs take the given times in ms per token, in turn."""
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))

    def run(tests: str, times: list[float | str], *arguments: str) -> pytest.RunResult:
        counter = pytester.path / "counter"
        counter.unlink(missing_ok=True)
        events = pytester.path / "events"
        words = f"--counter {counter} --events {events} --tpot {','.join(map(str, times))}"
        pytester.makepyfile(tests)
        return pytester.runpytest_subprocess(
            "--dsv4-command",
            f"{FAKE} {words}",
            "--dsv4-runs",
            "5",
            *arguments,
            "-p",
            "no:cacheprovider",
        )

    return run


def summary(result: pytest.RunResult) -> str:
    text = "\n".join(result.outlines)
    return text.partition(" dsv4bench ")[2]


def test_the_same_speed_passes_and_says_so(sample: Callable[..., pytest.RunResult]) -> None:
    saved = sample(MARKED, STEADY, "--dsv4-save", "base")
    saved.assert_outcomes(passed=1)
    assert "saved    test_the_same_speed_passes_and_says_so.py::test_decode: 5 runs in" in summary(saved)
    again = sample(MARKED, STEADY[::-1], "--dsv4-baseline", "base")
    again.assert_outcomes(passed=1)
    assert "PASS" in summary(again)
    # The largest ratio but four of 25, of which 10.1 / 9.9 is one: P(U <= 4) is 12 of 252.
    assert "at most +2.02 % slower (95 %)" in summary(again)


def test_runs_that_exclude_too_little_do_not_pass(sample: Callable[..., pytest.RunResult]) -> None:
    sample(MARKED, STEADY, "--dsv4-save", "base").assert_outcomes(passed=1)
    strict = MARKED.replace("0.02", "0.01, excluded=0.01")
    undecided = sample(strict, STEADY, "--dsv4-baseline", "base")
    undecided.assert_outcomes(failed=1)
    assert "UNDECIDED" in summary(undecided)
    assert "a PASS must exclude 1 %" in summary(undecided)


def test_a_slower_head_fails_with_its_percentage(sample: Callable[..., pytest.RunResult]) -> None:
    sample(MARKED, STEADY, "--dsv4-save", "base").assert_outcomes(passed=1)
    slower = sample(MARKED, [value * 1.1 for value in STEADY], "--dsv4-baseline", "base")
    slower.assert_outcomes(failed=1)
    assert "FAIL" in summary(slower)
    assert "10 % worse" in "\n".join(slower.outlines)


def test_a_regression_that_the_marker_allows_passes(sample: Callable[..., pytest.RunResult]) -> None:
    sample(MARKED, STEADY, "--dsv4-save", "base").assert_outcomes(passed=1)
    lenient = MARKED.replace("0.02", "0.15")
    slower = sample(lenient, [value * 1.1 for value in STEADY], "--dsv4-baseline", "base")
    slower.assert_outcomes(passed=1)


def test_without_a_baseline_a_marked_test_fails(sample: Callable[..., pytest.RunResult]) -> None:
    result = sample(MARKED, STEADY)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*nothing to compare with: give --dsv4-baseline DIR*"])


def test_a_test_that_the_baseline_does_not_know_fails(sample: Callable[..., pytest.RunResult]) -> None:
    sample(MARKED, STEADY, "--dsv4-save", "base").assert_outcomes(passed=1)
    renamed = sample(MARKED.replace("test_decode", "test_renamed"), STEADY, "--dsv4-baseline", "base")
    renamed.assert_outcomes(failed=1)
    renamed.stdout.fnmatch_lines(["*holds no measurement of this test*"])


def test_a_marked_test_that_measures_nothing_fails(sample: Callable[..., pytest.RunResult]) -> None:
    result = sample(MARKED.replace('dsv4_run("smoke")', "pass"), STEADY, "--dsv4-save", "base")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*this test measured nothing*"])


def test_a_run_that_fails_fails_the_test_and_shows_why(sample: Callable[..., pytest.RunResult]) -> None:
    result = sample(MARKED, [10.0, "fail"], "--dsv4-save", "base")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*ended with exit code 1:*", "*the fake device is on fire*"])


def test_another_configuration_is_not_compared(sample: Callable[..., pytest.RunResult]) -> None:
    sample(MARKED, STEADY, "--dsv4-save", "base").assert_outcomes(passed=1)
    changed = MARKED.replace('"smoke"', '"smoke", engine={"depth": 1}')
    result = sample(changed, STEADY, "--dsv4-baseline", "base")
    result.assert_outcomes(failed=1)
    assert "NOT-COMPARABLE" in summary(result)
    allowed = sample(changed, STEADY, "--dsv4-baseline", "base", "--dsv4-allow-different")
    allowed.assert_outcomes(passed=1)


def test_the_gate_fixture_takes_metrics_by_name_and_returns_the_result(
    sample: Callable[..., pytest.RunResult],
) -> None:
    tests = """
        def test_both(dsv4_run, dsv4_gate):
            measurement = dsv4_run("smoke", **{"engine.depth": 2})
            assert [round(value, 3) for value in measurement.values("tpot")] == VALUES
            result = dsv4_gate(measurement, tpot=0.02, step_time=0.05)
            assert result is None or [m.name for m in result.metrics if m.judged] == ["tpot", "step_time"]
    """.replace("VALUES", str(STEADY))
    sample(tests, STEADY, "--dsv4-save", "base").assert_outcomes(passed=1)
    sample(tests, STEADY, "--dsv4-baseline", "base").assert_outcomes(passed=1)


def test_an_unmarked_test_measures_once(sample: Callable[..., pytest.RunResult]) -> None:
    tests = """
        def test_report(dsv4_run):
            measurement = dsv4_run()
            assert len(measurement.directories) == 1
            assert measurement.report.run.status == "complete"
    """
    sample(tests, STEADY).assert_outcomes(passed=1)


def test_runs_may_start_a_server(sample: Callable[..., pytest.RunResult]) -> None:
    tests = """
        import json

        def test_served(dsv4_run):
            measurement = dsv4_run(server_kind="mine.toml", server={"port": 9})
            (directory,) = measurement.directories
            assert json.loads((directory / "server.json").read_text()) == ["mine.toml", "server.port=9"]
    """
    sample(tests, STEADY).assert_outcomes(passed=1)


def test_a_marker_with_a_misspelt_argument_is_refused(sample: Callable[..., pytest.RunResult]) -> None:
    result = sample(MARKED.replace("max_regression", "max_regresion"), STEADY, "--dsv4-save", "base")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*the marker tpot takes max_regression, limit, excluded, runs by name; got max_regresion*"]
    )


def test_under_xdist_no_two_runs_overlap_and_the_summary_is_whole(
    sample: Callable[..., pytest.RunResult], pytester: pytest.Pytester
) -> None:
    four = "import pytest\n" + "".join(
        f"@pytest.mark.tpot(runs=2)\ndef test_{name}(dsv4_run):\n    dsv4_run()\n" for name in "abcd"
    )
    result = sample(four, [10.0], "--dsv4-save", "base", "-n", "2")
    result.assert_outcomes(passed=4)
    assert summary(result).count("saved ") == 4
    events = [line.split() for line in (pytester.path / "events").read_text().splitlines()]
    assert len(events) == 4 * 5 * 2
    for (begin, first), (end, second) in zip(events[::2], events[1::2], strict=True):
        assert (begin, end) == ("begin", "end")
        assert first == second


def test_help_shows_the_options(sample: Callable[..., pytest.RunResult]) -> None:
    text = "\n".join(sample("", STEADY, "--help").outlines)
    for option in (
        "--dsv4-baseline",
        "--dsv4-save",
        "--dsv4-runs",
        "--dsv4-command",
        "--dsv4-allow-different",
    ):
        assert option in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--dsv4-baseline", "nowhere"], "--dsv4-baseline nowhere: no such directory"),
        (["--dsv4-runs", "0"], "--dsv4-runs 0: expected a whole number of at least 1"),
    ],
)
def test_options_that_cannot_work_are_refused_at_once(
    sample: Callable[..., pytest.RunResult], arguments: list[str], said: str
) -> None:
    result = sample(MARKED, STEADY, *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert said in "\n".join(result.errlines)


def test_the_plugin_loads_nothing_heavy(sample: Callable[..., pytest.RunResult]) -> None:
    tests = """
        import sys

        def test_light():
            assert not {"torch", "numpy", "msgspec", "rich"} & set(sys.modules)
    """
    sample(tests, STEADY).assert_outcomes(passed=1)
