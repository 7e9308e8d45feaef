"""`dsv4bench swimlane`: the combined timeline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


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
    """Draw serving lanes and every rank on one timeline."""
    from analyzers.readers.recording import load_recording
    from analyzers.swimlane import write_swimlane

    recording = load_recording(paths)
    summary = write_swimlane(recording.spans, output, recording.requests)
    typer.echo(
        f"{summary.path}: {summary.slices} spans on {summary.tracks} tracks of {summary.groups} processes, "
        f"{summary.flows} flows"
    )
    for reason, count in summary.left_out.items():
        typer.echo(f"left out: {count} {reason}", err=True)
    if recording.lost:
        typer.echo(f"lost before: {recording.lost} records; `dsv4bench analyze` says which", err=True)
    if trace_processor is not None:
        from analyzers.swimlane.queries import QUERIES, ask

        for question, query in QUERIES.items():
            typer.echo(f"\n{question}\n{ask(trace_processor, output, query)}", nl=False)
