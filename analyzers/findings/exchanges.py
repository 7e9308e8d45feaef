"""Synchronising exchanges: every rank leaves together, so the slow rank is the one that waits least.

A span of a collective lasts from the rank's arrival to the common end. Whoever comes last has the shortest span, and
imposes the difference on every other rank. Durations alone tell, so that ranks need no common clock.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

import numpy as np

from analyzers.measurement import Measured
from analyzers.report.model import Finding
from analyzers.statistics.counts import STABLE_SHARE, smallest_p_value, uniform_test
from analyzers.statistics.robust import lowest_outlier
from analyzers.steps.endpoints import span_reference
from analyzers.table.spans import ABSENT, Kind, SpanTable, as_id
from analyzers.text.words import milliseconds

PERSISTENT_P_VALUE = 0.01
SHARE_OF_SPAN = 0.2
"""The wait imposed on the others must be at least this share of their spans to be worth a word."""

_COLLECTIVE = re.compile(
    r"all_?to_?all|all_?reduce|all_?gather|reduce_?scatter|barrier|broadcast|(?:^|[._ ])(?:hccl|nccl)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Exchange:
    """One collective on all ranks: rank -> row of its span."""

    name: str
    rows: dict[int, int]


def slow_ranks(measured: Measured) -> Iterable[Finding]:
    """Who holds up the exchanges of each name: one finding a name, for a rank or for ranks in turn."""
    spans = measured.recording.spans
    by_name: dict[str, list[Exchange]] = {}
    for exchange in find_exchanges(spans):
        by_name.setdefault(exchange.name, []).append(exchange)
    for name, exchanges in by_name.items():
        yield from _slow_rank(name, exchanges, spans)


def find_exchanges(spans: SpanTable) -> list[Exchange]:
    """Collectives that at least three ranks recorded, matched by (name, step, how often it occurred in the step)."""
    rows = np.flatnonzero(spans.where_name(_is_collective) & (spans.kind != Kind.INSTANT)).tolist()
    seen: Counter[tuple[str, int, int]] = Counter()
    found: dict[tuple[str, int, int], dict[int, int]] = {}
    for row in sorted(rows, key=lambda row: int(spans.start_ns[row])):
        rank = _rank(spans, row)
        if rank == ABSENT:
            continue
        name, step = spans.name_of(row), _step(spans, row)
        occurrence = seen[name, step, rank]
        seen[name, step, rank] += 1
        found.setdefault((name, step, occurrence), {})[rank] = row
    everybody = {rank for by_rank in found.values() for rank in by_rank}
    return [
        Exchange(name, dict(sorted(by_rank.items())))
        for (name, _, _), by_rank in found.items()
        if len(by_rank) >= 3 and len(by_rank) == len(everybody)
    ]


def _slow_rank(name: str, exchanges: list[Exchange], spans: SpanTable) -> Iterable[Finding]:
    culprits: dict[int, list[tuple[Exchange, float]]] = {}
    for exchange in exchanges:
        ranks = list(exchange.rows)
        durations = [int(spans.duration_ns[row]) for row in exchange.rows.values()]
        lowest = lowest_outlier(durations)
        if lowest is None:
            continue
        others = median(durations[:lowest] + durations[lowest + 1 :])
        imposed = others - durations[lowest]
        if imposed >= SHARE_OF_SPAN * others:
            culprits.setdefault(ranks[lowest], []).append((exchange, imposed))
    if not culprits:
        return
    rank, held_up = max(culprits.items(), key=lambda entry: (len(entry[1]), -entry[0]))
    events = sum(map(len, culprits.values()))
    test = uniform_test([len(culprits.get(other, ())) for other in exchanges[0].rows])
    persistent = events == 1 or (test is not None and test.p_value < PERSISTENT_P_VALUE)
    imposed = median(wait for _, wait in held_up)
    exchange = held_up[0][0]
    p_value = f"; p = {test.p_value:.2g} ({test.method})" if test is not None and events > 1 else ""
    shortest = f"its span is the shortest in {len(held_up)} of {len(exchanges)} exchanges"
    figures = {"rank": rank, "exchanges": len(exchanges), "held_up": len(held_up), "imposed_wait_ns": imposed}
    where = [span_reference(spans, exchange.rows[rank])]
    if not persistent and not _changes(events, len(held_up), len(exchanges[0].rows)):
        title = f"{name}: {events} late arrivals, too few to tell whether one rank is late"
        evidence = f"rank {rank}: {shortest}{p_value}"
        yield Finding(
            "too_few_rounds", "info", title, evidence, "record more steps", figures=figures, spans=where
        )
        return
    if not persistent:
        title = f"{name}: no persistent straggler, the rank that comes last changes"
        evidence = f"rank {rank}: {shortest}{p_value}"
        yield Finding("no_persistent_straggler", "info", title, evidence, figures=figures, spans=where)
        return
    title = f"{name}: rank {rank} comes last, the others wait {milliseconds(imposed)} for it"
    victims = ", ".join(str(other) for other in exchange.rows if other != rank)
    evidence = f"{shortest}, an outlier by {_test_name(exchange)}; held up: ranks {victims}{p_value}"
    advice = "look at what that rank does before the exchange, not at the exchange"
    yield Finding("slow_rank_in_exchange", "warning", title, evidence, advice, figures=figures, spans=where)


def _changes(events: int, of_one: int, ranks: int) -> bool:
    """Whether so many late arrivals can tell a persistent rank, and are not nearly all of one."""
    return smallest_p_value(events, ranks) < PERSISTENT_P_VALUE and of_one <= STABLE_SHARE * events


def _test_name(exchange: Exchange) -> str:
    return "Dixon's test" if len(exchange.rows) <= 10 else "its modified z"


def _is_collective(name: str) -> bool:
    return _COLLECTIVE.search(name) is not None


def _rank(spans: SpanTable, row: int) -> int:
    """The rank of a row: its column, else what the span itself says."""
    rank = int(spans.rank[row])
    return rank if rank != ABSENT else as_id(spans.args(row).get("rank"))


def _step(spans: SpanTable, row: int) -> int:
    """The step of a row: its column, else what foreign traces call `step`."""
    step = int(spans.step_id[row])
    return step if step != ABSENT else as_id(spans.args(row).get("step"))
