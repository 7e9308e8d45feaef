"""The report as one JSON document: every figure, times in ns."""

from __future__ import annotations

import msgspec

from analyzers.report.model import Report
from analyzers.table.arguments import valid_text


def render_json(report: Report) -> str:
    """The whole report, indented, ending in a newline."""
    try:
        document = msgspec.json.encode(report)
    except UnicodeEncodeError:
        # The name of a file, or a text of a stranger's JSON, that is no UTF-8.
        document = msgspec.json.encode(valid_text(msgspec.to_builtins(report, str_keys=True)))
    return msgspec.json.format(document, indent=2).decode() + "\n"
