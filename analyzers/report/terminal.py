"""The report on a terminal, through rich; plain text when the output is no terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from analyzers.report.model import Finding, Report, Severity
from analyzers.report.text import Table

_STYLES: dict[Severity, str] = {"error": "bold red", "warning": "yellow", "info": "cyan"}


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
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    drawn.add_column(table.columns[0], overflow="fold")
    textual = [_is_text(table, index) for index in range(len(table.columns))]
    for index, column in enumerate(table.columns[1:], 1):
        drawn.add_column(
            column, justify="left" if textual[index] else "right", overflow="fold", no_wrap=not textual[index]
        )
    for row in table.rows:
        drawn.add_row(*(Text(printable(cell)) for cell in row))
    console.print(drawn)
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


def printable(text: str) -> str:
    """Names come from foreign files: no control character of theirs reaches the terminal."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)
