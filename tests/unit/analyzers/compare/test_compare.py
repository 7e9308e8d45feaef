"""`dsv4bench compare` on small runs with known changes: every number was worked out by hand.

A step of a small run takes 11 ms and the longest runner (20 ms): 31 ms. Its four requests get 2 and 1 tokens in turn.
"""

from __future__ import annotations

import functools
import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from analyzers.compare.compare import compare
from analyzers.compare.model import Comparison, MetricChange, StepTimeChange
from analyzers.compare.render import render, render_terminal
from analyzers.errors import NoDataError, NotComparableError, UnusableInputError
from dsv4bench.cli import app
from tests.builders.comparable_runs import DECODE, MS, RANKS, write_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    write_run(root / "base")
    write_run(root / "slow-rank", rank_runner_ms={3: 22.0})
    write_run(root / "worse-drafts", tokens=(2, 1, 1, 1))
    write_run(root / "both", runner_ms=26.2, tokens=(2, 1, 1, 1))
    write_run(root / "without-ranks", runner_ms=21.0, ranks_recorded=False)
    write_run(root / "without-scheduler", scheduled=False)
    write_run(root / "other", settings={"engine": {"mtp": 0}, "load": {"requests": 16}}, processor="q")
    for index in range(4):
        write_run(root / "sets" / "a" / f"run-{index}", runner_ms=20 + 0.2 * index)
        write_run(root / "sets" / "b" / f"run-{index}", runner_ms=21.5 + 0.2 * index, prepare_ms=3.0)
    return root


@functools.cache
def compared(runs: Path, a: str, b: str, *, allow_different: bool = False) -> Comparison:
    return compare([str(runs / a)], [str(runs / b)], allow_different=allow_different)


def of(comparison: Comparison, name: str) -> MetricChange:
    return next(entry for entry in comparison.metrics if entry.name == name)


def changes(step_time: StepTimeChange) -> dict[str, float]:
    return {entry.phase: entry.time.change for entry in step_time.phases if entry.time.change}


def plain(comparison: Comparison, width: int) -> str:
    output = io.StringIO()
    render_terminal(comparison, Console(file=output, width=width, force_terminal=True))
    return re.sub(r"\x1b\[[0-9;]*m", "", output.getvalue())


def test_a_slow_rank_is_found_in_its_runner_and_nowhere_else(runs: Path) -> None:
    comparison = compared(runs, "base", "slow-rank")
    [step_time] = comparison.step_time
    assert (step_time.wall.a, step_time.wall.b, step_time.a_steps) == (31 * MS, 33 * MS, 23)
    assert changes(step_time) == {"runner": 2 * MS}
    assert step_time.statement == (
        "From step to step 2.000 ms longer (31.000 to 33.000 ms, +6.5 %): runner +2.000 ms."
    )
    [ranks] = comparison.ranks
    assert (ranks.callable, ranks.scope, ranks.moved) == (DECODE, "steady", [3])
    runners = {entry.rank: entry.runner_run for entry in ranks.ranks}
    assert {rank: change.change for rank, change in runners.items() if change} == {
        **dict.fromkeys(range(RANKS), 0.0),
        3: 2 * MS,
    }
    moved = runners[3]
    assert moved is not None
    assert (moved.a, moved.b, moved.ratio) == (20 * MS, 22 * MS, 1.1)
    roots = {entry.rank: entry.root for entry in ranks.ranks}
    assert roots[3] is not None
    assert (roots[3].a, roots[3].b) == (22 * MS, 24 * MS)
    assert ranks.statement == (
        "Apart from the others moved rank 3 (runner_run 20.000 to 22.000 ms, +10.0 %); the other 7 moved by +0.0 % "
        "(median)."
    )
    figures = {entry.figure: entry.time for entry in ranks.figures}
    # The others end 2 ms before rank 3 does, and all of them start together.
    assert (figures["runner-end skew"].change, figures["runner-start skew"].change) == (2 * MS, 0)
    assert figures["runner_run"].change == pytest.approx(2 * MS / RANKS)
    assert (of(comparison, "tpot").a_median, of(comparison, "step_time").ratio) == (
        pytest.approx(31 * 24 / 36),
        pytest.approx(33 / 31),
    )


def test_worse_drafts_cost_tokens_and_leave_the_step_alone(runs: Path) -> None:
    comparison = compared(runs, "base", "worse-drafts")
    # 36 tokens behind the first one in 24 steps become 30.
    assert of(comparison, "tpot").ratio == pytest.approx(36 / 30)
    assert of(comparison, "step_time").ratio == pytest.approx(1)
    assert (of(comparison, "tokens_per_step").a, of(comparison, "tokens_per_step").b) == ([1.5], [1.25])
    assert (of(comparison, "acceptance_length").a, of(comparison, "acceptance_length").b) == ([1.5], [1.25])
    assert comparison.statement == (
        "Slower per token (+20.0 %), the same per step (+0.0 %), fewer tokens a step (-16.7 %; acceptance length "
        "1.500 to 1.250): what a step yields moved, not the step time."
    )
    [step_time], [ranks] = comparison.step_time, comparison.ranks
    assert changes(step_time) == {}
    assert "no phase moved" in step_time.statement
    assert (ranks.moved, ranks.statement) == (
        [],
        "No rank moved: every runner_run is within 1 % (+0.0 % to +0.0 %).",
    )


def test_token_cost_stands_first_and_together(runs: Path) -> None:
    comparison = compared(runs, "base", "both")
    assert [entry.name for entry in comparison.metrics[:4]] == [
        "tpot",
        "step_time",
        "tokens_per_step",
        "acceptance_length",
    ]
    # 37.2 ms a step instead of 31: 1.2 times; 1.25 tokens a step instead of 1.5: 1.2 / (5 / 6) = 1.44 times a token.
    assert of(comparison, "tpot").ratio == pytest.approx(1.44)
    assert "step time and tokens a step both moved" in comparison.statement
    assert "all 8 ranks moved by +31.0 %" in comparison.ranks[0].statement


def test_one_run_a_side_has_no_p_value_and_says_why(runs: Path) -> None:
    comparison = compared(runs, "base", "slow-rank")
    assert {(entry.p_value, entry.interval, entry.effect) for entry in comparison.metrics} == {
        (None, None, None)
    }
    assert comparison.step_time[0].wall.p_value is None
    assert "unavailable: one run a side; the run is the sample" in comparison.certainty[0]
    assert "not controlled" in comparison.certainty[1]
    within = {entry.figure: entry for entry in comparison.distributions}
    assert within["step_time of the requests"].a.n == 4 * 24
    assert within["submit_to_completion, steady steps"].b.max == 27 * MS


def test_runs_are_the_sample(runs: Path) -> None:
    comparison = compare([str(runs / "sets" / "a" / "run-*")], [str(runs / "sets" / "b")])
    assert [Path(path).name for path in comparison.a.runs] == ["run-0", "run-1", "run-2", "run-3"]
    step = of(comparison, "step_time")
    assert step.a == pytest.approx([31.0, 31.2, 31.4, 31.6])
    assert step.b == pytest.approx([33.5, 33.7, 33.9, 34.1])
    assert (step.a_median, step.b_median) == (pytest.approx(31.3), pytest.approx(33.8))
    # Of the C(8, 4) = 70 orders one has every run of B above every run of A, and one every run below.
    assert (step.p_value, step.effect) == (pytest.approx(2 / 70), 1.0)
    # The least and the greatest of the 16 ratios: P(U <= 0) = 1 / 70 on each side.
    interval = step.interval
    assert interval is not None
    assert (interval.low, interval.high) == (pytest.approx(33.5 / 31.6), pytest.approx(34.1 / 31.0))
    assert interval.confidence == pytest.approx(1 - 2 / 70)
    [step_time] = comparison.step_time
    assert changes(step_time) == pytest.approx({"prepare": MS, "runner": 1.5 * MS})
    assert step_time.wall.change == pytest.approx(2.5 * MS)
    assert step_time.wall.p_value == pytest.approx(2 / 70)
    assert comparison.distributions == []


def test_three_runs_a_side_cannot_reach_a_small_p_value_and_say_so(runs: Path) -> None:
    comparison = compare([str(runs / "sets/a/run-[0-2]")], [str(runs / "sets/b/run-[0-2]")])
    assert of(comparison, "step_time").p_value == pytest.approx(2 / 20)
    interval = of(comparison, "step_time").interval
    assert interval is not None
    assert (interval.low, interval.high) == (None, None)
    assert "no p-value can be below 0.100" in comparison.certainty[0]
    assert "not told from noise (p = 0.100)" in comparison.statement


def test_settings_that_differ_are_refused_with_their_list(runs: Path) -> None:
    with pytest.raises(NotComparableError) as refusal:
        compared(runs, "base", "other")
    assert refusal.value.exit_code == 5
    for setting in ("engine.mtp: 1 vs 0", "load.requests: 4 vs 16", "machine", "p vs q", "--allow-different"):
        assert setting in str(refusal.value)
    comparison = compared(runs, "base", "other", allow_different=True)
    assert {item.key for item in comparison.differences} >= {"engine.mtp", "load.requests"}
    assert of(comparison, "tpot").ratio == pytest.approx(1)


def test_runs_of_one_side_must_be_alike(runs: Path) -> None:
    with pytest.raises(NotComparableError, match="within B"):
        compare([str(runs / "base")], [str(runs / "slow-rank"), str(runs / "other")])


def test_a_phase_that_one_side_does_not_record_is_in_the_remainder_of_both(runs: Path) -> None:
    [step_time] = compared(runs, "base", "without-scheduler").step_time
    assert step_time.folded == {"schedule": "remainder"}
    remainder = next(entry.time for entry in step_time.phases if entry.phase == "remainder")
    assert (remainder.a, remainder.b) == (2 * MS, 2 * MS)
    assert changes(step_time) == {}


def test_without_ranks_on_one_side_their_phases_are_wait_on_both(runs: Path) -> None:
    comparison = compared(runs, "base", "without-ranks")
    [step_time] = comparison.step_time
    assert set(step_time.folded) == {"queue", "bind", "runner", "validate"}
    assert changes(step_time) == {"wait": MS}
    # Queue 1, bind 1, runner 20, validate 1 and wait 1 ms.
    assert next(entry.time.a for entry in step_time.phases if entry.phase == "wait") == 24 * MS
    assert comparison.ranks == []
    assert "critical_rank" in comparison.only_a
    assert comparison.only_b == []


def test_single_files_are_compared_as_far_as_they_go(runs: Path) -> None:
    logs = compared(runs, "base/strace/rank-3.log", "slow-rank/strace/rank-3.log")
    assert logs.ranks[0].statement == "Rank 3 (runner_run 20.000 to 22.000 ms, +10.0 %)."
    assert changes(logs.step_time[0]) == {"runner": 2 * MS}
    assert "unavailable" in logs.statement
    assert "no run.json" in logs.not_checked[0]
    requests = compared(runs, "base/requests.jsonl", "worse-drafts/requests.jsonl")
    assert of(requests, "tpot").ratio == pytest.approx(1.2)
    assert (requests.step_time, requests.ranks) == ([], [])


def test_sides_without_a_common_figure_are_no_data(runs: Path) -> None:
    with pytest.raises(NoDataError, match="no figure in common"):
        compared(runs, "base/requests.jsonl", "base/strace/rank-3.log", allow_different=True)


def test_a_run_counts_once_on_a_side(runs: Path) -> None:
    with pytest.raises(UnusableInputError, match="twice on side B"):
        compare([str(runs / "base")], [str(runs / "slow-rank"), str(runs / "slow-rank") + "/"])
    with pytest.raises(UnusableInputError, match="no such file"):
        compared(runs, "base", "missing-*")


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(("a", "b"), [("base", "slow-rank"), ("base", "without-ranks"), ("sets/a", "sets/b")])
def test_every_table_fits_a_terminal(runs: Path, a: str, b: str, width: int) -> None:
    text = plain(compared(runs, a, b), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text


def test_the_sum_of_the_phases_is_printed_beside_the_change_of_the_step(runs: Path) -> None:
    text = render(compared(runs, "sets/a", "sets/b"), "table")
    assert re.search(r"^sum of phases +- +- +\+2\.500 ", text, re.MULTILINE)
    assert re.search(r"^step +31\.300 +33\.800 +\+2\.500 +1\.080 +- +0\.029", text, re.MULTILINE)
    assert re.search(
        r"^step_time ms +31\.300 +33\.800 +1\.080 +1\.060\.\.1\.100 +0\.029 +100%", text, re.MULTILINE
    )


def test_markdown_holds_what_the_terminal_shows(runs: Path) -> None:
    text = render(compared(runs, "base", "slow-rank"), "md")
    assert "- **From step to step 2.000 ms longer" in text
    assert "| 3\\* | 20.000 | 22.000 | 1.100 | 22.000 | 24.000 | 1.091 |" in text
    assert "| runner | 20.000 | 22.000 | +2.000 | 1.100 | 100 % |" in text


def test_the_command(runs: Path, tmp_path: Path) -> None:
    # A shell expands the globs: every path behind --a is one of A's.
    paths = [[str(runs / "sets" / side / f"run-{index}") for index in range(4)] for side in "ab"]
    done = CliRunner().invoke(app, ["compare", "--a", *paths[0], "--json", "--b", *paths[1]])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["schema_version"] == 1
    assert (document["a"]["runs"], document["b"]["runs"]) == (paths[0], paths[1])
    assert document["step_time"][0]["wall"]["change"] == pytest.approx(2.5 * MS)
    out = tmp_path / "comparison.md"
    done = CliRunner().invoke(
        app, ["compare", str(runs / "base"), str(runs / "base"), "--format", "md", "--out", str(out)]
    )
    assert (done.exit_code, done.stdout) == (0, "")
    assert out.read_text().startswith("# Comparison\n")
    for arguments in (
        [paths[0][0]],
        ["--a", *paths[0]],
        [*paths[0]],
        [paths[0][0], paths[1][0], "--a", paths[0][1]],
    ):
        assert CliRunner().invoke(app, ["compare", *arguments]).exit_code == 2
