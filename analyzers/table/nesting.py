"""How spans of one thread nest: which lies in which, how deep, and where two overlap without nesting."""

from __future__ import annotations

import bisect
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from analyzers.table.spans import Int64s

_PIECE = 100_000


class Nesting(NamedTuple):
    """Intervals sorted by (start, longest first): what each is inside of."""

    self_ns: Int64s
    """Duration without the union of the intervals that lie inside."""
    depth: Int64s
    """0 for one that lies in no other."""
    crossings: list[tuple[int, int]]
    """(earlier, later) where the later one leaves the innermost one that it begins in."""
    rounded: int
    """Intervals that lie in another only because their end was rounded."""


class _Crossed:
    """Intervals that a later one crosses, until they end: what the later one holds may lie in them too."""

    def __init__(self) -> None:
        self._by_end: list[tuple[int, int]] = []
        self._reach: dict[int, int] = {}

    def take(self, open_spans: list[tuple[int, int]], reach: list[int], end: int) -> None:
        """Take those that end before `end` from the top of `open_spans`, each with how far it is covered."""
        while open_spans and open_spans[-1][0] < end:
            self._reach[open_spans[-1][1]] = reach.pop()
            bisect.insort(self._by_end, open_spans.pop())

    def cover(self, start: int, end: int, own: Int64s) -> None:
        """Take [start, end) off the own time of those that it lies in."""
        del self._by_end[: bisect.bisect_right(self._by_end, (start, len(own)))]
        for _, index in self._by_end[bisect.bisect_left(self._by_end, (end, 0)) :]:
            own[index] -= max(0, end - max(start, self._reach[index]))
            self._reach[index] = max(end, self._reach[index])


def nest(starts: Int64s, ends: Int64s, *, rounding_ns: int = 0) -> Nesting:
    """The `Nesting` of intervals sorted by (start, longest first).

    One that ends up to `rounding_ns` after the interval that it begins in lies in it, with the part inside.
    """
    own = ends - starts
    depth = np.zeros(len(starts), dtype=np.int64)
    crossings: list[tuple[int, int]] = []
    rounded = 0
    # Only where an earlier interval is still open can anything nest or cross.
    reached = np.maximum.accumulate(ends)
    if not (starts[1:] < reached[:-1]).any():
        return Nesting(own, depth, crossings, rounded)
    open_spans: list[tuple[int, int]] = []
    reach: list[int] = []
    """Up to where each of them is covered by what lies in it."""
    crossed = _Crossed()
    for first in range(0, len(starts), _PIECE):
        piece = slice(first, first + _PIECE)
        for index, (start, end) in enumerate(
            zip(starts[piece].tolist(), ends[piece].tolist(), strict=True), first
        ):
            while open_spans and open_spans[-1][0] <= start:
                open_spans.pop()
                reach.pop()
            if open_spans and end > open_spans[-1][0]:
                if end <= open_spans[-1][0] + rounding_ns:
                    end = open_spans[-1][0]
                    rounded += 1
                else:
                    crossings.append((open_spans[-1][1], index))
                    # What it crosses ends inside it: from here on it is the innermost that stays open longest.
                    crossed.take(open_spans, reach, end)
            if open_spans:
                depth[index] = len(open_spans)
                if end > reach[-1]:
                    own[open_spans[-1][1]] -= end - max(start, reach[-1])
                    reach[-1] = end
            if crossings:
                crossed.cover(start, end, own)
            open_spans.append((end, index))
            reach.append(start)
    return Nesting(own, depth, crossings, rounded)


class RowNesting(NamedTuple):
    """For every row of a table, ABSENT for rows that do not nest: asynchronous ones, instants, the device clock's."""

    self_ns: Int64s
    depth: npt.NDArray[np.int32]
