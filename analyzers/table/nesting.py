"""How spans of one thread nest: which lies in which, how deep, and where two overlap without nesting."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from analyzers.table.spans import Int64s

_PIECE = 100_000


class Nesting(NamedTuple):
    """Intervals sorted by (start, longest first): what each is inside of."""

    self_ns: Int64s
    """Duration without that of the intervals directly inside."""
    depth: Int64s
    """0 for one that lies in no other."""
    crossings: list[tuple[int, int]]
    """(earlier, later) where the later one leaves the innermost one that it begins in."""


def nest(starts: Int64s, ends: Int64s) -> Nesting:
    """The `Nesting` of intervals sorted by (start, longest first)."""
    own = ends - starts
    depth = np.zeros(len(starts), dtype=np.int64)
    crossings: list[tuple[int, int]] = []
    # Only where an earlier interval is still open can anything nest or cross.
    reached = np.maximum.accumulate(ends)
    if not (starts[1:] < reached[:-1]).any():
        return Nesting(own, depth, crossings)
    open_spans: list[tuple[int, int]] = []
    for first in range(0, len(starts), _PIECE):
        piece = slice(first, first + _PIECE)
        for index, (start, end) in enumerate(
            zip(starts[piece].tolist(), ends[piece].tolist(), strict=True), first
        ):
            while open_spans and open_spans[-1][0] <= start:
                open_spans.pop()
            if open_spans and end > open_spans[-1][0]:
                crossings.append((open_spans[-1][1], index))
                # What it crosses ends inside it: from here on it is the innermost that stays open longest.
                while open_spans and open_spans[-1][0] < end:
                    open_spans.pop()
            if open_spans:
                depth[index] = len(open_spans)
                own[open_spans[-1][1]] -= end - start
            open_spans.append((end, index))
    return Nesting(own, depth, crossings)


class RowNesting(NamedTuple):
    """For every row of a table, ABSENT for rows that do not nest: asynchronous ones, instants, the device clock's."""

    self_ns: Int64s
    depth: npt.NDArray[np.int32]
