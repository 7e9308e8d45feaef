"""The processes of one log: their devices and clock anchors, and which wrote a record where a pid was used again.

Upstream, a process writes one ready line; its anchor is its first record. So a second ready line of a pid, a clock that
went back, or invocations that begin again behind an anchor prove that another process has got the pid.
"""

from __future__ import annotations

import bisect
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from analyzers.table.processes import with_incarnations
from analyzers.table.spans import Clock, Lane, Mask, SpanTable

_ANCHOR = re.compile(
    rb"\[CLOCK_ANCHOR\][ \t]+v=1[ \t]+pid=(\d{1,18})[ \t]+mono_ns=(\d{1,18})[ \t]+wall_ns=(\d{1,19})(?!\d)"
)
_READY = re.compile(rb"\[chip_process pid=(\d{1,18}) dev=(\d{1,9})\] ready")
_VISIBLE = re.compile(rb"ASCEND_RT_VISIBLE_DEVICES=[\"']?([0-9][0-9, ]*)")
# One device in both spaces, as the runtime logs it at DEBUG level.
_MAPPED = re.compile(rb"device id: acl (\d{1,9}) -> hal (\d{1,9})")

# What the runtime's endpoint and its handle report; the text may stand in any line, and be repeated.
_EXITED = re.compile(
    rb"child process pid=(\d{1,18}) exited before mailbox completion(?: \(([^()\r\n]{1,80})\))?"
)
_TIME_OUTS = (b"TimeoutError", b"wait() timed out")
# A wait that was told to wait for no time is a question, and its answer no time-out.
_POLL = re.compile(rb"timeout=0(?:\.0*)?(?![\d.])")

_ROOT = "chip.run"


@dataclass(frozen=True)
class ClockAnchor:
    """One process's mapping from CLOCK_MONOTONIC to wall time: wall = wall_ns + (t - mono_ns)."""

    pid: int
    mono_ns: int
    wall_ns: int
    incarnation: int = 0
    """Which of the processes that had the pid, from 0."""

    @property
    def offset_ns(self) -> int:
        """Wall time, in ns since 1970, at which the process's clock showed 0."""
        return self.wall_ns - self.mono_ns


@dataclass(frozen=True)
class ReadyDevice:
    """A ready line: the device number that the runtime gave a process, which is a logical one."""

    pid: int
    logical_device: int
    incarnation: int = 0


@dataclass(frozen=True)
class LogProcesses:
    """What the lines of a log besides its records say about its processes."""

    anchors: tuple[ClockAnchor, ...] = ()
    ready: tuple[ReadyDevice, ...] = ()
    physical_devices: Mapping[int, int] = field(default_factory=dict)
    """Logical device -> physical device, where the log names the visible devices, and only one list of them."""
    exits: Mapping[int, str] = field(default_factory=dict)
    """pid -> how it exited before it had completed its run, as the runtime says: `signal=9`; "" where it does not."""
    timed_out_ns: int | None = None
    """The latest end of the records before the last line that says that a wait timed out; None without such a line."""


@dataclass(frozen=True)
class _Marker:
    """An anchor or a ready line, the how manieth it is, and how many rows of each table were read before it."""

    line: ClockAnchor | ReadyDevice
    order: int
    row: int
    invalid_row: int


class ProcessFinder:
    """Collects what a log says of its processes, piece by piece; `tell_apart` is for the finished tables."""

    def __init__(self) -> None:
        self._markers: list[_Marker] = []
        self._visible: set[str] = set()
        self._mapped: dict[int, set[int]] = {}
        self._exits: dict[int, str] = {}
        self._timed_out_row: int | None = None

    def add(
        self, text: bytes, records: Sequence[re.Match[bytes]], first_row: int, first_invalid_row: int
    ) -> None:
        """Take one piece of the log: `records` are those in it, and the rows the first that they become."""
        found: list[tuple[int, ClockAnchor | ReadyDevice]] = [
            (match.start(), ClockAnchor(*map(int, match.groups()))) for match in _ANCHOR.finditer(text)
        ]
        found += [(match.start(), ReadyDevice(*map(int, match.groups()))) for match in _READY.finditer(text)]
        starts = [record.start() for record in records] if found else []
        for offset, line in sorted(found, key=lambda entry: entry[0]):
            before = bisect.bisect_left(starts, offset)
            invalid = sum(record[8].startswith(b"-") for record in records[:before])
            row = first_row + before - invalid
            self._markers.append(_Marker(line, len(self._markers), row, first_invalid_row + invalid))
        self._visible.update(match[1].decode().strip(" ,") for match in _VISIBLE.finditer(text))
        for match in _EXITED.finditer(text):
            self._exits.setdefault(int(match[1]), (match[2] or b"").decode(errors="replace"))
        self._find_time_out(text, records, first_row)
        for match in _MAPPED.finditer(text):
            self._mapped.setdefault(int(match[1]), set()).add(int(match[2]))

    def _find_time_out(self, text: bytes, records: Sequence[re.Match[bytes]], first_row: int) -> None:
        at = len(text)
        while (at := max(text.rfind(word, 0, at) for word in _TIME_OUTS)) >= 0:
            begin = max(text.rfind(b"\n", 0, at), text.rfind(b"\r", 0, at)) + 1
            if not _POLL.search(text, begin, at):
                before = bisect.bisect_left([record.start() for record in records], at)
                invalid = sum(record[8].startswith(b"-") for record in records[:before])
                self._timed_out_row = first_row + before - invalid
                return

    def _timed_out_ns(self, spans: SpanTable) -> int | None:
        if self._timed_out_row is None:
            return None
        before = np.flatnonzero(spans.clock[: self._timed_out_row] == Clock.HOST)
        return int(spans.end_ns[before].max()) if len(before) else None

    def without_rows(self, kept: Mask) -> None:
        """Count rows anew: only those of `kept` remain in the table of spans."""
        before = np.concatenate([[0], np.cumsum(kept)])
        self._markers = [
            dataclasses.replace(marker, row=int(before[min(marker.row, len(kept))]))
            for marker in self._markers
        ]
        if self._timed_out_row is not None:
            self._timed_out_row = int(before[min(self._timed_out_row, len(kept))])

    def tell_apart(self, spans: SpanTable, invalid: SpanTable) -> tuple[SpanTable, SpanTable, LogProcesses]:
        """Both tables with the incarnation of each lane, and the processes of the log."""
        of_pid: dict[int, list[_Marker]] = {}
        self._markers = _without_repeated_anchors(self._markers)
        for marker in self._markers:
            of_pid.setdefault(marker.line.pid, []).append(marker)
        begins = {pid: found for pid, markers in of_pid.items() if (found := _begins(spans, pid, markers))}
        lines = [
            dataclasses.replace(
                marker.line,
                incarnation=sum(begin.order <= marker.order for begin in begins.get(marker.line.pid, ())),
            )
            for marker in self._markers
        ]
        processes = LogProcesses(
            anchors=tuple(line for line in lines if isinstance(line, ClockAnchor)),
            ready=tuple(line for line in lines if isinstance(line, ReadyDevice)),
            physical_devices=self._physical_devices(),
            exits=self._exits,
            timed_out_ns=self._timed_out_ns(spans),
        )
        for pid, found in begins.items():
            has_pid = _has_pid(pid)
            spans = with_incarnations(spans, has_pid, [begin.row for begin in found])
            invalid = with_incarnations(invalid, has_pid, [begin.invalid_row for begin in found])
        return spans, invalid, processes

    def _physical_devices(self) -> dict[int, int]:
        if self._visible:
            return parse_visible_devices(next(iter(self._visible))) if len(self._visible) == 1 else {}
        return {
            logical: next(iter(physical)) for logical, physical in self._mapped.items() if len(physical) == 1
        }


def parse_visible_devices(text: str) -> dict[int, int]:
    """Logical -> physical device of a list like `4,5,6,7`; {} for one that is not whole.

    Upstream reads ASCEND_RT_VISIBLE_DEVICES so: separated by commas or blanks, believed whole or not at all.
    """
    words = text.replace(",", " ").split()
    if not all(word.isascii() and word.isdecimal() and len(word) < 10 for word in words):
        return {}
    return dict(enumerate(map(int, words)))


def _without_repeated_anchors(markers: Sequence[_Marker]) -> list[_Marker]:
    """`markers` without the anchors that are there again: no clock shows a time twice."""
    known: set[ClockAnchor] = set()
    kept = []
    for marker in markers:
        if isinstance(marker.line, ClockAnchor):
            if marker.line in known:
                continue
            known.add(marker.line)
        kept.append(marker)
    return kept


def _begins(spans: SpanTable, pid: int, markers: Sequence[_Marker]) -> list[_Marker]:
    """The markers with which another process begins; for a second ready line that is the anchor before it."""
    if len(markers) < 2:
        return []
    anchors = [marker for marker in markers if isinstance(marker.line, ClockAnchor)]
    ends = {id(anchor): after.row for anchor, after in pairwise(anchors)}
    rows, invocations = _runs(spans, pid)
    found: list[_Marker] = []
    last: ClockAnchor | None = None
    unready: _Marker | None = None
    """The last anchor, until a ready line follows it."""
    ready: _Marker | None = None
    for marker in markers:
        if isinstance(marker.line, ReadyDevice):
            if ready is not None and not _is_repeat(ready, marker, unready, rows):
                found.append(unready or marker)
            ready, unready = marker, None
            continue
        if last is not None:
            first = bisect.bisect_left(rows, found[-1].row if found else 0)
            here = bisect.bisect_left(rows, marker.row)
            end = bisect.bisect_left(rows, ends.get(id(marker), len(spans)))
            went_back = marker.line.mono_ns < last.mono_ns
            if went_back or _begin_again(invocations[first:here], invocations[here:end]):
                found.append(marker)
                ready = None
        last, unready = marker.line, marker
    return found


def _is_repeat(
    before: _Marker,
    marker: _Marker,
    anchor: _Marker | None,
    rows: Sequence[int],
) -> bool:
    """Whether a ready line is the one before it, delivered again: the pid has runs on one side of it at most."""
    if before.line != marker.line or anchor is not None:
        return False
    first, here = bisect.bisect_left(rows, before.row), bisect.bisect_left(rows, marker.row)
    return not (rows[first:here] and rows[here:])


def _runs(spans: SpanTable, pid: int) -> tuple[list[int], list[int]]:
    """Rows and invocations of the runs of a pid."""
    of_pid = np.array([lane.pid == pid for lane in spans.lanes], dtype=np.bool_)
    if not of_pid.any():
        return [], []
    rows = np.flatnonzero(spans.named(_ROOT) & of_pid[spans.lane])
    return rows.tolist(), spans.invocation[rows].tolist()


def _begin_again(before: Sequence[int], after: Sequence[int]) -> bool:
    """Whether invocations, which one process counts upwards, begin again: each has one run."""
    return bool(before and after) and (min(after) < min(before) or not set(before).isdisjoint(after))


def _has_pid(pid: int) -> Callable[[Lane], bool]:
    return lambda lane: lane.pid == pid
