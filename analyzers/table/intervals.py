"""Time intervals: which ones meet, and how many are open at once."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from analyzers.table.spans import Int64s, Mask


class Interval(NamedTuple):
    """[start, end) in ns of one clock."""

    start_ns: int
    end_ns: int

    @property
    def duration_ns(self) -> int:
        """Length in ns."""
        return self.end_ns - self.start_ns

    def overlaps(self, other: Interval) -> bool:
        """Whether the two share any time."""
        return self.start_ns < other.end_ns and other.start_ns < self.end_ns


class IntervalSet:
    """Intervals, to be asked which others share time with any of them."""

    def __init__(self, starts_ns: Int64s, ends_ns: Int64s) -> None:
        order = np.argsort(starts_ns, kind="stable")
        self._starts = starts_ns[order]
        self._reached = np.maximum.accumulate(ends_ns[order])

    def overlap(self, starts_ns: Int64s, ends_ns: Int64s) -> Mask:
        """Which of these intervals overlap one of the set, as `Interval.overlaps` means it."""
        if not len(self._starts):
            return np.zeros(len(starts_ns), dtype=np.bool_)
        # Of those that start before an interval ends, the one that reaches furthest decides.
        before = np.searchsorted(self._starts, ends_ns, side="left")
        reached: Mask = self._reached[before - 1] > starts_ns
        return (before > 0) & reached


def open_at(at_ns: Sequence[int], ends_ns: Sequence[int]) -> Iterator[list[tuple[int, int]]]:
    """For each of a row of intervals, those open at its time `at_ns`, itself always among them.

    An interval is open from its own turn on, until a time at or after its end. Each is given as (end, index), in the
    order of a heap; the list changes with the next turn.
    """
    open_now: list[tuple[int, int]] = []
    for index, (at, end) in enumerate(zip(at_ns, ends_ns, strict=True)):
        while open_now and open_now[0][0] <= at:
            heapq.heappop(open_now)
        heapq.heappush(open_now, (end, index))
        yield open_now


def most_open(at_ns: Sequence[int], ends_ns: Sequence[int]) -> int:
    """The most intervals that `open_at` finds at once; 0 without any."""
    return max(map(len, open_at(at_ns, ends_ns)), default=0)
