"""Where a change lies, rank by rank: whose runs became longer, and how far the ranks are apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

from analyzers.compare.changes import ALIKE, in_percent, time_change
from analyzers.compare.model import Change, RankChange, RankComparison, RankFigure, RankFigureName, SideName
from analyzers.compare.phases import pair_callables
from analyzers.ranks.skew import RankSkew
from analyzers.statistics.robust import DIXON_CRITICAL
from analyzers.statistics.summary import Summary
from analyzers.table.callables import is_prefill

_FIGURES: dict[RankFigureName, Callable[[RankSkew], Summary]] = {
    "runner-start skew": lambda item: item.runner_start_skew,
    "runner-end skew": lambda item: item.runner_end_skew,
    "step-end skew": lambda item: item.step_end_skew,
    "critical rank": lambda item: item.critical_rank.root,
    "bind": lambda item: item.bind,
    "runner_run": lambda item: item.runner_run,
    "runner-to-validate gap": lambda item: item.runner_to_validate_gap,
    "validate": lambda item: item.validate,
    "host excess": lambda item: item.host_excess,
    "device bubble": lambda item: item.device_bubble,
}


def compare_ranks(a: Sequence[Sequence[RankSkew]], b: Sequence[Sequence[RankSkew]]) -> list[RankComparison]:
    """Every decode callable whose runs both sides record; steady rounds where every run has some.

    `a` and `b` hold the figures of each run.
    """
    found = []
    for name, other in pair_callables(_decode(a), _decode(b)).items():
        for scope in ("steady", "all"):
            before, after = _of(a, name, scope), _of(b, other, scope)
            if before and after and (scope == "all" or _all_have(a, name, b, other)):
                found.append(_compare(before, after))
                break
    return found


def _decode(runs: Sequence[Sequence[RankSkew]]) -> list[str]:
    return list(dict.fromkeys(item.callable for run in runs for item in run if not is_prefill(item.callable)))


def _of(runs: Sequence[Sequence[RankSkew]], name: str, scope: str) -> list[RankSkew]:
    return [item for run in runs for item in run if (item.callable, item.scope) == (name, scope)]


def _all_have(
    a: Sequence[Sequence[RankSkew]], name: str, b: Sequence[Sequence[RankSkew]], other: str
) -> bool:
    """Whether each run with rounds of the callable has steady ones."""
    return all(
        len(_of(runs, callable_name, "steady")) == len(_of(runs, callable_name, "all"))
        for runs, callable_name in ((a, name), (b, other))
    )


def _compare(a: Sequence[RankSkew], b: Sequence[RankSkew]) -> RankComparison:
    before, after = ({rank for item in side for rank in item.ranks} for side in (a, b))
    ranks = [
        RankChange(
            rank=rank,
            runner_run=_change(a, b, partial(_runner_run, rank)),
            root=_change(a, b, partial(_root, rank)),
        )
        for rank in sorted(before & after)
    ]
    missing: dict[SideName, list[int]] = {"A": sorted(after - before), "B": sorted(before - after)}
    figures = [
        RankFigure(figure, change)
        for figure, summary_of in _FIGURES.items()
        if (change := _change(a, b, summary_of)) is not None
    ]
    moved = _moved(ranks)
    return RankComparison(
        callable=a[0].callable,
        scope=a[0].scope,
        a_runs=len(a),
        b_runs=len(b),
        ranks=ranks,
        missing_ranks={side: absent for side, absent in missing.items() if absent},
        moved=moved,
        figures=figures,
        statement=_statement(ranks, moved),
    )


def _runner_run(rank: int, item: RankSkew) -> Summary | None:
    return next((times.runner_run for times in item.by_rank if times.rank == rank), None)


def _root(rank: int, item: RankSkew) -> Summary | None:
    return next((times.root for times in item.by_rank if times.rank == rank), None)


def _change(
    a: Sequence[RankSkew], b: Sequence[RankSkew], summary_of: Callable[[RankSkew], Summary | None]
) -> Change | None:
    """The change of the mean of one figure; None unless runs of both sides have it."""
    before, after = (
        [found.mean for item in side if (found := summary_of(item)) is not None and found.mean is not None]
        for side in (a, b)
    )
    return time_change(before, after) if before and after else None


def _ratios(ranks: Sequence[RankChange]) -> dict[int, float]:
    """rank -> how its runner_run changed."""
    return {
        entry.rank: entry.runner_run.ratio
        for entry in ranks
        if entry.runner_run is not None and entry.runner_run.ratio
    }


def _moved(ranks: Sequence[RankChange]) -> list[int]:
    """The rank, or the few ranks, whose change stands apart from that of all the others.

    A group of at most a quarter of the ranks, at either end of the sorted changes, stands apart when the gap to the
    rest is at least `ALIKE` and is, of gap and range of the rest together, more than the critical share of Dixon's r10
    at 99 % (docs/findings.md, Tests). Where nothing changed but noise, that names a rank in 1 to 2 % of comparisons.
    """
    ordered = sorted(_ratios(ranks).items(), key=lambda item: item[1])
    count = len(ordered)
    if count < min(DIXON_CRITICAL):
        return []
    critical = DIXON_CRITICAL[min(count, max(DIXON_CRITICAL))]
    logarithms = [math.log(ratio) for _, ratio in ordered]
    found: tuple[float, list[int]] = (0.0, [])
    for size in range(1, max(1, count // 4) + 1):
        for group, edge, near, far in (
            (ordered[:size], size - 1, size, count - 1),
            (ordered[-size:], count - size, count - size - 1, 0),
        ):
            gap = abs(logarithms[edge] - logarithms[near])
            rest = abs(logarithms[near] - logarithms[far])
            if gap >= math.log1p(ALIKE) and gap > critical * (gap + rest):
                found = max(found, (gap, sorted(rank for rank, _ in group)))
    return found[1]


def _statement(ranks: Sequence[RankChange], moved: Sequence[int]) -> str:
    ratios = _ratios(ranks)
    if not ratios:
        return "No runner_run is recorded on both sides: which rank moved cannot be told."
    if moved:
        others = [ratio for rank, ratio in ratios.items() if rank not in moved]
        named = ", ".join(
            f"rank {entry.rank} {_span(entry.runner_run)}" for entry in ranks if entry.rank in moved
        )
        return (
            f"Apart from the others moved {named}; the other {len(others)} moved by {in_percent(median(others))} "
            "(median)."
        )
    if len(ratios) < min(DIXON_CRITICAL):
        each = ", ".join(
            f"rank {entry.rank} {_span(entry.runner_run)}" for entry in ranks if entry.rank in ratios
        )
        return f"{each[0].upper()}{each[1:]}."
    least, most = in_percent(min(ratios.values())), in_percent(max(ratios.values()))
    if max(abs(ratio - 1) for ratio in ratios.values()) < ALIKE:
        return f"No rank moved: every runner_run is within {100 * ALIKE:.0f} % ({least} to {most})."
    span = least if least == most else f"{least} to {most}"
    return f"No rank stands out: the runner_run of all {len(ratios)} ranks moved by {span}."


def _span(change: Change | None) -> str:
    if change is None or change.ratio is None:
        return ""
    return f"(runner_run {change.a / 1e6:.3f} to {change.b / 1e6:.3f} ms, {in_percent(change.ratio)})"
