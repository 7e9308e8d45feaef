"""The verdict on a terminal, through rich; plain text when the output is no terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from analyzers.gate.model import GateResult, Verdict
from analyzers.gate.render.tables import facts, metrics_table
from analyzers.text.escapes import printable
from analyzers.text.terminal import print_line, print_table

_STYLES: dict[Verdict, str] = {
    "PASS": "bold green",
    "FAIL": "bold red",
    "NOT-COMPARABLE": "bold red",
    "INVALID": "bold red",
    "NO-DATA": "bold red",
    "UNDECIDED": "bold yellow",
}

WIDE = 120
"""Columns from which the table has room for titles."""


def render_terminal(result: GateResult, console: Console) -> None:
    """Print the verdict with its cause, the table of metrics, facts, and warnings."""
    line = Text()
    line.append(result.verdict, style=_STYLES[result.verdict])
    line.append(f": {printable(result.headline)}")
    print_line(line, console)
    console.print()
    if result.metrics:
        print_table(metrics_table(result, wide=console.width >= WIDE), console)
    for fact in facts(result):
        print_line(Text(printable(fact), style="dim"), console)
    for warning in result.warnings:
        warned = Text("warning: ", style="yellow")
        warned.append(printable(warning))
        print_line(warned, console)
