"""How far apart the ranks are in each round, who is late, what a rank's run consists of (docs/metrics.md, Ranks)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Literal

import msgspec
import numpy as np

from analyzers.ranks.rounds import PHASES, MatchedBy, RankRun, RoundMatching
from analyzers.ranks.rounds import Round as RankRound
from analyzers.ranks.runner_times import Edge, RunnerTimes
from analyzers.statistics.counts import UnevenTest, uniform_test
from analyzers.statistics.summary import Summary, summarize
from analyzers.table.callables import is_prefill
from analyzers.table.intervals import Interval

LATE_NS = 5_000_000
"""How far after the round's median a rank is late, unless the user says otherwise."""


class LateRank(msgspec.Struct, frozen=True):
    """A rank that started or ended late in one round."""

    round: int
    """Index of the round among all rounds of this callable, from 0, in time order."""
    key: list[int]
    """The identity the round was matched by."""
    rank: int
    after_median_ns: float


class Lateness(msgspec.Struct, frozen=True):
    """How often each rank was last over the complete rounds, and how likely that is by chance."""

    edge: Edge
    counts: dict[int, int]
    """rank -> rounds in which it alone was last."""
    rounds: int
    """Rounds with a single last rank: the sum of `counts`."""
    test: UnevenTest | None
    median_excess_ns: dict[int, float]
    """rank -> median time after the round's median, over the rounds in which it was last."""


class CriticalRank(msgspec.Struct, frozen=True):
    """The ranks with the longest root of their round, and what those roots consist of."""

    counts: dict[int, int]
    root: Summary
    phases: dict[str, Summary]
    """Phase -> its duration on the critical rank itself; `other` is the rest of the root: means add up."""


class RankTimes(msgspec.Struct, frozen=True):
    """How long the runs of one rank took, in ns; `runner_run` includes what it waits for other ranks in an exchange."""

    rank: int
    root: Summary
    runner_run: Summary


class IncompleteRound(msgspec.Struct, frozen=True):
    """A round in which a rank has no record of its run."""

    round: int
    key: list[int]
    missing_ranks: list[int]


class RankSkew(msgspec.Struct, frozen=True):
    """Rank figures of one callable, in ns of CLOCK_MONOTONIC. Skews are over complete rounds of >= 2 ranks."""

    callable: str
    scope: Literal["all", "steady"]
    matched_by: MatchedBy
    ranks: list[int]
    rounds: int
    roots: int
    incomplete: list[IncompleteRound]
    late_ns: int
    runner_start_skew: Summary
    runner_end_skew: Summary
    step_end_skew: Summary
    rounds_over_late_start_skew: int
    """Rounds whose runner-start skew exceeds `late_ns`."""
    rounds_over_late_end_skew: int
    late_starts: list[LateRank]
    long_tails: list[LateRank]
    last_to_start: Lateness
    last_to_end: Lateness
    root: Summary
    bind: Summary
    runner_run: Summary
    runner_to_validate_gap: Summary
    validate: Summary
    host_excess: Summary
    """runner_run - device_wall; empty without device spans."""
    device_bubble: Summary
    critical_rank: CriticalRank
    by_rank: list[RankTimes]
    """Every rank's own runs, rank by rank."""
    clocks: str = ""
    """What the ranks' clocks take from the figures across ranks: `withheld: ...`, `uncalibrated: ...`; "" is nothing."""

    def at(self, edge: Edge) -> Summary:
        """The runner-start or the runner-end skew."""
        return self.runner_start_skew if edge == "start" else self.runner_end_skew


def measure_skew(
    matching: RoundMatching, *, late_ns: int = LATE_NS, steady_dispatches: Collection[int] | None = None
) -> list[RankSkew]:
    """Rank figures of every callable, decode before prefill; `steady_dispatches` adds a steady scope before each.

    A figure without samples has n = 0: with one rank there is no skew, not a skew of 0.
    """
    by_callable: dict[str, list[RankRound]] = {}
    for item in matching.rounds:
        by_callable.setdefault(item.callable, []).append(item)
    bubbles = _bubbles(matching)
    figures = []
    order = sorted(by_callable.items(), key=lambda entry: (is_prefill(entry[0]), -len(entry[1]), entry[0]))
    for name, rounds in order:
        indexed = list(enumerate(rounds))
        if steady_dispatches is not None:
            steady = [(index, item) for index, item in indexed if item.dispatch_id in steady_dispatches]
            if steady:
                figures.append(_measure(name, "steady", steady, matching, late_ns, bubbles))
        figures.append(_measure(name, "all", indexed, matching, late_ns, bubbles))
    return figures


def _measure(
    name: str,
    scope: Literal["all", "steady"],
    rounds: Sequence[tuple[int, RankRound]],
    matching: RoundMatching,
    late_ns: int,
    bubbles: dict[tuple[int, int], int],
) -> RankSkew:
    runs = [run for _, item in rounds for run in item.runs.values()]
    ranks = {run.rank for run in runs}.union(*(item.missing for _, item in rounds))
    times = RunnerTimes.of([item for _, item in rounds])
    starts, ends = times.spread("start"), times.spread("end")
    return RankSkew(
        callable=name,
        scope=scope,
        matched_by=matching.matched_by,
        ranks=sorted(ranks),
        rounds=len(rounds),
        roots=len(runs),
        incomplete=[
            IncompleteRound(round=index, key=list(item.key), missing_ranks=list(item.missing))
            for index, item in rounds
            if not item.complete
        ],
        late_ns=late_ns,
        runner_start_skew=summarize(starts),
        runner_end_skew=summarize(ends),
        step_end_skew=summarize(
            [_root_end_spread(item) for _, item in rounds if item.complete and len(item.runs) > 1]
        ),
        rounds_over_late_start_skew=int((starts > late_ns).sum()),
        rounds_over_late_end_skew=int((ends > late_ns).sum()),
        late_starts=_late("start", times, rounds, late_ns),
        long_tails=_late("end", times, rounds, late_ns),
        last_to_start=_lateness("start", times, matching.ranks),
        last_to_end=_lateness("end", times, matching.ranks),
        root=summarize([run.root.duration_ns for run in runs]),
        bind=_phase(runs, "bind"),
        runner_run=_phase(runs, "runner_run"),
        runner_to_validate_gap=summarize(
            [
                run.phases["validate"].start_ns - run.phases["runner_run"].end_ns
                for run in runs
                if "validate" in run.phases and "runner_run" in run.phases
            ]
        ),
        validate=_phase(runs, "validate"),
        host_excess=summarize(
            [
                run.phases["runner_run"].duration_ns - run.device_wall_ns
                for run in runs
                if run.device_wall_ns is not None and "runner_run" in run.phases
            ]
        ),
        device_bubble=summarize(_bubbles_between(rounds, bubbles)),
        critical_rank=_critical(rounds),
        by_rank=_by_rank(runs, ranks),
    )


def _by_rank(runs: Sequence[RankRun], ranks: Collection[int]) -> list[RankTimes]:
    """The times of each of `ranks`; of one that left no record there are none."""
    of_rank: dict[int, list[RankRun]] = {rank: [] for rank in ranks}
    for run in runs:
        of_rank.setdefault(run.rank, []).append(run)
    return [
        RankTimes(rank, summarize([run.root.duration_ns for run in own]), _phase(own, "runner_run"))
        for rank, own in sorted(of_rank.items())
    ]


def _root_end_spread(item: RankRound) -> int:
    ends = [run.root.end_ns for run in item.runs.values()]
    return max(ends) - min(ends)


def _phase(runs: Sequence[RankRun], phase: str) -> Summary:
    return summarize([run.phases[phase].duration_ns for run in runs if phase in run.phases])


def _late(
    edge: Edge, times: RunnerTimes, rounds: Sequence[tuple[int, RankRound]], late_ns: int
) -> list[LateRank]:
    twice_after = times.twice_after_median(edge)
    late = []
    for row, column in np.argwhere(twice_after > 2 * late_ns).tolist():
        index, item = rounds[times.positions[row]]
        after_ns = float(twice_after[row, column] / 2)
        late.append(
            LateRank(round=index, key=list(item.key), rank=times.ranks[column], after_median_ns=after_ns)
        )
    return late


def _lateness(edge: Edge, times: RunnerTimes, ranks: Sequence[int]) -> Lateness:
    excess: dict[int, list[float]] = {rank: [] for rank in ranks}
    is_last = times.at(edge) == times.last(edge)[:, None]
    after_median = times.after_median(edge)
    for row in np.flatnonzero(is_last.sum(axis=1) == 1).tolist():
        column = int(is_last[row].argmax())
        excess[times.ranks[column]].append(float(after_median[row, column]))
    counts = {rank: len(found) for rank, found in excess.items()}
    return Lateness(
        edge=edge,
        counts=counts,
        rounds=sum(counts.values()),
        test=uniform_test(list(counts.values())),
        median_excess_ns={
            rank: median for rank, found in excess.items() if (median := summarize(found).p50) is not None
        },
    )


def _critical(rounds: Sequence[tuple[int, RankRound]]) -> CriticalRank:
    critical = [
        max(item.runs.values(), key=lambda run: (run.root.duration_ns, -run.rank))
        for _, item in rounds
        if item.complete
    ]
    phases: dict[str, Summary] = {}
    for phase in PHASES:
        # A phase that a run did not have took no time of it: a 0 here keeps the means additive.
        if any(phase in run.phases for run in critical):
            phases[phase] = summarize([_duration(run.phases.get(phase)) for run in critical])
    if critical:
        phases["other"] = summarize(
            [
                run.root.duration_ns - sum(_duration(run.phases.get(phase)) for phase in PHASES)
                for run in critical
            ]
        )
    counts = Counter(run.rank for run in critical)
    return CriticalRank(
        counts=dict(sorted(counts.items())),
        root=summarize([run.root.duration_ns for run in critical]),
        phases=phases,
    )


def _duration(interval: Interval | None) -> int:
    return interval.duration_ns if interval is not None else 0


def _bubbles(matching: RoundMatching) -> dict[tuple[int, int], int]:
    """(rank, root start) -> ns from that runner's end to the start of the rank's next one.

    Only between neighbouring rounds of one callable and life: the gap before a prefill is no bubble of decode, and neither
    is the time of a run whose record was lost.
    """
    bubbles: dict[tuple[int, int], int] = {}
    for current, following in pairwise(matching.rounds):
        if current.callable != following.callable or current.life != following.life:
            continue
        for rank in current.runs.keys() & following.runs.keys():
            run, after = current.runs[rank], following.runs[rank]
            if "runner_run" in run.phases and "runner_run" in after.phases:
                gap = after.phases["runner_run"].start_ns - run.phases["runner_run"].end_ns
                bubbles[rank, run.root.start_ns] = gap
    return bubbles


def _bubbles_between(
    rounds: Sequence[tuple[int, RankRound]], bubbles: dict[tuple[int, int], int]
) -> list[int]:
    keys = [(run.rank, run.root.start_ns) for _, item in rounds for run in item.runs.values()]
    return [bubbles[key] for key in keys if key in bubbles]
