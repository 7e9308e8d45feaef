"""The report on a terminal, through rich; plain text when the output is no terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from analyzers.report.model import Finding, Report, Severity
from analyzers.text.tables import Table

_STYLES: dict[Severity, str] = {"error": "bold red", "warning": "yellow", "info": "cyan"}

_LONGEST_WORDS = (30, 10)
"""Characters from which a word, a path for example, is folded in a table that is too wide; the second if it still is."""

_BETWEEN = 3
"""Characters between two columns."""


def render_terminal(report: Report, tables: Sequence[Table], console: Console) -> None:
    """Print the findings, the headline in bold at their head, then every table with its notes."""
    for index, finding in enumerate(report.findings):
        _print_finding(finding, console, headline=index == 0)
    if report.findings:
        console.print()
    for table in tables:
        print_table(table, console)


def _print_finding(finding: Finding, console: Console, *, headline: bool) -> None:
    line = Text()
    healthy = finding.code == "healthy"
    line.append(f"{finding.severity}: ", style="bold green" if healthy else _STYLES[finding.severity])
    line.append(printable(finding.title), style="bold" if headline else "")
    _print_line(line, console)
    details = [finding.evidence, *([finding.advice] if finding.advice else [])]
    for detail in details:
        _print_detail(Text(printable(detail), style="dim"), console)


def print_table(table: Table, console: Console) -> None:
    """Print one table with its notes."""
    console.print(Text(printable(table.title), style="bold"))
    widths = _column_widths(table, console.width)
    whole = sum(widths) + _BETWEEN * (len(widths) - 1)
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, width=whole)
    for index, column in enumerate(table.columns):
        to_the_left = index == 0 or _is_text(table, index)
        justify: Literal["left", "right"] = "left" if to_the_left else "right"
        drawn.add_column(Text(column), justify=justify, overflow="fold", width=widths[index])
    for row in table.rows:
        drawn.add_row(*(Text(printable(cell)) for cell in row))
    # What does not fit at all runs on into the next line of the terminal: no figure is cut.
    console.print(drawn, crop=False)
    for note in table.notes:
        _print_line(Text(printable(note), style="dim"), console)
    console.print()


def _print_detail(line: Text, console: Console) -> None:
    """A sentence below the one it belongs to: every line of it is set in."""
    if console.is_terminal:
        console.print(Padding(line, (0, 0, 0, 2)))
    else:
        _print_line(Text("  ").append_text(line), console)


def _print_line(line: Text, console: Console) -> None:
    """A sentence: wrapped for a terminal, one line for whoever searches the output of a pipe."""
    console.print(line, soft_wrap=not console.is_terminal)


def _is_text(table: Table, index: int) -> bool:
    """Whether a column holds words, which may wrap, rather than numbers, which must not."""
    return any(" " in row[index] and not row[index].endswith("%") for row in table.rows if index < len(row))


def _column_widths(table: Table, available: int) -> list[int]:
    """Characters for each column: what it asks for, less where all together do not fit.

    Then headings and words wrap between words, long words are folded if they must be, and numbers stay whole.
    """
    asked = [max(map(cell_len, _column(table, index))) for index in range(len(table.columns))]
    for longest_word in _LONGEST_WORDS:
        widths = [_least_width(table, index, longest_word) for index in range(len(asked))]
        spare = available - sum(widths) - _BETWEEN * (len(widths) - 1)
        if spare >= 0:
            break
    for index in sorted(range(len(asked)), key=lambda index: asked[index] - widths[index]):
        more = max(0, min(asked[index] - widths[index], spare))
        widths[index] += more
        spare -= more
    return widths


def _least_width(table: Table, index: int, longest_word: int) -> int:
    heading, *cells = _column(table, index)
    if index == 0 or _is_text(table, index):
        return min(longest_word, max(map(cell_len, " ".join([heading, *cells]).split())))
    return max(map(cell_len, [*heading.split(), *cells]))


def _column(table: Table, index: int) -> list[str]:
    """The heading and the cells below it."""
    return [table.columns[index], *(printable(row[index]) for row in table.rows if index < len(row))]


def printable(text: str) -> str:
    """Names come from foreign files: no control character of theirs reaches the terminal."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)
