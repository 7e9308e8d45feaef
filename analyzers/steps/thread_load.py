"""How busy each thread was, and which of its spans overlap without nesting."""

from __future__ import annotations

import msgspec
import numpy as np

from analyzers.table.nesting import Nesting, RowNesting, nest
from analyzers.table.spans import ABSENT, Clock, Int64s, Kind, Source, SpanTable

ROUNDING_NS = 1_000
"""In a trace of whole microseconds a span may seem to end that much after the one around it."""


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
    rounded: int = 0
    """Spans of a trace in whole microseconds that end up to one after the span around them: they lie inside."""


def measure_lanes(spans: SpanTable) -> tuple[list[LaneFigures], RowNesting]:
    """Figures of every lane with spans, and how its rows nest; the device clock, which restarts, is left out."""
    nesting = RowNesting(np.full(len(spans), ABSENT, np.int64), np.full(len(spans), ABSENT, np.int32))
    rows = np.flatnonzero((spans.kind == Kind.SPAN) & (spans.clock != Clock.DEVICE))
    rows = rows[np.argsort(spans.lane[rows], kind="stable")]
    lanes, firsts = np.unique(spans.lane[rows], return_index=True)
    bounds = [*firsts.tolist(), len(rows)]
    resolution = _Resolution(spans)
    return [
        _measure(spans, lane, rows[begin:end], nesting, resolution)
        for lane, begin, end in zip(lanes.tolist(), bounds, bounds[1:], strict=False)
    ], nesting


class _Resolution:
    """Which files hold whole microseconds only; each is looked at once, and only when somebody asks."""

    def __init__(self, spans: SpanTable) -> None:
        self._spans = spans
        self._known: dict[str, bool] = {}
        # A file alone on its own clock keeps the times that it has.
        self._may_be_moved = len({lane.file for lane in spans.lanes}) > 1 or bool(
            (spans.clock == Clock.HOST).any()
        )

    def is_whole_microseconds(self, file: str) -> bool:
        """Whether all times of a serving trace are; what another clock moved keeps its distances."""
        if file not in self._known:
            spans = self._spans
            lanes = [code for code, lane in enumerate(spans.lanes) if lane.file == file]
            rows = (spans.source == Source.SERVING) & np.isin(spans.lane, lanes)
            starts = spans.start_ns[rows]
            moved = starts[:1] % 1000 if self._may_be_moved else 0
            self._known[file] = len(starts) > 0 and not bool(
                ((starts - moved) % 1000).any() or (spans.duration_ns[rows] % 1000).any()
            )
        return self._known[file]


def _measure(
    spans: SpanTable,
    code: int,
    rows: np.ndarray[tuple[int], np.dtype[np.intp]],
    nesting: RowNesting,
    resolution: _Resolution,
) -> LaneFigures:
    rows = rows[np.lexsort((-spans.duration_ns[rows], spans.start_ns[rows]))]
    starts = spans.start_ns[rows]
    ends = starts + spans.duration_ns[rows]
    lane, rank = spans.lanes[code], int(spans.rank[rows[0]])
    nested = nest(starts, ends)
    if nested.crossings and resolution.is_whole_microseconds(lane.file):
        nested = nest(starts, ends, rounding_ns=ROUNDING_NS)
    nesting.self_ns[rows], nesting.depth[rows] = nested.self_ns, nested.depth
    pid = lane.process[1]
    return LaneFigures(
        file=lane.file,
        pid="(unknown)" if pid is None else str(pid),
        tid="(unknown)" if lane.tid is None else str(lane.tid),
        rank=None if rank == ABSENT else rank,
        spans=len(rows),
        busy_ns=_union(starts, ends),
        overlaps=len(nested.crossings),
        first_overlap=_first_overlap(spans, rows, nested),
        rounded=nested.rounded,
    )


def _first_overlap(
    spans: SpanTable, rows: np.ndarray[tuple[int], np.dtype[np.intp]], nested: Nesting
) -> list[str]:
    return [spans.name_of(int(rows[index])) for index in nested.crossings[0]] if nested.crossings else []


def _union(starts: Int64s, ends: Int64s) -> int:
    """Total length of sorted intervals, each moment once."""
    reached = np.maximum.accumulate(ends)
    before = np.concatenate([starts[:1], reached[:-1]])
    return int((np.maximum(ends, before) - np.maximum(starts, before)).sum())
