"""Published figures beside measured ones: each by its path, in its unit, and never one for another."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from analyzers.analysis import analyze
from analyzers.errors import UnusableInputError
from analyzers.measurement import AnalysisOptions
from analyzers.recording.filters import Filters
from analyzers.report.html import render_html
from analyzers.report.json import render_json
from analyzers.report.markdown import render_markdown
from analyzers.report.model import Report
from analyzers.report.paths import figure_at
from analyzers.report.published import BesideFigure, PublishedComparison, published_of_table
from analyzers.report.published_table import MACHINES_DIFFER
from analyzers.report.tables import report_tables
from analyzers.report.terminal import render_terminal
from analyzers.rundir import RunDirectory
from dsv4bench.profile import load_profile, profile_as_dict
from tests.builders.comparable_runs import DECODE, OVERHEAD_MS, RANKS, REQUESTS, RUNNER_MS, STEPS, write_run


def figure(title: str, value: float, unit: str, *paths: str) -> dict[str, Any]:
    return {"title": title, "value": value, "unit": unit, "paths": list(paths)}


def published(*figures: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"system": "8 cards", "source": "a change request", "figures": list(figures), **fields}


def run_with(root: Path, table: Any) -> Path:
    """A small run whose profile has `table` as `[published]`."""
    manifest = RunDirectory(write_run(root)).manifest
    document = json.loads(manifest.read_text())
    document["profile"]["published"] = table
    manifest.write_text(json.dumps(document))
    return root


def report_with(root: Path, table: Any, **options: Any) -> Report:
    return analyze([run_with(root, table)], AnalysisOptions(**options))


def comparison(root: Path, *figures: dict[str, Any], **fields: Any) -> PublishedComparison:
    found = report_with(root, published(*figures, **fields)).published
    assert found is not None
    return found


def test_each_figure_stands_beside_the_measured_one_in_its_unit(tmp_path: Path) -> None:
    found = comparison(
        tmp_path,
        figure("output tokens", 8192, "tokens", "requests[measured].output_tokens"),
        figure("step time, mean", 74.957, "ms", "requests[measured].step_time.mean"),
        figure("elapsed", 19.189, "s", "requests[measured].elapsed_ns"),
        figure("rank roots", 1144, "roots", "skew[all,5000000].roots"),
        figure("validate, max", 0.227, "ms", "skew[all].validate.max"),
    )
    tokens = REQUESTS * (1 + STEPS * 3 // 2)
    step_ms = OVERHEAD_MS + RUNNER_MS
    assert found.figures == [
        BesideFigure("output tokens", "tokens", 8192, tokens, "requests", "requests[measured].output_tokens"),
        BesideFigure(
            "step time, mean", "ms", 74.957, step_ms, "requests", "requests[measured].step_time.mean"
        ),
        # Sent 50 ms before the first token, which 24 steps follow.
        BesideFigure(
            "elapsed", "s", 19.189, (50 + STEPS * step_ms) / 1e3, "requests", "requests[measured].elapsed_ns"
        ),
        BesideFigure("rank roots", "roots", 1144, STEPS * RANKS, "STRACE", "skew[all,5000000].roots"),
        BesideFigure("validate, max", "ms", 0.227, 1.0, "STRACE", "skew[all].validate.max"),
    ]


def test_of_several_paths_the_first_that_has_a_value_is_measured(tmp_path: Path) -> None:
    found = comparison(
        tmp_path,
        figure("accepted", 10, "drafts", "run.server.drafts.accepted", "requests[measured].mtp.accepted"),
    )
    assert found.figures[0].measured == REQUESTS * STEPS / 2
    assert found.figures[0].path == "requests[measured].mtp.accepted"


def test_a_figure_that_this_run_does_not_have_is_unavailable_and_no_problem(tmp_path: Path) -> None:
    found = comparison(
        tmp_path,
        figure("warm-up", 1, "tokens", "requests[warmup].output_tokens"),
        figure("from the cache", 3, "programs", "run.program_cache.hits"),
        # Counted against the default of 5 ms: another --late-ms is another figure.
        figure("late", 0, "steps", "skew[all,7000000].rounds_over_late_start_skew"),
    )
    assert [(item.measured, item.problem) for item in found.figures] == [(None, None)] * 3


@pytest.mark.parametrize(
    ("path", "unit", "problem"),
    [
        (
            "requests[measured].elapse_ns",
            "ms",
            "requests[measured].elapse_ns: requests[measured] has no 'elapse_ns'",
        ),
        ("requests[measured].ttft", "ms", "requests[measured].ttft is no number; it holds n, mean"),
        ("requests[measured].ttft.mean", "tokens", "is a time, and 'tokens' is not one of time"),
        ("requests[measured].output_tokens", "ms", "is no time, but was published in ms"),
    ],
)
def test_a_path_that_can_have_no_such_figure_says_why(
    tmp_path: Path, path: str, unit: str, problem: str
) -> None:
    report = report_with(tmp_path, published(figure("x", 1, unit, path)))
    assert report.published is not None
    assert report.published.figures[0].measured is None
    assert problem in (report.published.figures[0].problem or "")
    notes = next(table.notes for table in report_tables(report) if table.title == "Published beside measured")
    assert any(note.startswith("x cannot be measured: ") and problem in note for note in notes)


def test_another_workload_is_named_key_by_key(tmp_path: Path) -> None:
    one = figure("tokens", 1, "tokens", "requests[measured].output_tokens")
    same = {"engine.ranks": RANKS, "load.requests": REQUESTS}
    assert comparison(tmp_path / "same", one, workload=same).differences == []
    other = {"engine.ranks": 4, "load.requests": "none", "load.output_tokens": 256, "load.ramp": "none"}
    assert comparison(tmp_path / "other", one, workload=other).differences == [
        f"engine.ranks is {RANKS}, published with 4",
        f"load.requests is {REQUESTS}, published without it",
        "load.output_tokens is not set, published with 256",
    ]


def test_a_part_of_a_run_and_a_run_without_published_figures_have_none(tmp_path: Path) -> None:
    one = published(figure("tokens", 1, "tokens", "requests[measured].output_tokens"))
    part = report_with(tmp_path / "part", one, filters=Filters(steps=(0, 5)))
    assert part.filters
    assert part.published is None
    assert analyze([write_run(tmp_path / "none")]).published is None
    assert report_with(tmp_path / "null", None).published is None


def test_a_table_of_another_version_takes_no_other_figure_with_it(tmp_path: Path) -> None:
    report = report_with(tmp_path, {"system": "8 cards", "figures": 3})
    assert report.requests
    assert report.published is not None
    assert report.published.figures == []
    table = next(table for table in report_tables(report) if table.title == "Published beside measured")
    assert table.rows == []
    assert "run.json: [published]: " in table.notes[0]


def test_every_rendering_has_the_table_with_its_source_and_that_machines_differ(tmp_path: Path) -> None:
    report = report_with(
        tmp_path,
        published(
            figure("throughput", 426.909, "tokens/s", "requests[measured].throughput_per_s"),
            figure("from the cache", 3, "programs", "run.program_cache.hits"),
            workload={"engine.ranks": 4},
        ),
    )
    tables = report_tables(report, full=False)
    output = io.StringIO()
    render_terminal(report, tables, Console(file=output, width=200, no_color=True))
    for text in (
        output.getvalue(),
        render_markdown(report, tables, "Run"),
        render_html(report, "Run"),
    ):
        for said in (
            "Published beside measured",
            "published, 8 cards",
            "426.909",
            "a change request",
            MACHINES_DIFFER,
            "engine.ranks is 8, published with 4",
            "unavailable",
        ):
            assert said in text, said
    document = json.loads(render_json(report))["published"]
    assert document["source"] == "a change request"
    assert [(item["published"], item["measured"]) for item in document["figures"]] == [
        (426.909, pytest.approx(REQUESTS * 37 / 0.794)),
        (3.0, None),
    ]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (3, r"mine: \[published\]: Expected `object`, got `int`"),
        ({"system": "x", "source": "y"}, r"missing required field `figures`"),
        (published(), r"Expected `array` of length >= 1 - at `\$\.figures`"),
        (published({"title": "x", "value": "1", "paths": ["a.b"]}), r"at `\$\.figures\[0\]\.value`"),
        (published(figure("x", 1, "ms")), r"at `\$\.figures\[0\]\.paths`"),
        (published(figure("x", 1, "ms", "a.b"), reference="z"), r"unknown field `reference`"),
        (published(figure("x", 1, "ms", "a.b"), workload={"ranks": 8}), r"'ranks': write table\.key"),
    ],
)
def test_a_table_that_is_none_says_where(table: Any, message: str) -> None:
    with pytest.raises(UnusableInputError, match=message):
        published_of_table(table, "mine")


@pytest.mark.parametrize("name", ["serving-20", "gbs32-mtp1", "ep4-depth2-soak"])
def test_every_path_of_a_shipped_profile_is_a_figure_of_a_report(name: str, tmp_path: Path) -> None:
    profile = profile_as_dict(load_profile(name))
    found = report_with(tmp_path, profile["published"]).published
    assert found is not None
    assert [item for item in found.figures if item.problem is not None] == []
    absent = {item.title for item in found.figures if item.measured is None}
    # 24 rounds are too few for a p99, and this run says nothing of a cache.
    assert absent <= {"runner-start skew, p99", "programs from the compile cache"}


def test_words_choose_the_first_item_that_has_them_all(tmp_path: Path) -> None:
    report = analyze([write_run(tmp_path)])
    assert [(item.scope, item.callable) for item in report.steps] == [("steady", DECODE), ("all", DECODE)]
    assert figure_at(report, "steps[submit_to_completion,steady].latency.n") == STEPS - 1
    assert figure_at(report, "steps[all].latency.n") == STEPS
    assert figure_at(report, f"steps[{DECODE}, all].latency.n") == STEPS
    assert figure_at(report, "steps[all,steady].latency.n") is None
    assert figure_at(report, "steps[0].latency.max") == figure_at(report, "steps[steady].latency.max")
