"""Tables and sentences on a terminal, through rich; plain text when the output is no terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich import box
from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from analyzers.text.escapes import printable
from analyzers.text.tables import Column, Table

_NAME_WIDTH = 28
"""Characters that the first column keeps, which names the rows; figures that matter less are left out before."""

_LONGEST_WORDS = (30, 10)
"""Characters from which a word, a path for example, is folded in a table that is too wide; the second if it still is."""

_BETWEEN = 3
"""Characters between two columns."""

_SEPARATORS = re.compile(r"(?<=::)|(?<=[./_\\-])|(?<=(?<!:):(?!:))")
"""Behind these a name that is too long for its column is folded."""

_CAPITALS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def print_line(line: Text, console: Console) -> None:
    """A sentence: wrapped for a terminal, one line for whoever searches the output of a pipe."""
    console.print(line, soft_wrap=not console.is_terminal)


def print_table(table: Table, console: Console) -> None:
    """Print one table with its notes, and a note of what was left out because the terminal is narrow."""
    console.print(Text(printable(table.title), style="bold"))
    rows = [[printable(cell) for cell in row] for row in table.written()]
    shown = _shown_columns(table.columns, rows, console.width)
    left_out = [column.heading for index, column in enumerate(table.columns) if index not in shown]
    columns = [table.columns[index] for index in shown]
    rows = [[row[index] for index in shown] for row in rows]
    widths = _column_widths(columns, rows, console.width)
    whole = sum(widths) + _BETWEEN * (len(widths) - 1)
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, width=whole)
    for column, width in zip(columns, widths, strict=True):
        drawn.add_column(
            Text(printable(column.heading)),
            justify="left" if column.is_text else "right",
            overflow="fold",
            width=width,
        )
    for row in rows:
        drawn.add_row(*(Text(fold(cell, width)) for cell, width in zip(row, widths, strict=True)))
    # What does not fit at all runs on into the next line of the terminal: no figure is cut.
    console.print(drawn, crop=False)
    notes = [f"{', '.join(left_out)} left out at this width"] if left_out else []
    for note in [*notes, *table.notes]:
        print_line(Text(printable(note), style="dim"), console)
    console.print()


def fold(text: str, width: int) -> str:
    """`text` in lines of at most `width` characters: folded between words, and words that are longer at separators."""
    lines = [""]
    for word in re.findall(r"\s*\S+", text):
        fits_a_line = cell_len(word.strip() if lines != [""] else word) <= width
        for part in [word] if fits_a_line else _parts(word, width):
            if cell_len(lines[-1] + part) <= width:
                lines[-1] += part
                continue
            if lines[-1].strip():
                lines.append("")
            lines[-1:] = chop_cells(lines[-1] + part.strip(), width) or [""]
    return "\n".join(lines)


def _parts(word: str, width: int) -> Iterator[str]:
    """A long word in the parts that separators make, those that are still too long before their capitals."""
    for part in _SEPARATORS.split(word):
        yield from [part] if cell_len(part) <= width else _CAPITALS.split(part)


def _shown_columns(columns: Sequence[Column], rows: Sequence[Sequence[str]], available: int) -> list[int]:
    """The columns that fit beside names of `_NAME_WIDTH`: those that say nothing go first, then by `dispensable`."""
    least = [
        _least_width(column, [row[index] for row in rows], _LONGEST_WORDS[0])
        for index, column in enumerate(columns)
    ]
    if columns[0].is_text:
        asked = max(map(cell_len, [columns[0].heading, *(row[0] for row in rows)]))
        least[0] = max(least[0], min(asked, _NAME_WIDTH))
    says_nothing = [
        all(row[index] in ("", column.absent) for row in rows) for index, column in enumerate(columns)
    ]
    shown = list(range(len(columns)))
    for index in sorted(shown, key=lambda index: (not says_nothing[index], columns[index].dispensable)):
        if sum(least[kept] for kept in shown) + _BETWEEN * (len(shown) - 1) <= available:
            break
        if columns[index].dispensable:
            shown.remove(index)
    return shown


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
        if columns[0].is_text and longest_word == _LONGEST_WORDS[0]:
            widths[0] = max(widths[0], min(asked[0], _NAME_WIDTH))
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
    return max(_heading_width(column.heading), *map(cell_len, cells), 0)


def _heading_width(heading: str) -> int:
    """The least width in which a heading takes two lines, folded between words."""
    words = heading.split()
    splits = [(" ".join(words[:index]), " ".join(words[index:])) for index in range(1, len(words) + 1)]
    return min((max(map(cell_len, lines)) for lines in splits), default=0)
