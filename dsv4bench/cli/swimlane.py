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
) -> None:
    """Draw serving lanes and every rank on one timeline."""
    from analyzers.readers.recording import load_recording
    from analyzers.swimlane import write_swimlane

    recording = load_recording(paths)
    summary = write_swimlane(recording.spans, output)
    typer.echo(
        f"{summary.path}: {summary.slices} spans on {summary.tracks} tracks of {summary.groups} processes, "
        f"{summary.flows} flows"
    )
    for reason, count in summary.left_out.items():
        typer.echo(f"left out: {count} {reason}", err=True)
    if recording.lost:
        typer.echo(f"lost before: {recording.lost} records; `dsv4bench analyze` says which", err=True)
