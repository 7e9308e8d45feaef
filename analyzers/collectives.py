"""Exchanges that every rank takes part in: who came last, and how long the others waited for it.

In a synchronising exchange all ranks leave together, so the slow rank is the one that waits least: the one with the
SHORTEST span, which began last. The longest span belongs to a victim.
"""

from __future__ import annotations

import msgspec
import numpy as np

from analyzers.spans import ABSENT, Kind, Source, SpanTable
from analyzers.statistics import Summary, UnevenTest, summarize, uniform_test

_NAMES = ("all_to_all", "alltoall", "all_reduce", "allreduce", "all_gather", "allgather", "reduce_scatter",
          "reducescatter", "barrier", "dispatch_combine")  # fmt: skip
_LEAVES_TOGETHER = 0.5
"""Ends that lie closer together than this share of the starts' spread: the ranks left together."""


class Exchange(msgspec.Struct, frozen=True):
    """One exchange across ranks; times in ns."""

    name: str
    step: int | None
    culprit: int | None
    """The rank that began last and has the shortest span; None where the two disagree or tie."""
    start_skew_ns: int
    imposed_ns: dict[int, int]
    """rank -> how long it was in the exchange before the last one came."""


class ExchangeFigures(msgspec.Struct, frozen=True):
    """All exchanges of one name."""

    name: str
    ranks: list[int]
    exchanges: int
    incomplete: int
    """Exchanges without a span of every rank: in no figure."""
    start_skew: Summary
    culprits: dict[int, int]
    """rank -> exchanges that waited for it."""
    test: UnevenTest | None


def is_exchange(name: str) -> bool:
    """Whether a span of this name synchronises the ranks."""
    plain = name.lower().replace("-", "_")
    return any(word in plain for word in _NAMES)


def find_exchanges(spans: SpanTable) -> dict[str, list[Exchange | None]]:
    """Exchanges by name, matched by step id, else by order; None for one that lacks a rank.

    Only rows with a rank count. Their times must be of one clock (`Recording.clocks` says whether they are).
    """
    rows = np.flatnonzero(
        spans.where_name(is_exchange)
        & (spans.rank != ABSENT)
        & (spans.kind != Kind.INSTANT)
        & (spans.source == Source.SERVING)
    )
    found: dict[str, dict[int, list[tuple[int, int, int]]]] = {}
    for row in rows.tolist():
        start, step = int(spans.start_ns[row]), int(spans.step_id[row])
        entry = (start, start + int(spans.duration_ns[row]), step)
        found.setdefault(spans.name_of(row), {}).setdefault(int(spans.rank[row]), []).append(entry)
    return {name: _match(name, by_rank) for name, by_rank in found.items() if len(by_rank) > 1}


def measure_exchanges(spans: SpanTable) -> list[ExchangeFigures]:
    """Figures of every exchange in `spans`; [] where fewer than two ranks take part in any."""
    ranks = sorted(set(np.unique(spans.rank).tolist()) - {ABSENT})
    figures = []
    for name, exchanges in find_exchanges(spans).items():
        whole = [exchange for exchange in exchanges if exchange is not None]
        culprits = [exchange.culprit for exchange in whole if exchange.culprit is not None]
        counts = {rank: culprits.count(rank) for rank in ranks}
        figures.append(
            ExchangeFigures(
                name=name,
                ranks=ranks,
                exchanges=len(exchanges),
                incomplete=len(exchanges) - len(whole),
                start_skew=summarize([exchange.start_skew_ns for exchange in whole]),
                culprits=counts,
                test=uniform_test(list(counts.values())),
            )
        )
    return figures


def _match(name: str, by_rank: dict[int, list[tuple[int, int, int]]]) -> list[Exchange | None]:
    with_steps = all(step != ABSENT for entries in by_rank.values() for _, _, step in entries)
    groups: dict[tuple[int, int], dict[int, tuple[int, int]]] = {}
    for rank, entries in by_rank.items():
        seen: dict[int, int] = {}
        for index, (start, end, step) in enumerate(sorted(entries)):
            key = step if with_steps else index
            turn = seen.get(key, 0)
            seen[key] = turn + 1
            groups.setdefault((key, turn), {})[rank] = (start, end)
    return [
        _exchange(name, key if with_steps else None, members) if len(members) == len(by_rank) else None
        for (key, _), members in sorted(groups.items())
    ]


def _exchange(name: str, step: int | None, members: dict[int, tuple[int, int]]) -> Exchange:
    last_start = max(start for start, _ in members.values())
    imposed = {rank: last_start - start for rank, (start, _) in sorted(members.items())}
    return Exchange(name, step, _culprit(members), max(imposed.values()), imposed)


def _culprit(members: dict[int, tuple[int, int]]) -> int | None:
    starts = sorted(members, key=lambda rank: members[rank][0])
    shortest = min(members, key=lambda rank: members[rank][1] - members[rank][0])
    last, before = starts[-1], starts[-2]
    ends = [end for _, end in members.values()]
    spread = members[last][0] - members[starts[0]][0]
    alone = members[last][0] > members[before][0]
    together = max(ends) - min(ends) <= _LEAVES_TOGETHER * spread
    return last if alone and together and shortest == last else None
