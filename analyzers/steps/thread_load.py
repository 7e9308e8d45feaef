"""How busy each thread was, and which of its spans overlap without nesting."""

from __future__ import annotations

import msgspec
import numpy as np

from analyzers.table.nesting import RowNesting, nest
from analyzers.table.spans import ABSENT, Clock, Int64s, Kind, SpanTable


class LaneFigures(msgspec.Struct, frozen=True):
    """One thread; times in ns of its own clock."""

    file: str
    pid: str
    tid: str
    rank: int | None
    spans: int
    busy_ns: int
    """Length of the union of its spans: nested and overlapping ones count once."""
    overlaps: int
    """Spans that begin inside another one of the thread and end after it: no call stack looks like that."""
    first_overlap: list[str]
    """The names of the first such pair."""


def measure_lanes(spans: SpanTable) -> tuple[list[LaneFigures], RowNesting]:
    """Figures of every lane with spans, and how its rows nest; the device clock, which restarts, is left out."""
    nesting = RowNesting(np.full(len(spans), ABSENT, np.int64), np.full(len(spans), ABSENT, np.int32))
    rows = np.flatnonzero((spans.kind == Kind.SPAN) & (spans.clock != Clock.DEVICE))
    rows = rows[np.argsort(spans.lane[rows], kind="stable")]
    lanes, firsts = np.unique(spans.lane[rows], return_index=True)
    bounds = [*firsts.tolist(), len(rows)]
    return [
        _measure(spans, lane, rows[begin:end], nesting)
        for lane, begin, end in zip(lanes.tolist(), bounds, bounds[1:], strict=False)
    ], nesting


def _measure(
    spans: SpanTable, code: int, rows: np.ndarray[tuple[int], np.dtype[np.intp]], nesting: RowNesting
) -> LaneFigures:
    rows = rows[np.lexsort((-spans.duration_ns[rows], spans.start_ns[rows]))]
    starts = spans.start_ns[rows]
    ends = starts + spans.duration_ns[rows]
    nested = nest(starts, ends)
    nesting.self_ns[rows], nesting.depth[rows] = nested.self_ns, nested.depth
    crossings = nested.crossings
    lane, rank = spans.lanes[code], int(spans.rank[rows[0]])
    return LaneFigures(
        file=lane.file,
        pid="(unknown)" if lane.pid is None else str(lane.pid),
        tid="(unknown)" if lane.tid is None else str(lane.tid),
        rank=None if rank == ABSENT else rank,
        spans=len(rows),
        busy_ns=_union(starts, ends),
        overlaps=len(crossings),
        first_overlap=[spans.name_of(int(rows[index])) for index in crossings[0]] if crossings else [],
    )


def _union(starts: Int64s, ends: Int64s) -> int:
    """Total length of sorted intervals, each moment once."""
    reached = np.maximum.accumulate(ends)
    before = np.concatenate([starts[:1], reached[:-1]])
    return int((np.maximum(ends, before) - np.maximum(starts, before)).sum())
