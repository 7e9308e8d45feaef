"""The report as one JSON document: every figure, times in ns."""

from __future__ import annotations

import msgspec

from analyzers.report.model import Report


def render_json(report: Report) -> str:
    """The whole report, indented, ending in a newline."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"
