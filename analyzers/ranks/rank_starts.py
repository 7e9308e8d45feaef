"""How far apart ranks start spans of one name, where their traces share a clock (docs/metrics.md, Ranks)."""

from __future__ import annotations

import msgspec
import numpy as np

from analyzers.statistics.summary import Summary, summarize
from analyzers.table.grouping import Rows, number_groups, split_groups, turns
from analyzers.table.spans import ABSENT, Kind, Source, SpanTable


class StartSkew(msgspec.Struct, frozen=True):
    """Starts of one name on every rank, in ns; n = 0 where no occurrence is on every rank."""

    name: str
    ranks: list[int]
    incomplete: int
    """Occurrences without a span of every rank: left out."""
    skew: Summary
    """max - min over ranks of the start."""


def measure_rank_starts(spans: SpanTable) -> list[StartSkew]:
    """Start skew of every name that two or more ranks have, matched by step id, else by order.

    The rows' times must be of one clock: `Recording.clocks` says whether they are.
    """
    rows = np.flatnonzero(
        (spans.rank != ABSENT) & (spans.kind == Kind.SPAN) & (spans.source == Source.SERVING)
    )
    rows = rows[np.argsort(spans.start_ns[rows], kind="stable")]
    ranks = spans.rank[rows]
    if not len(rows) or not (ranks != ranks[0]).any():
        return []
    return [
        figure
        for members in split_groups(spans.name[rows])
        if (figure := _start_skew(spans, rows[members])) is not None
    ]


def _start_skew(spans: SpanTable, rows: Rows) -> StartSkew | None:
    """The figure of one name, whose `rows` are in order of time; None where only one rank has it."""
    ranks = np.unique(spans.rank[rows])
    if len(ranks) < 2:
        return None
    turn = turns(number_groups(spans.rank[rows], spans.step_id[rows]))
    occurrence = number_groups(spans.step_id[rows], turn)
    count = int(occurrence.max()) + 1
    starts = spans.start_ns[rows]
    # In order of time, the first of an occurrence is its least and the last its greatest.
    first, last = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    first[occurrence[::-1]], last[occurrence] = starts[::-1], starts
    whole = np.bincount(occurrence) == len(ranks)
    skew = summarize((last - first)[whole])
    return StartSkew(spans.name_of(int(rows[0])), ranks.tolist(), int((~whole).sum()), skew)
