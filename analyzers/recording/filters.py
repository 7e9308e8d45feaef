"""A part of a recording: steps, ranks, callables, a window of time, without warm-up (docs/findings.md, Filters).

A step is kept whole or not at all: half a step would have a latency that nothing took. So the spans of one step, in the
serving trace and on every rank, share a unit, and a filter accepts or refuses units. Spans of no step stand alone.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import msgspec
import numpy as np

from analyzers.errors import UnusableInputError
from analyzers.readers.request_timing import RequestTiming
from analyzers.readers.strace import ROOT
from analyzers.recording.membership import NO_UNIT, steps_of_units, units_of
from analyzers.recording.recording import Recording
from analyzers.table.callables import DispatchNames, callable_of, name_runs
from analyzers.table.spans import ABSENT, Clock, Int64s, Mask, concatenate, is_number

_MILLISECOND_NS = 1_000_000
_FURTHEST_NS = float(2**61)


class FilterError(UnusableInputError):
    """A filter that cannot be read, or that this recording cannot answer."""


@dataclass(frozen=True)
class Filters:
    """What of a recording is measured; None is everything."""

    steps: tuple[int | None, int | None] | None = None
    """[first, last) step ids; None is open."""
    ranks: frozenset[int] | None = None
    callable: str | None = None
    """A glob over callables."""
    window_ns: tuple[int | None, int | None] | None = None
    """[start, end) from the beginning of the measured window, else of the recording."""
    exclude_warmup: bool = False

    @property
    def statements(self) -> list[str]:
        """What is kept, in words; [] when everything is."""
        found = []
        if self.steps is not None:
            found.append(f"steps {_range(self.steps)}")
        if self.ranks is not None:
            found.append(f"ranks {', '.join(map(str, sorted(self.ranks)))}")
        if self.callable is not None:
            found.append(f"callable {self.callable}")
        if self.window_ns is not None:
            first, last = (None if edge is None else edge / _MILLISECOND_NS for edge in self.window_ns)
            found.append(f"window {_range((first, last))} ms")
        if self.exclude_warmup:
            found.append("no warm-up")
        return found


EVERYTHING = Filters()


def parse_steps(text: str) -> tuple[int | None, int | None]:
    """`A:B` as [A, B); either may be missing. Raises FilterError for anything else."""
    first, last = _edges(text, "--steps", "A:B, two step ids of which B is not included")
    return (None if first is None else int(first)), (None if last is None else int(last))


def parse_ranks(text: str) -> frozenset[int]:
    """`0,3` as ranks. Raises FilterError for anything else."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() for word in words):
        raise FilterError(f"--ranks {text}: expected ranks with commas between them, such as 0,3")
    return frozenset(map(int, words))


def parse_window(text: str) -> tuple[int | None, int | None]:
    """`START:END` in ms, as ns; either may be missing. Raises FilterError for anything else."""
    first, last = _edges(text, "--window", "START:END, two times in ms")
    if any(edge is not None and math.isnan(edge) for edge in (first, last)):
        raise FilterError(f"--window {text}: expected two times in ms, and nan is none")
    return _clock_ns(first), _clock_ns(last)


def _clock_ns(edge_ms: float | None) -> int | None:
    """An edge in ns; infinity, and what no clock can show, is as far away as a clock goes."""
    if edge_ms is None:
        return None
    return round(max(-_FURTHEST_NS, min(edge_ms * _MILLISECOND_NS, _FURTHEST_NS)))


def apply_filters(recording: Recording, filters: Filters) -> Recording:
    """The part of `recording` that `filters` keep.

    Requests and resource samples are kept by rank, time and phase; steps and callables have none of their own, so that
    with those filters there are none.

    Raises:
        FilterError: the recording does not say what a filter asks for, or has nothing of it.
    """
    if not filters.statements:
        return recording
    part = _Part(recording)
    if filters.exclude_warmup:
        part.keep_after(_warm_up_end(recording))
    if filters.window_ns is not None:
        part.keep_window(*filters.window_ns)
    if filters.steps is not None:
        part.keep_steps(*filters.steps)
    if filters.callable is not None:
        part.keep_callables(filters.callable)
    if filters.ranks is not None:
        part.keep_ranks(filters.ranks)
    return part.recording()


class _Part:
    """Narrows a recording filter by filter."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._spans = concatenate([recording.spans, recording.invalid])
        self._units = units_of(self._spans)
        self._kept: Mask = np.ones(len(self._spans), dtype=np.bool_)
        self._requests = list(recording.requests)
        self._resources = list(recording.resources)
        self._ranks = recording.ranks
        self._manifest = recording.manifest

    def keep_after(self, start_ns: int) -> None:
        """What begins at `start_ns` of the host clock or later; warm-up requests go whatever their time."""
        self._requests = [timing for timing in self._requests if timing.phase != "warmup"]
        # Nothing says how a file's own clock lies to the host's: its spans stay.
        starts = np.where(self._spans.clock == Clock.FILE, start_ns, self._spans.start_ns)
        self._keep_between(start_ns, None, starts)
        self._resources = [sample for sample in self._resources if sample.time_ns >= start_ns]

    def keep_window(self, first_ns: int | None, last_ns: int | None) -> None:
        """What lies wholly inside [first, last) from the origin of its clock."""
        manifest = self._manifest
        origin = manifest.timing.window_start_ns if manifest is not None else None
        if origin is None:
            begins = self._spans.window(Clock.HOST)
            sends = [timing.send_ns for timing in self._requests if timing.send_ns is not None]
            origin = begins[0] if begins is not None else min(sends, default=0)
        self._keep_between(first_ns, last_ns, self._relative(origin))
        start = -np.inf if first_ns is None else first_ns + origin
        end = np.inf if last_ns is None else last_ns + origin
        self._requests = [timing for timing in self._requests if _inside(timing, start, end)]
        self._resources = [sample for sample in self._resources if start <= sample.time_ns < end]

    def keep_steps(self, first: int | None, last: int | None) -> None:
        """Steps [first, last)."""
        steps = steps_of_units(self._spans, self._units)
        chosen = is_number(steps)
        if not chosen.any():
            raise FilterError(
                "--steps: no span of the input names its step by a number: analyze the whole run directory"
            )
        chosen &= steps >= first if first is not None else True
        chosen &= steps < last if last is not None else True
        self._keep_units(np.flatnonzero(chosen), np.zeros(len(self._spans), dtype=np.bool_))
        self._requests, self._resources = [], []

    def keep_callables(self, pattern: str) -> None:
        """Steps and runs of the callables that `pattern` matches."""
        names = [callable_of(label) or label for label in self._spans.names]
        known = {name for name, label in zip(names, self._spans.names, strict=True) if callable_of(label)}
        roots = np.flatnonzero(self._spans.named(ROOT)).tolist()
        of_root = name_runs(self._spans, roots, DispatchNames(self._spans))
        known |= set(of_root.values())
        matching = {name for name in known if fnmatchcase(name, pattern)}
        if not matching:
            listed = ", ".join(sorted(known)) or "none"
            raise FilterError(f"--callable {pattern}: no such callable; the input has {listed}")
        named = np.array([name in matching for name in names], dtype=np.bool_)
        rows: Mask = named[self._spans.name] if len(named) else self._kept.copy()
        rows[[row for row, name in of_root.items() if name in matching]] = True
        self._keep_units(np.unique(self._units[rows]), rows)
        self._requests, self._resources = [], []

    def keep_ranks(self, ranks: frozenset[int]) -> None:
        """These ranks, and what belongs to no rank."""
        column = self._spans.rank
        known = set(np.unique(column).tolist()) - {ABSENT}
        if not known & ranks:
            wanted, listed = (", ".join(map(str, sorted(some))) for some in (ranks, known))
            raise FilterError(f"--ranks {wanted}: no such rank; the input has {listed or 'none'}")
        self._kept &= (column == ABSENT) | np.isin(column, sorted(ranks))
        self._requests = [timing for timing in self._requests if timing.rank is None or timing.rank in ranks]
        others = {f"rank {rank}" for rank in known - ranks}
        self._resources = [sample for sample in self._resources if sample.process not in others]
        assigned = self._ranks
        kept = {process: rank for process, rank in assigned.ranks.items() if rank in ranks}
        basis = {process: assigned.basis[process] for process in kept}
        silent = assigned.silent & kept.keys()
        self._ranks = dataclasses.replace(assigned, ranks=kept, basis=basis, silent=silent)
        if self._manifest is not None:
            device_map = [process for process in self._manifest.device_map if process.rank in ranks]
            self._manifest = msgspec.structs.replace(self._manifest, device_map=device_map)

    def recording(self) -> Recording:
        """What is left."""
        count = len(self._recording.spans)
        return dataclasses.replace(
            self._recording,
            spans=self._recording.spans.select(self._kept[:count]),
            invalid=self._recording.invalid.select(self._kept[count:]),
            requests=self._requests,
            resources=self._resources,
            ranks=self._ranks,
            manifest=self._manifest,
        )

    def _keep_units(self, units: Int64s, alone: Mask) -> None:
        """Rows of `units`; of the rows without a unit those in `alone`."""
        in_unit = self._units != NO_UNIT
        self._kept &= np.where(in_unit, np.isin(self._units, units[units != NO_UNIT]), alone)

    def _keep_between(self, first_ns: int | None, last_ns: int | None, starts: Int64s) -> None:
        """Units and lone rows that lie wholly inside [first, last); device times say nothing, their unit decides."""
        ends = starts + self._spans.duration_ns
        timed = self._spans.clock != Clock.DEVICE
        inside = timed & (True if first_ns is None else starts >= first_ns)
        inside &= True if last_ns is None else ends <= last_ns
        outside = np.unique(self._units[timed & ~inside])
        in_time = np.unique(self._units[inside])
        self._keep_units(np.setdiff1d(in_time, outside), inside)

    def _relative(self, origin_ns: int) -> Int64s:
        """Starts from the origin of their clock; a file on a clock of its own begins with its first span."""
        starts = self._spans.start_ns - origin_ns
        on_file = self._spans.clock == Clock.FILE
        lanes = self._spans.lanes
        for file in {lanes[code].file for code in np.unique(self._spans.lane[on_file]).tolist()}:
            of_file = [code for code, lane in enumerate(lanes) if lane.file == file]
            rows = on_file & np.isin(self._spans.lane, of_file)
            starts[rows] = self._spans.start_ns[rows] - self._spans.start_ns[rows].min()
        return starts


def _warm_up_end(recording: Recording) -> int:
    manifest = recording.manifest
    if manifest is not None and manifest.timing.window_start_ns is not None:
        return manifest.timing.window_start_ns
    sends = [
        timing.send_ns
        for timing in recording.requests
        if timing.phase == "measured" and timing.send_ns is not None
    ]
    if not recording.requests_have_phases or not sends:
        raise FilterError("--exclude-warmup: nothing in the input says when the warm-up ended")
    return min(sends)


def _inside(timing: RequestTiming, start: float, end: float) -> bool:
    return (
        timing.send_ns is not None
        and timing.last_ns is not None
        and start <= timing.send_ns <= timing.last_ns <= end
    )


def _edges(text: str, option: str, expected: str) -> tuple[float | None, float | None]:
    number: Callable[[str], float] = int if option == "--steps" else float
    words = text.split(":")
    try:
        if len(words) != 2:
            raise ValueError
        first, last = (number(word) if word.strip() else None for word in words)
    except ValueError:
        raise FilterError(f"{option} {text}: expected {expected}") from None
    if first is not None and last is not None and not first < last:
        raise FilterError(f"{option} {text}: nothing lies between {first} and {last}")
    return first, last


def _range(edges: Sequence[float | None]) -> str:
    return ":".join("" if edge is None else f"{edge:g}" for edge in edges)
