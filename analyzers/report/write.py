"""Where a rendered report goes: standard output or a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from rich.console import Console

from analyzers.report.json import render_json
from analyzers.report.markdown import render_markdown
from analyzers.report.model import Report
from analyzers.report.terminal import render_terminal
from analyzers.text.output import drawn, write_output
from analyzers.text.tables import Table

Format = Literal["table", "md", "json", "html"]


def write_report(
    report: Report, tables: Sequence[Table], output: Format, out: Path | None, *, title: str
) -> None:
    """Render `report` as `output` to the file `out`, or to standard output when it is None.

    JSON and HTML hold the whole report; the other formats draw `tables`.

    Raises:
        UnusableInputError: the file cannot be written.
    """
    if out is None and output == "table":
        render_terminal(report, tables, Console())
    else:
        write_output(_rendered(report, tables, output, title), out)


def _rendered(report: Report, tables: Sequence[Table], output: Format, title: str) -> str:
    match output:
        case "json":
            return render_json(report)
        case "html":
            # Of all the renderings it takes the longest to load.
            from analyzers.report.html import render_html

            return render_html(report, title)
        case "md":
            return render_markdown(report, tables, title)
        case "table":
            return drawn(lambda console: render_terminal(report, tables, console))
