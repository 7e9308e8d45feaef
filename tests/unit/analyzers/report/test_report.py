"""Renderings draw the one report model, at any width, with nothing of a file taken for markup.

What whole reports look like is held by tests/golden.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from analyzers.analysis import analyze
from analyzers.report.markdown import render_markdown
from analyzers.report.model import Report
from analyzers.report.tables import report_tables, validation_tables
from analyzers.report.terminal import render_terminal
from tests.builders.places import CASES, TRACES
from tests.builders.requests import request, write_requests


@pytest.fixture(scope="module")
def report() -> Report:
    return analyze([TRACES / "simpler-l3_n4_slow_rank2.log"])


def drawn(report: Report, width: int) -> str:
    output = io.StringIO()
    render_terminal(
        report, report_tables(report), Console(file=output, width=width, force_terminal=True, no_color=True)
    )
    return re.sub(r"\x1b\[[0-9;]*m", "", output.getvalue())


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_of_any_usual_width_shows_all_of_every_cell(report: Report, width: int) -> None:
    text = drawn(report, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text


def test_the_headline_is_the_first_line_of_a_terminal_and_bold(report: Report) -> None:
    output = io.StringIO()
    console = Console(file=output, width=120, force_terminal=True, color_system="standard")
    render_terminal(report, report_tables(report), console)
    first, *others = output.getvalue().splitlines()
    assert (
        re.sub(r"\x1b\[[0-9;]*m", "", first)
        == "warning: hid 95c9a089a142b608: rank 2 is persistently the last to end"
    )
    assert "\x1b[1mhid 95c9a089a142b608: rank 2" in first
    second = next(line for line in others if "late starts and" in line)
    assert "\x1b[1m" not in second


def test_a_validation_shows_completeness_and_lifecycles_only() -> None:
    report = analyze([CASES / "42-wait-nested-in-submit-zero-gap" / "trace.json"])
    assert [table.title for table in validation_tables(report)] == [
        "Inputs",
        "Lifecycles",
        "Lifecycle faults",
    ]


def test_names_of_foreign_files_are_neither_markup_nor_escapes(tmp_path: Path) -> None:
    name = "[bold]a|b\\u001b[31m<script>"
    path = tmp_path / "trace.json"
    path.write_text('[{"ph":"X","name":"NAME","pid":1,"tid":1,"ts":1,"dur":1}]'.replace("NAME", name))
    report = analyze([path])
    terminal = drawn(report, 120)
    assert "[bold]a|b\ufffd[31m<script>" in terminal
    markdown = render_markdown(report, report_tables(report), "Analysis")
    assert "\\[bold]a\\|b\ufffd\\[31m\\<script>" in markdown
    assert "\x1b" not in terminal + markdown


def test_figures_that_cannot_be_had_are_unavailable_not_zero() -> None:
    report = analyze([TRACES / "simpler-l2_pipe_depth2.log"])
    [table] = [table for table in report_tables(report) if table.title.startswith("Ranks")]
    row = next(row for row in table.written() if row[0] == "runner-start skew")
    assert row[:3] == ["runner-start skew", "0", "unavailable"]


def test_prefix_reuse_has_a_row_where_requests_tell_of_it(tmp_path: Path) -> None:
    def rows(*cached: int | None) -> list[list[str]]:
        records = [
            request(f"r{index}", [10, 20], cached_tokens=tokens) for index, tokens in enumerate(cached)
        ]
        path = write_requests(tmp_path / "requests.jsonl", *records)
        overview = next(table for table in report_tables(analyze([path])) if table.title == "Overview")
        return [row for row in overview.written() if row[0] == "prefix reuse"]

    assert rows(None, None) == []
    assert rows(0, 256, 128) == [
        ["prefix reuse", "384 prompt tokens not prefilled, 2 of 3 requests", "requests"]
    ]
