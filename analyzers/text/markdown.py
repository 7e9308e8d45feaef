"""Tables as Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from analyzers.text.escapes import markdown_escaped
from analyzers.text.tables import Table


def render_table(table: Table) -> str:
    """One table under its title, with its notes; ends in a newline."""
    return "\n".join(table_lines(table)).rstrip() + "\n"


def table_lines(table: Table) -> list[str]:
    """The lines of one table under its title, with its notes and the empty line that ends it."""
    lines = [
        f"## {markdown_escaped(table.title)}",
        "",
        _row(markdown_escaped(column.heading) for column in table.columns),
        _row("---" if column.is_text else "---:" for column in table.columns),
        *(_row(map(markdown_escaped, row)) for row in table.written()),
        "",
    ]
    lines += [f"{markdown_escaped(note)}  " for note in table.notes]
    return [*lines, ""] if table.notes else lines


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
