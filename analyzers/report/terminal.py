"""The report on a terminal, through rich; plain text when the output is no terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from analyzers.report.model import Finding, Report, Severity
from analyzers.text.escapes import printable
from analyzers.text.tables import Table
from analyzers.text.terminal import print_line, print_table

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
    print_line(line, console)
    details = [finding.evidence, *([finding.advice] if finding.advice else [])]
    for detail in details:
        _print_detail(Text(printable(detail), style="dim"), console)


def _print_detail(line: Text, console: Console) -> None:
    """A sentence below the one it belongs to: every line of it is set in."""
    if console.is_terminal:
        console.print(Padding(line, (0, 0, 0, 2)))
    else:
        print_line(Text("  ").append_text(line), console)
