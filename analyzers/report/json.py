"""The report as one JSON document: every figure, times in ns."""

from __future__ import annotations

from analyzers.json_text import json_document
from analyzers.report.model import Report


def render_json(report: Report) -> str:
    """The whole report, indented, ending in a newline."""
    return json_document(report)
