"""The report as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.report.model import Report
from analyzers.text.tables import Table


def render_markdown(report: Report, tables: Sequence[Table], title: str) -> str:
    """A heading, the findings, then every table with its notes."""
    lines = [f"# {title}", ""]
    for finding in report.findings:
        parts = [f"- **{finding.severity}**: {escape(finding.title)}: {escape(finding.evidence)}"]
        if finding.advice:
            parts.append(f"  _{escape(finding.advice)}_")
        lines += parts
    if report.findings:
        lines.append("")
    for table in tables:
        lines += _table(table)
    return "\n".join(lines).rstrip() + "\n"


def render_table(table: Table) -> str:
    """One table with its notes."""
    return "\n".join(_table(table)).rstrip() + "\n"


def _table(table: Table) -> list[str]:
    alignment = ["---", *("---:" for _ in table.columns[1:])]
    lines = [f"## {escape(table.title)}", "", _row(table.columns), _row(alignment)]
    lines += [_row([escape(cell) for cell in row]) for row in table.rows]
    lines.append("")
    lines += [f"{escape(note)}  " for note in table.notes]
    return [*lines, ""] if table.notes else lines


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def escape(text: str) -> str:
    """Names come from foreign files: nothing in them is markup or leaves its line."""
    printable = "".join(character if character.isprintable() else "\ufffd" for character in text)
    for character in "\\|<*_`[":
        printable = printable.replace(character, "\\" + character)
    return printable
