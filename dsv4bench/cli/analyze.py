"""`dsv4bench analyze`: figures and findings of a run directory, traces, logs or request records."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class ReportFormat(StrEnum):
    """How a report is rendered."""

    TABLE = "table"
    MARKDOWN = "md"
    JSON = "json"
    HTML = "html"


def analyze(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH...", help="Run directory, trace.json(.gz), *.jsonl or STRACE log."),
    ],
    output_format: Annotated[
        ReportFormat, typer.Option("--format", help="How to render the report.")
    ] = ReportFormat.TABLE,
    out: Annotated[Path | None, typer.Option("--out", help="Write the report to this file.")] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Also the tables that repeat or complete the others.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 4 on lifecycle faults and repaired inputs too.")
    ] = False,
    late_ms: Annotated[
        float, typer.Option("--late-ms", min=0, help="A rank is late this many ms after its round's median.")
    ] = 5.0,
    max_loss: Annotated[
        int, typer.Option("--max-loss", min=0, help="Records that may be lost before the exit code is 4.")
    ] = 0,
) -> None:
    """Measure a recording: step latency, pipeline, rank skew, requests, and what is wrong with any of them.

    Exit codes: 0 ok, 1 every request failed, 2 unusable input, 3 no data, 4 lost or invalid data.
    """
    from analyzers.analysis import AnalysisOptions, judge
    from analyzers.analysis import analyze as analyze_paths
    from analyzers.report.tables import report_tables
    from analyzers.report.write import write_report

    report = analyze_paths(paths, AnalysisOptions(late_ns=round(late_ms * 1e6)))
    write_report(report, report_tables(report, full=full), output_format.value, out, title="Analysis")
    verdict = judge(report, strict=strict, max_loss=max_loss)
    if verdict.exit_code:
        print(f"dsv4bench: {verdict.reason}", file=sys.stderr)
        raise typer.Exit(verdict.exit_code)
