"""The report as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.report.model import Report
from analyzers.text.escapes import markdown_escaped
from analyzers.text.markdown import table_lines
from analyzers.text.tables import Table


def render_markdown(report: Report, tables: Sequence[Table], title: str) -> str:
    """A heading, the findings, then every table with its notes."""
    lines = [f"# {title}", ""]
    for finding in report.findings:
        said = f"{markdown_escaped(finding.title)}: {markdown_escaped(finding.evidence)}"
        lines.append(f"- **{finding.severity}**: {said}")
        if finding.advice:
            lines.append(f"  _{markdown_escaped(finding.advice)}_")
    if report.findings:
        lines.append("")
    for table in tables:
        lines += table_lines(table)
    return "\n".join(lines).rstrip() + "\n"
