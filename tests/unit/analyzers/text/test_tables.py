"""Typed tables: how values are written, and how the renderings draw them."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from analyzers.report.html.parts import table_markup
from analyzers.text.figures import brief_percent, number, percent
from analyzers.text.markdown import render_table
from analyzers.text.tables import Cell, CellKind, Column, Table
from analyzers.text.terminal import print_table

TABLE = Table(
    "Phases (ms)",
    [
        Column("phase"),
        Column("n", CellKind.COUNT),
        Column("mean", CellKind.TIME),
        Column("p95", CellKind.TIME, absent="-"),
        Column("share", CellKind.SHARE),
        Column("drafts", CellKind.FIGURES),
        Column("why"),
    ],
    [
        ["bind", 24, 1_234_567, None, 0.256, "3 of 4", "kept\nwaiting"],
        ["idle", 0, None],
    ],
    ["a note"],
)


def drawn(table: Table, width: int = 80) -> str:
    output = io.StringIO()
    print_table(table, Console(file=output, width=width))
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines())


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        (Column("a"), "word", "word"),
        (Column("a", CellKind.COUNT), 12_000, "12000"),
        (Column("a", CellKind.NUMBER), 1.23456, "1.235"),
        (Column("a", CellKind.TIME), 1_234_567, "1.235"),
        (Column("a", CellKind.SHARE), 0.256, "25.6 %"),
        (Column("a", CellKind.NUMBER, "{:g}".format), 0.5, "0.5"),
        (Column("a", CellKind.TIME), None, "unavailable"),
        (Column("a", CellKind.TIME, absent="-"), None, "-"),
        (Column("a", CellKind.TIME, absent="-"), 0, "0.000"),
        (Column("a"), "", ""),
    ],
)
def test_a_value_is_written_by_its_column_and_nothing_is_not_zero(
    column: Column, value: Cell, text: str
) -> None:
    assert column.written(value) == text


def test_a_short_row_leaves_the_last_columns_empty() -> None:
    assert TABLE.written()[1] == ["idle", "0", "unavailable", "", "", "", ""]


def test_words_stand_on_the_left_and_numbers_on_the_right_in_every_rendering() -> None:
    text = drawn(TABLE)
    assert "phase    n          mean   p95    share   drafts   why" in text
    assert "bind    24         1.235     -   25.6 %   3 of 4   kept\ufffdwaiting" in text
    assert "idle     0   unavailable" in text
    markdown = render_table(TABLE).splitlines()
    assert markdown[3] == "| --- | ---: | ---: | ---: | ---: | ---: | --- |"
    assert markdown[4] == "| bind | 24 | 1.235 | - | 25.6 % | 3 of 4 | kept\ufffdwaiting |"
    assert markdown[5] == "| idle | 0 | unavailable |  |  |  |  |"
    assert markdown[7] == "a note"
    html = table_markup(TABLE).html
    assert '<td>bind</td><td class="number">24</td><td class="number">1.235</td>' in html
    assert '<td class="number">3 of 4</td><td>kept\ufffdwaiting</td></tr>' in html


def test_on_a_narrow_terminal_words_wrap_and_figures_stay_whole() -> None:
    columns = [Column("what"), Column("value", CellKind.FIGURES)]
    text = drawn(Table("T", columns, [["one two three four five six", "1234 of 5678"]]), width=24)
    assert "1234 of 5678" in text
    assert max(map(len, text.splitlines())) <= 24


def test_headings_are_escaped_like_cells() -> None:
    table = Table("a|b", [Column("c_d|\x1b")], [["e|f"]])
    assert render_table(table) == "## a\\|b\n\n| c\\_d\\|\ufffd |\n| --- |\n| e\\|f |\n"
    assert "\x1b" not in drawn(table)


@pytest.mark.parametrize(
    ("share", "fixed", "brief"),
    [
        (0.02, "+2.0 %", "+2 %"),
        (0.06184, "+6.2 %", "+6.18 %"),
        (0.1234, "+12.3 %", "+12.3 %"),
        (0.0, "+0.0 %", "0 %"),
    ],
)
def test_percentages_have_fixed_decimals_or_as_many_as_matter(share: float, fixed: str, brief: str) -> None:
    assert percent(share, signed=True) == fixed
    assert brief_percent(share, signed=True) == brief


def test_a_figure_that_is_none_is_unavailable() -> None:
    assert (percent(None), number(None)) == ("unavailable", "unavailable")
    assert (percent(0.5, 0), number(0.5, 1)) == ("50 %", "0.500")
