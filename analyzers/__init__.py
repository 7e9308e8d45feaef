"""Analyzers: run directories and foreign traces in; tables, findings, timelines and verdicts out (docs/python.md).

    import analyzers

    report = analyzers.analyze("runs/smoke")
    frames = {table.title: table.to_pandas() for table in report.tables()}

What `__all__` names is the public face; everything else may change. Names are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analyzers.analysis import Verdict, judge
    from analyzers.api import analyze, check_gate, load, write_timeline
    from analyzers.clients.goodput import Slos
    from analyzers.errors import AnalyzerError, NoDataError, NotComparableError, UnusableInputError
    from analyzers.extras import MissingExtraError
    from analyzers.gate.model import GatePolicy, GateResult, MetricPolicy, MetricResult
    from analyzers.measurement import AnalysisOptions
    from analyzers.recording.filters import FilterError, Filters
    from analyzers.recording.recording import LoadOptions, Recording
    from analyzers.report.finding import Finding
    from analyzers.report.model import Report
    from analyzers.swimlane import SwimlaneSummary
    from analyzers.table.spans import SpanTable
    from analyzers.text.tables import Table

__all__ = [
    "AnalysisOptions",
    "AnalyzerError",
    "FilterError",
    "Filters",
    "Finding",
    "GatePolicy",
    "GateResult",
    "LoadOptions",
    "MetricPolicy",
    "MetricResult",
    "MissingExtraError",
    "NoDataError",
    "NotComparableError",
    "Recording",
    "Report",
    "Slos",
    "SpanTable",
    "SwimlaneSummary",
    "Table",
    "UnusableInputError",
    "Verdict",
    "analyze",
    "check_gate",
    "judge",
    "load",
    "write_timeline",
]

_HOMES = {
    "analyzers.analysis": ("Verdict", "judge"),
    "analyzers.api": ("analyze", "check_gate", "load", "write_timeline"),
    "analyzers.clients.goodput": ("Slos",),
    "analyzers.errors": ("AnalyzerError", "NoDataError", "NotComparableError", "UnusableInputError"),
    "analyzers.extras": ("MissingExtraError",),
    "analyzers.gate.model": ("GatePolicy", "GateResult", "MetricPolicy", "MetricResult"),
    "analyzers.measurement": ("AnalysisOptions",),
    "analyzers.recording.filters": ("FilterError", "Filters"),
    "analyzers.recording.recording": ("LoadOptions", "Recording"),
    "analyzers.report.finding": ("Finding",),
    "analyzers.report.model": ("Report",),
    "analyzers.swimlane": ("SwimlaneSummary",),
    "analyzers.table.spans": ("SpanTable",),
    "analyzers.text.tables": ("Table",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    # Every module of the package loads this one first: it may load nothing, least of all for `--help`.
    if name not in _HOME_OF:
        raise AttributeError(f"module 'analyzers' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
