"""Tables and sentences on a terminal, through rich; plain text when the output is no terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from analyzers.text.escapes import printable
from analyzers.text.tables import Column, Table

_LONGEST_WORDS = (30, 10)
"""Characters from which a word, a path for example, is folded in a table that is too wide; the second if it still is."""

_BETWEEN = 3
"""Characters between two columns."""


def print_line(line: Text, console: Console) -> None:
    """A sentence: wrapped for a terminal, one line for whoever searches the output of a pipe."""
    console.print(line, soft_wrap=not console.is_terminal)


def print_table(table: Table, console: Console) -> None:
    """Print one table with its notes."""
    console.print(Text(printable(table.title), style="bold"))
    rows = [[printable(cell) for cell in row] for row in table.written()]
    widths = _column_widths(table.columns, rows, console.width)
    whole = sum(widths) + _BETWEEN * (len(widths) - 1)
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, width=whole)
    for column, width in zip(table.columns, widths, strict=True):
        drawn.add_column(
            Text(printable(column.heading)),
            justify="left" if column.is_text else "right",
            overflow="fold",
            width=width,
        )
    for row in rows:
        drawn.add_row(*map(Text, row))
    # What does not fit at all runs on into the next line of the terminal: no figure is cut.
    console.print(drawn, crop=False)
    for note in table.notes:
        print_line(Text(printable(note), style="dim"), console)
    console.print()


def _column_widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], available: int) -> list[int]:
    """Characters for each column: what it asks for, less where all together do not fit.

    Then headings and words wrap between words, long words are folded if they must be, and numbers stay whole.
    """
    cells = [[row[index] for row in rows] for index in range(len(columns))]
    asked = [
        max(map(cell_len, [column.heading, *below])) for column, below in zip(columns, cells, strict=True)
    ]
    for longest_word in _LONGEST_WORDS:
        widths = [
            _least_width(column, below, longest_word) for column, below in zip(columns, cells, strict=True)
        ]
        spare = available - sum(widths) - _BETWEEN * (len(widths) - 1)
        if spare >= 0:
            break
    for index in sorted(range(len(asked)), key=lambda index: asked[index] - widths[index]):
        more = max(0, min(asked[index] - widths[index], spare))
        widths[index] += more
        spare -= more
    return widths


def _least_width(column: Column, cells: Sequence[str], longest_word: int) -> int:
    if column.is_text:
        return min(longest_word, max(map(cell_len, " ".join([column.heading, *cells]).split()), default=0))
    return max(map(cell_len, [*column.heading.split(), *cells]), default=0)
