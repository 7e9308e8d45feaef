"""`dsv4bench swimlane`: the combined timeline."""

from __future__ import annotations

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


def swimlane(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH", help="A run directory, a trace, or STRACE logs of one run."),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="*.pftrace (ui.perfetto.dev) or *.json (Chrome trace)."
        ),
    ],
    steps: StepsOption = None,
    ranks: RanksOption = None,
    callable_glob: CallableOption = None,
    window: WindowOption = None,
    exclude_warmup: ExcludeWarmupOption = False,
    one_clock: OneClockOption = False,
    trace_processor: Annotated[
        Path | None,
        typer.Option(
            "--trace-processor",
            metavar="BINARY",
            envvar="TRACE_PROCESSOR",
            help="Put the questions of docs/swimlane.md to this trace_processor.",
        ),
    ] = None,
) -> None:
    """Draw serving lanes and every rank on one timeline, of all of a recording or of a part."""
    from analyzers.measurement import AnalysisOptions, measure
    from analyzers.recording.recording import LoadOptions, load_recording
    from analyzers.swimlane import timeline_of, write_timeline
    from dsv4bench.cli.overwriting import check_outputs

    filters = chosen_filters(
        steps=steps, ranks=ranks, callable_glob=callable_glob, window=window, exclude_warmup=exclude_warmup
    )
    check_outputs({"--output": output}, paths)
    whole = load_recording(paths, LoadOptions(one_clock=one_clock))
    measured = measure(whole, AnalysisOptions(filters=filters))
    summary = write_timeline(timeline_of(measured), output)
    typer.echo(
        f"{summary.path}: {summary.slices} spans on {summary.tracks} tracks of {summary.groups} processes, "
        f"{summary.flows} flows"
    )
    if summary.moved_ns:
        moved = f"{summary.moved_ns / 1000:.3f}".rstrip("0").rstrip(".")
        typer.echo(f"times moved by {moved} us, to begin at 0: a .pftrace has none before it", err=True)
    if not whole.clocks.comparable:
        typer.echo(whole.clocks.statement, err=True)
    if filters.statements:
        typer.echo(f"a part of the recording: {'; '.join(filters.statements)}", err=True)
    for reason, count in summary.left_out.items():
        typer.echo(f"left out: {count} {reason}", err=True)
    if whole.lost:
        typer.echo(f"lost before: {whole.lost} records; `dsv4bench analyze` says which", err=True)
    if trace_processor is not None:
        from analyzers.swimlane.queries import QUERIES, ask

        for question, query in QUERIES.items():
            typer.echo(f"\n{question}\n{ask(trace_processor, output, query)}", nl=False)
