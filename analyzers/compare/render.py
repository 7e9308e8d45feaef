"""A comparison for people (terminal, Markdown) and for programs (JSON), to standard output or a file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.text import Text

from analyzers.compare.model import Comparison
from analyzers.compare.tables import comparison_tables, headline, remarks, sides, warnings
from analyzers.json_text import json_document
from analyzers.text.escapes import markdown_escaped, printable
from analyzers.text.markdown import render_table
from analyzers.text.output import drawn, write_output
from analyzers.text.terminal import print_line, print_table

Format = Literal["table", "md", "json"]


def write_comparison(comparison: Comparison, output: Format, out: Path | None) -> None:
    """Render `comparison` as `output` to the file `out`, or to standard output when it is None.

    Raises:
        UnusableInputError: the file cannot be written.
    """
    if out is None and output == "table":
        render_terminal(comparison, Console())
    else:
        write_output(render(comparison, output), out)


def render(comparison: Comparison, output: Format) -> str:
    """The whole comparison as text."""
    match output:
        case "json":
            return json_document(comparison)
        case "md":
            return render_markdown(comparison)
        case "table":
            return drawn(lambda console: render_terminal(comparison, console))


def render_terminal(comparison: Comparison, console: Console) -> None:
    """Print the sides, what changed in sentences, the tables, and what limits them."""
    for line in sides(comparison):
        _print(line, console, "dim")
    console.print()
    for line in headline(comparison):
        _print(line, console, "bold")
    for line in warnings(comparison):
        _print(f"warning: {line}", console, "yellow")
    for line in comparison.certainty:
        _print(line, console, "")
    console.print()
    for table in comparison_tables(comparison):
        print_table(table, console)
    for line in remarks(comparison):
        _print(line, console, "")


def render_markdown(comparison: Comparison) -> str:
    """A heading, the sentences, the tables, the remarks: fit for a comment on a pull request."""
    lines = ["# Comparison", ""]
    lines += [f"{markdown_escaped(line)}  " for line in sides(comparison)]
    lines += ["", *(f"- **{markdown_escaped(line)}**" for line in headline(comparison))]
    lines += [f"- **warning**: {markdown_escaped(line)}" for line in warnings(comparison)]
    lines += [*(f"- {markdown_escaped(line)}" for line in comparison.certainty), ""]
    lines += [render_table(table) for table in comparison_tables(comparison)]
    lines += [f"- {markdown_escaped(line)}" for line in remarks(comparison)]
    return "\n".join(lines).rstrip() + "\n"


def _print(line: str, console: Console, style: str) -> None:
    print_line(Text(printable(line), style=style), console)
