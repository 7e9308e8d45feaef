"""Which processes share a clock, and how the clocks of several hosts are put on one: by their clock anchors.

Processes of one host share CLOCK_MONOTONIC, whose origin is the host's start: their anchors agree on the wall time of
its 0. Across hosts only wall time is common: wall = wall_ns + (t - mono_ns). Nothing is taken for granted: without
evidence that two processes share a clock, their times are not compared.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

import msgspec
import numpy as np

from analyzers.readers.log_processes import ClockAnchor
from analyzers.table.spans import Clock, Process, SpanTable

ClockMethod = Literal["one host clock", "one file", "clock anchors", "base times", "not aligned"]

SAME_CLOCK_NS = 5_000_000
"""Anchors of one host's clock disagree by the time between their two readings, and by how the wall clock was steered
meanwhile; hosts do not start within that of each other."""

NEARBY_NS = 60_000_000_000
"""Without anchors, a serving trace further away from a log than this is not taken to be on its clock."""

STATED = "one clock"
"""What processes write to that are of one host because the user says so."""

_SECOND = 1_000_000_000


class HostClock(msgspec.Struct, frozen=True):
    """One monotonic clock, and what its anchors say about it."""

    processes: list[str]
    """`<file> pid <pid>` of every process with anchors or spans on it."""
    anchors: int
    disagreement_ns: int | None
    """Between the anchors: largest - smallest wall time of its 0; None for less than two of them."""
    drift_ppm: float | None
    """Of the wall clock against it: slope from the first anchor to the last; None within less than a second."""
    shift_ns: int | None
    """What was added to its times; None where they are comparable with no other's."""


class ClockAlignment(msgspec.Struct, frozen=True):
    """How times of several ranks were made comparable, and how well."""

    method: ClockMethod
    base_ns: int | None = None
    """Wall time of the origin of aligned times, in ns since 1970."""
    uncertainty_ns: int | None = None
    """Of a difference between two ranks: 0 on one host clock, else what the anchors disagree by; None is unknown.
    How well the hosts' wall clocks agree with each other is never recorded, and not in it."""
    evidence: str = ""
    """What the method rests on."""
    hosts: list[HostClock] = []

    @property
    def comparable(self) -> bool:
        """Whether times of different ranks may be compared at all."""
        return self.method != "not aligned"

    @property
    def calibrated(self) -> bool:
        """Whether the error of a difference between two ranks is known."""
        return self.comparable and self.uncertainty_ns is not None

    @property
    def statement(self) -> str:
        """Method, evidence and uncertainty in one line."""
        if self.method in ("one host clock", "one file"):
            return f"clocks: {self.method} ({self.evidence})" if self.evidence else f"clocks: {self.method}"
        if not self.comparable:
            return f"clocks: not aligned ({self.evidence}): figures across ranks are withheld"
        if self.uncertainty_ns is not None:
            uncertainty = f"uncertainty {duration_text(self.uncertainty_ns)}, plus the difference of the hosts' wall clocks"
        elif self.method == "clock anchors":
            single = next(host for host in self.hosts if host.disagreement_ns is None)
            uncertainty = f"uncertainty unknown, single anchor ({single.processes[0]})"
        else:
            uncertainty = "uncertainty unknown: how well the hosts' wall clocks agree is not recorded"
        return f"clocks: aligned by {self.method} ({self.evidence}); {uncertainty}"


ONE_HOST_CLOCK = ClockAlignment("one host clock", uncertainty_ns=0)


@dataclass(frozen=True)
class ProcessClock:
    """What is known of the clock of one process."""

    process: Process
    anchors: tuple[ClockAnchor, ...] = ()
    window: tuple[int, int] | None = None
    """[first start, last end] of its spans in ns of its clock."""
    is_serving: bool = False
    """A process of the serving trace: times of requests are on its clock."""
    written_to: str = ""
    """What one host's processes alone write to: a log, a run directory; "" is the file."""

    @property
    def log(self) -> str:
        """What one host's processes alone write to."""
        return self.written_to or self.process[0]

    @property
    def label(self) -> str:
        """The process in words."""
        return f"{PurePath(self.process[0]).name} pid {self.process[1]}"


@dataclass(frozen=True)
class AlignedClocks:
    """The alignment, and what is to be added to the times of each process."""

    alignment: ClockAlignment
    shifts: Mapping[Process, int]
    unplaced: frozenset[Process] = frozenset()
    """Serving processes whose times are comparable with no log's."""


def process_windows(tables: Iterable[SpanTable]) -> dict[Process, tuple[int, int]]:
    """[first start, last end] of every process with spans on the host clock."""
    windows: dict[Process, tuple[int, int]] = {}
    for spans in tables:
        rows = np.flatnonzero(spans.clock == Clock.HOST)
        lanes = spans.lane[rows]
        first = np.full(len(spans.lanes), np.iinfo(np.int64).max)
        last = np.full(len(spans.lanes), np.iinfo(np.int64).min)
        np.minimum.at(first, lanes, spans.start_ns[rows])
        np.maximum.at(last, lanes, spans.start_ns[rows] + spans.duration_ns[rows])
        for code in np.unique(lanes).tolist():
            process = spans.lanes[code].process
            begin, end = windows.get(process, (int(first[code]), int(last[code])))
            windows[process] = (min(begin, int(first[code])), max(end, int(last[code])))
    return windows


def align_clocks(processes: Sequence[ProcessClock]) -> AlignedClocks:
    """Find the hosts of `processes` and put their clocks on that of the serving trace's host, else the first's."""
    occupied = [host for host in _hosts(processes) if any(process.window is not None for process in host)]
    apart = [host for host in occupied if not _offsets(host) and all(process.is_serving for process in host)]
    if apart and len(occupied) > len(apart):
        # A serving trace that nothing ties to the logs says nothing about how the logs relate.
        unplaced = frozenset(process.process for host in apart for process in host)
        rest = align_clocks([process for process in processes if process.process not in unplaced])
        evidence = f"{apart[0][0].label} lies apart, on a clock of its own"
        evidence = f"{rest.alignment.evidence}; {evidence}" if rest.alignment.evidence else evidence
        alignment = msgspec.structs.replace(rest.alignment, evidence=evidence)
        return AlignedClocks(alignment, rest.shifts, rest.unplaced | unplaced)
    if len(occupied) <= 1:
        alignment = ClockAlignment(
            "one host clock",
            base_ns=_middle(occupied[0]) if occupied and _offsets(occupied[0]) else None,
            uncertainty_ns=0,
            evidence=_one_clock(processes),
            hosts=[_describe(host, 0) for host in occupied],
        )
        return AlignedClocks(alignment, {})
    without = next((host for host in occupied if not _offsets(host)), None)
    if without is not None:
        evidence = (
            f"nothing ties {without[0].label} to the clock of the others: no clock anchor, no log, process tree or run "
            "directory of both; keep the [CLOCK_ANCHOR] records, analyze the whole run directory, or say --one-clock"
        )
        alignment = ClockAlignment(
            "not aligned", evidence=evidence, hosts=[_describe(host, None) for host in occupied]
        )
        return AlignedClocks(alignment, {})
    reference = next((host for host in occupied if any(process.is_serving for process in host)), occupied[0])
    base = _middle(reference)
    described = [_describe(host, _middle(host) - base) for host in occupied]
    known = [host.disagreement_ns for host in described if host.disagreement_ns is not None]
    alignment = ClockAlignment(
        "clock anchors",
        base_ns=base,
        # A difference between two hosts has the errors of both.
        uncertainty_ns=sum(sorted(known)[-2:]) if len(known) == len(described) else None,
        evidence=f"{len(described)} hosts, {sum(host.anchors for host in described)} anchors",
        hosts=described,
    )
    shifts = {process.process: _middle(host) - base for host in occupied for process in host}
    return AlignedClocks(alignment, {process: shift for process, shift in shifts.items() if shift})


def shifted(spans: SpanTable, clocks: AlignedClocks) -> SpanTable:
    """`spans` on the common clock; a serving process that is on no other's gets a clock of its own."""
    apart = np.array([lane.process in clocks.unplaced for lane in spans.lanes], dtype=np.bool_)
    if apart.any():
        own = apart[spans.lane] & (spans.clock == Clock.HOST)
        spans = spans.with_clock(np.where(own, np.int8(Clock.FILE), spans.clock))
    of_lane = np.array([clocks.shifts.get(lane.process, 0) for lane in spans.lanes], dtype=np.int64)
    if not of_lane.any():
        return spans
    moves = np.where(spans.clock == Clock.HOST, of_lane[spans.lane], 0)
    return dataclasses.replace(spans, start_ns=spans.start_ns + moves)


def _hosts(processes: Sequence[ProcessClock]) -> list[list[ProcessClock]]:
    """The processes by host, each host in the order of its first process."""
    groups = _Groups(len(processes))
    anchored = sorted(
        (anchor.offset_ns, index) for index, process in enumerate(processes) for anchor in process.anchors
    )
    for (before, first), (after, second) in itertools.pairwise(anchored):
        if after - before <= SAME_CLOCK_NS:
            groups.join(first, second)
    together: dict[str, list[int]] = {}
    for index, process in enumerate(processes):
        together.setdefault(process.log, []).append(index)
    for indices in together.values():
        _join_together(groups, processes, indices)
    _join_nearby(groups, processes)
    return [[processes[index] for index in members] for members in groups.members()]


def _join_together(groups: _Groups, processes: Sequence[ProcessClock], indices: Sequence[int]) -> None:
    """Processes that write to one log are of one host where their times overlap, whatever the wall clock did."""
    timed = sorted((window, index) for index in indices if (window := processes[index].window) is not None)
    reached, last = 0, None
    for (begin, end), index in timed:
        if last is not None and begin < reached:
            groups.join(last, index)
        if last is None or end > reached:
            reached, last = end, index
    anchored = {groups.of(index) for index in indices if processes[index].anchors}
    if len(anchored) <= 1:
        # Lines of one log or one run, and no two clocks in it.
        for index in indices:
            if groups.of(index) not in anchored:
                groups.join(indices[0] if not anchored else min(anchored), index)


def _join_nearby(groups: _Groups, processes: Sequence[ProcessClock]) -> None:
    """Give serving processes without anchors, and what is without them in a log of several hosts, to the one group
    whose times lie around or near their own. Two logs are never tied by their times."""
    for members in groups.members():
        if any(processes[index].anchors for index in members):
            continue
        window = _window(processes[index] for index in members)
        if window is None:
            continue
        is_serving = all(processes[index].is_serving for index in members)
        logs = {processes[index].log for index in members}
        gaps: dict[int, int] = {}
        for index, process in enumerate(processes):
            group = groups.of(index)
            if group != groups.of(members[0]) and (is_serving or process.log in logs):
                gaps[group] = min(gaps.get(group, NEARBY_NS + 1), _gap(window, process.window))
        near = {group for group, gap in gaps.items() if gap <= NEARBY_NS}
        overlapping = {group for group, gap in gaps.items() if gap < 0}
        of_logs = {groups.of(index) for index, process in enumerate(processes) if not process.is_serving}
        chosen = near if len(near & of_logs) < 2 else overlapping
        if len(chosen & of_logs) < 2:
            for group in chosen:
                groups.join(group, members[0])


def _gap(first: tuple[int, int] | None, second: tuple[int, int] | None) -> int:
    """Time between two windows; negative where they overlap. A missing window is infinitely far."""
    if first is None or second is None:
        return NEARBY_NS + 1
    return max(first[0], second[0]) - min(first[1], second[1])


def _window(processes: Iterable[ProcessClock]) -> tuple[int, int] | None:
    windows = [process.window for process in processes if process.window is not None]
    if not windows:
        return None
    return min(first for first, _ in windows), max(last for _, last in windows)


def _offsets(host: Sequence[ProcessClock]) -> list[int]:
    return [anchor.offset_ns for process in host for anchor in process.anchors]


def _middle(host: Sequence[ProcessClock]) -> int:
    """The offset in the middle of all of a host's: no anchor is further from it than half their disagreement."""
    offsets = _offsets(host)
    return (min(offsets) + max(offsets)) // 2


def _describe(host: Sequence[ProcessClock], shift_ns: int | None) -> HostClock:
    anchors = sorted({(anchor.mono_ns, anchor.offset_ns) for process in host for anchor in process.anchors})
    offsets = [offset for _, offset in anchors]
    elapsed = anchors[-1][0] - anchors[0][0] if anchors else 0
    return HostClock(
        processes=[process.label for process in host],
        anchors=len(anchors),
        disagreement_ns=max(offsets) - min(offsets) if len(anchors) > 1 else None,
        drift_ppm=1e6 * (offsets[-1] - offsets[0]) / elapsed if elapsed >= _SECOND else None,
        shift_ns=shift_ns,
    )


def _one_clock(processes: Sequence[ProcessClock]) -> str:
    anchors = {(anchor.mono_ns, anchor.offset_ns) for process in processes for anchor in process.anchors}
    offsets = [offset for _, offset in anchors]
    if len(offsets) > 1:
        disagreement = max(offsets) - min(offsets)
        count = len({process.process[1] for process in processes if process.anchors})
        where = f"{len(offsets)} anchors of {count} {'process' if count == 1 else 'processes'}"
        if disagreement <= SAME_CLOCK_NS:
            return f"{where} agree within {duration_text(disagreement)}"
        return (
            f"{where} disagree by {duration_text(disagreement)}, but their times overlap in one log or run: "
            "the wall clock was set meanwhile"
        )
    files = {process.process[0] for process in processes}
    if len(files) < 2:
        return ""
    if any(process.written_to == STATED for process in processes):
        return "as --one-clock says; no anchors to compare"
    logs = {process.log for process in processes if not process.is_serving}
    if len(logs) == 1 and any(process.is_serving for process in processes):
        return f"no anchors to compare; the times of {len(files)} files lie together"
    return f"no anchors to compare; {len(files)} files of one run or one process tree"


def duration_text(duration_ns: int) -> str:
    """A duration in the unit that suits it."""
    for unit, name in ((_SECOND, "s"), (1_000_000, "ms"), (1_000, "us")):
        if duration_ns >= unit:
            return f"{duration_ns / unit:.3f} {name}"
    return f"{duration_ns} ns"


class _Groups:
    """Disjoint sets of indices."""

    def __init__(self, count: int) -> None:
        self._of = list(range(count))

    def of(self, index: int) -> int:
        """The smallest index of the set that `index` is in."""
        while self._of[index] != index:
            index = self._of[index]
        return index

    def join(self, first: int, second: int) -> None:
        """Make one set of two."""
        low, high = sorted((self.of(first), self.of(second)))
        self._of[high] = low

    def members(self) -> list[list[int]]:
        """Every set, in the order of its first index."""
        found: dict[int, list[int]] = {}
        for index in range(len(self._of)):
            found.setdefault(self.of(index), []).append(index)
        return list(found.values())
