"""How far apart ranks start spans of one name, where their traces share a clock (metrics.md, Ranks)."""

from __future__ import annotations

import msgspec
import numpy as np

from analyzers.spans import ABSENT, Kind, Source, SpanTable
from analyzers.statistics import Summary, summarize


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
    ranks = sorted(set(spans.rank[rows].tolist()))
    if len(ranks) < 2:
        return []
    starts: dict[str, dict[tuple[int, int], dict[int, int]]] = {}
    turns: dict[tuple[str, int, int], int] = {}
    ordered = rows[np.argsort(spans.start_ns[rows], kind="stable")]
    columns = (spans.name[ordered], spans.rank[ordered], spans.step_id[ordered], spans.start_ns[ordered])
    for code, rank, step, start in zip(*(column.tolist() for column in columns), strict=True):
        name = spans.names[code]
        turn = turns.get((name, rank, step), 0)
        turns[name, rank, step] = turn + 1
        starts.setdefault(name, {}).setdefault((step, turn), {})[rank] = start
    figures = []
    for name, occurrences in starts.items():
        taking_part = sorted({rank for by_rank in occurrences.values() for rank in by_rank})
        whole = [by_rank for by_rank in occurrences.values() if len(by_rank) == len(taking_part)]
        if len(taking_part) > 1:
            skews = [max(by_rank.values()) - min(by_rank.values()) for by_rank in whole]
            figures.append(StartSkew(name, taking_part, len(occurrences) - len(whole), summarize(skews)))
    return figures
