"""`dsv4bench validate`: are the lifecycles valid, and is the recording complete?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dsv4bench.cli.analyze import ReportFormat


def validate(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="Run directory, trace.json(.gz), *.jsonl or STRACE log.")
    ],
    output_format: Annotated[
        ReportFormat, typer.Option("--format", help="How to render the result.")
    ] = ReportFormat.TABLE,
    out: Annotated[Path | None, typer.Option("--out", help="Write the result to this file.")] = None,
    max_loss: Annotated[int, typer.Option("--max-loss", min=0, help="Records that may be lost.")] = 0,
) -> None:
    """Check lifecycles and completeness only.

    Exit codes: 0 valid, 2 unusable input, 3 no data, 4 lost records, repaired input or lifecycle faults.
    """
    from analyzers.analysis import analyze, judge
    from analyzers.report.tables import validation_tables
    from analyzers.report.write import write_report
    from dsv4bench.cli.overwriting import check_outputs

    check_outputs({"--out": out}, [path])
    report = analyze([path])
    write_report(report, validation_tables(report), output_format.value, out, title="Validation")
    verdict = judge(report, strict=True, max_loss=max_loss)
    if verdict.exit_code:
        print(f"dsv4bench: {verdict.reason}", file=sys.stderr)
        raise typer.Exit(verdict.exit_code)
