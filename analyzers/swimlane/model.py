"""The timeline that every writer draws: groups of tracks, whose slices never overlap without nesting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple


class FlowPhase(Enum):
    """Where along a flow a slice is: it begins and steps at a slice's start, and ends at a slice's end."""

    BEGIN = "begin"
    STEP = "step"
    END = "end"


class FlowPoint(NamedTuple):
    """One slice's part in the flow with the id `flow`."""

    flow: int
    phase: FlowPhase


@dataclass(slots=True, eq=False)
class Slice:
    """One span as it is drawn, [start_ns, end_ns) on the timeline's clock."""

    name: str
    category: str
    start_ns: int
    end_ns: int
    args: dict[str, Any]
    order: int = 0
    """Decides which of two slices with equal times encloses the other: the smaller one."""
    flows: list[FlowPoint] = field(default_factory=list)
    orig_pid: int | str | None = None
    """The pid in its file: a timeline of several files numbers processes anew."""


@dataclass(frozen=True, slots=True)
class Instant:
    """A point in time on a track."""

    name: str
    category: str
    at_ns: int
    args: dict[str, Any]
    orig_pid: int | str | None = None


def drawn_args(item: Slice | Instant) -> dict[str, Any]:
    """The arguments, with the pid in the file: ranks in containers may share one, groups do not."""
    return item.args if item.orig_pid is None else {"orig_pid": item.orig_pid, **item.args}


@dataclass(slots=True)
class Track:
    """One lane. Its slices are in drawing order: by start, enclosing before enclosed."""

    name: str
    slices: list[Slice] = field(default_factory=list)
    instants: list[Instant] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CounterTrack:
    """A value over time: (time in ns, value from then on)."""

    name: str
    points: Sequence[tuple[int, float]]


@dataclass(slots=True)
class Group:
    """The tracks of one process, in drawing order."""

    name: str
    labels: str = ""
    """What else is known of the process: its device."""
    counters: list[CounterTrack] = field(default_factory=list)
    tracks: list[Track] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Everything that is drawn, and how many spans are not, by reason."""

    groups: list[Group]
    left_out: dict[str, int]

    def tracks(self) -> Iterator[Track]:
        """Every track, in drawing order."""
        return (track for group in self.groups for track in group.tracks)

    @property
    def start_ns(self) -> int:
        """The earliest time that is drawn; 0 when nothing is."""
        return min(self._times(), default=0)

    def _times(self) -> Iterator[int]:
        for group in self.groups:
            yield from (at_ns for counter in group.counters for at_ns, _ in counter.points)
        for track in self.tracks():
            yield from (item.start_ns for item in track.slices)
            yield from (instant.at_ns for instant in track.instants)
