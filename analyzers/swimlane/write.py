"""Writing a swimlane: one timeline, in the format that the output's suffix names."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from analyzers.errors import NoDataError, UnusableInputError
from analyzers.swimlane.chrome import write_chrome
from analyzers.swimlane.model import FlowPhase, Timeline
from analyzers.text.output import replacing

SwimlaneFormat = Literal["perfetto", "chrome"]

_FORMATS: dict[str, SwimlaneFormat] = {".pftrace": "perfetto", ".json": "chrome"}


class SwimlaneSummary(msgspec.Struct, frozen=True):
    """What a swimlane holds. `left_out` counts the spans that it does not, by reason."""

    path: str
    format: SwimlaneFormat
    groups: int
    tracks: int
    slices: int
    flows: int
    left_out: dict[str, int]
    moved_ns: int = 0
    """By how much all its times are later than the recording's: a Perfetto trace has none before 0."""


def format_of(output: Path) -> SwimlaneFormat:
    """Return the format that the suffix of `output` names. Raises UnusableInputError for any other suffix."""
    try:
        return _FORMATS[output.suffix]
    except KeyError:
        suffixes = " or ".join(f"*{suffix}" for suffix in _FORMATS)
        raise UnusableInputError(f"cannot write a swimlane to {output}: name the file {suffixes}") from None


def write_timeline(timeline: Timeline, output: Path) -> SwimlaneSummary:
    """Write `timeline` to `output` (`.pftrace` or `.json`), through a rename.

    Raises:
        UnusableInputError: the suffix is neither, or the file cannot be written.
        NoDataError: there is nothing to draw.
    """
    output_format = format_of(output)
    slices = [item for track in timeline.tracks() for item in track.slices]
    if not slices:
        raise NoDataError("nothing to draw: no span lies on a clock that the timeline can show")
    moved_ns = 0
    with replacing(output) as file:
        if output_format == "chrome":
            write_chrome(timeline, file)
        else:
            # Importing the protobuf definitions takes longer than most commands.
            from analyzers.swimlane.perfetto import write_perfetto

            moved_ns = write_perfetto(timeline, file)
    return SwimlaneSummary(
        path=str(output),
        format=output_format,
        groups=len(timeline.groups),
        tracks=sum(1 for _ in timeline.tracks()),
        slices=len(slices),
        flows=sum(point.phase is FlowPhase.BEGIN for item in slices for point in item.flows),
        left_out=timeline.left_out,
        moved_ns=moved_ns,
    )
