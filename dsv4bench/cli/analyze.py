"""`dsv4bench analyze`: figures and findings of a run directory, traces, logs or request records."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dsv4bench.cli.filters import (
    CallableOption,
    ExcludeWarmupOption,
    OneClockOption,
    RanksOption,
    StepsOption,
    WindowOption,
    chosen_filters,
)


class ReportFormat(StrEnum):
    """How a report is rendered."""

    TABLE = "table"
    MARKDOWN = "md"
    JSON = "json"
    HTML = "html"


class QueryFormat(StrEnum):
    """How the result of a query is written."""

    TABLE = "table"
    MARKDOWN = "md"
    JSON = "json"
    CSV = "csv"


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
    steps: StepsOption = None,
    ranks: RanksOption = None,
    callable_glob: CallableOption = None,
    window: WindowOption = None,
    exclude_warmup: ExcludeWarmupOption = False,
    include_warmup: Annotated[
        bool, typer.Option("--include-warmup", help="Count warm-up requests among the measured ones.")
    ] = False,
    slo: Annotated[
        str | None,
        typer.Option(
            "--slo", metavar="METRIC=MS,...", help="Count requests within limits, as ttft=500,tpot=20."
        ),
    ] = None,
    rank: Annotated[
        list[str] | None,
        typer.Option("--rank", metavar="FILE=N", help="A trace that does not name its rank."),
    ] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Go on without ranks that the traces speak of.")
    ] = False,
    one_clock: OneClockOption = False,
    export_parquet: Annotated[
        Path | None,
        typer.Option("--export-parquet", metavar="FILE", help="Also write the spans there (extra: parquet)."),
    ] = None,
    sql: Annotated[
        str | None,
        typer.Option(
            "--sql", metavar="QUERY", help="Answer a query over the table `spans` instead (extra: sql)."
        ),
    ] = None,
    sql_format: Annotated[
        QueryFormat, typer.Option("--sql-format", help="How to write the result of --sql.")
    ] = QueryFormat.TABLE,
) -> None:
    """Measure a recording: step latency, pipeline, rank skew, requests, and what is wrong with any of them.

    Exit codes: 0 ok, 1 every request failed, 2 unusable input, 3 no data, 4 lost or invalid data.
    """
    from analyzers.analysis import analyze_runs, judge
    from analyzers.clients.goodput import parse_slos
    from analyzers.measurement import AnalysisOptions
    from analyzers.recording.filters import apply_filters
    from analyzers.recording.rank_files import parse_file_ranks
    from analyzers.recording.recording import LoadOptions, load_runs
    from analyzers.report.tables import report_tables
    from analyzers.report.write import write_report
    from dsv4bench.cli.overwriting import check_outputs

    check_outputs({"--out": out, "--export-parquet": export_parquet}, paths)
    filters = chosen_filters(
        steps=steps, ranks=ranks, callable_glob=callable_glob, window=window, exclude_warmup=exclude_warmup
    )
    slos = parse_slos(slo) if slo is not None else None
    runs = load_runs(paths, LoadOptions(parse_file_ranks(rank or []), allow_missing, one_clock))
    if export_parquet is not None:
        from analyzers.export import write_parquet

        write_parquet(apply_filters(runs.only(), filters).spans, export_parquet)
    if sql is not None:
        from analyzers.export import run_query, write_query

        write_query(run_query(apply_filters(runs.only(), filters).spans, sql), sql_format.value, out)
        return
    # Infinity and what no clock can hold mean never.
    late_ns = round(min(late_ms * 1e6, float(2**62)))
    options = AnalysisOptions(late_ns, filters, include_warmup, slos)
    report = analyze_runs(runs, options)
    write_report(report, report_tables(report, full=full), output_format.value, out, title="Analysis")
    verdict = judge(report, strict=strict, max_loss=max_loss)
    if verdict.exit_code:
        print(f"dsv4bench: {verdict.reason}", file=sys.stderr)
        raise typer.Exit(verdict.exit_code)
