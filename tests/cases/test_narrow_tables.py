"""Tables on narrow terminals (case 121)."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from analyzers.analysis import analyze
from analyzers.report.tables import report_tables
from analyzers.text.markdown import render_table
from analyzers.text.tables import CellKind, Column, Table
from analyzers.text.terminal import fold, print_table
from tests.builders.places import CASES

NAME = "Startup.Renderer.LoadTime.ProcessCreationToRunLoop"


def drawn(table: Table, width: int) -> list[str]:
    output = io.StringIO()
    print_table(table, Console(file=output, width=width))
    return output.getvalue().splitlines()


def spans_by_name() -> Table:
    report = analyze([CASES / "121-names-folded-to-ten-letters" / "trace.json"])
    return next(table for table in report_tables(report) if table.title.startswith("Spans by name"))


def test_121_at_120_columns_everything_is_there() -> None:
    lines = drawn(spans_by_name(), 120)
    assert lines[1].split() == ["span", "n", "total", "self", "depth", "mean", "p50", "max"]
    assert lines[3].startswith(NAME)
    assert not any("left out" in line for line in lines)


@pytest.mark.parametrize("width", [80, 60, 40])
def test_121_figures_go_before_names_are_folded(width: int) -> None:
    lines = drawn(spans_by_name(), width)
    assert max(map(len, lines[:5])) <= width
    assert [lines[3][:28].rstrip(), lines[4].rstrip()] == [
        "Startup.Renderer.LoadTime.",
        "ProcessCreationToRunLoop",
    ]
    assert "7760.895" in lines[3]
    [note] = [line for line in lines if line.endswith("left out at this width")]
    headings = lines[1].split()
    every = {column.heading for column in spans_by_name().columns}
    assert set(note.removesuffix(" left out at this width").split(", ")) == every - set(headings)


def test_121_columns_that_say_nothing_go_first() -> None:
    # 120 columns are not enough for two columns more, of which one holds nothing.
    wide = Table(
        "t",
        [
            Column("name"),
            Column("a", CellKind.COUNT, dispensable=1),
            Column("b", CellKind.TIME, dispensable=9),
        ],
        [["x" * 28, 123456, None]],
    )
    [note] = [line for line in drawn(wide, 40) if "left out" in line]
    assert note == "b left out at this width"


def test_121_other_renderings_keep_every_column() -> None:
    table = spans_by_name()
    assert all(f" {column.heading} |" in render_table(table) for column in table.columns)


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("a::bcd::efg", 6, ["a::", "bcd::", "efg"]),
        ("a::bcd::efg", 9, ["a::bcd::", "efg"]),
        ("/work/shared/run_of_today", 14, ["/work/shared/", "run_of_today"]),
        ("two words here", 9, ["two words", "here"]),
        ("  deep.er", 7, ["  deep.", "er"]),
        ("x.RendererStartRunLoop", 17, ["x.RendererStart", "RunLoop"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("short", 9, ["short"]),
        ("", 4, [""]),
    ],
)
def test_121_names_are_folded_at_their_separators(text: str, width: int, lines: list[str]) -> None:
    assert fold(text, width).split("\n") == lines


def test_121_folding_loses_no_letter() -> None:
    text = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int, float) 列車.列"
    for width in range(2, 60):
        assert re.sub(r"\s", "", fold(text, width)) == re.sub(r"\s", "", text)
