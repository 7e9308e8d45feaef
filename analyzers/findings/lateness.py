"""Who is late: one rank, ranks in turn, or any of them now and then."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from analyzers.findings.host import shared_cores
from analyzers.findings.work import Work
from analyzers.measurement import Measured
from analyzers.ranks.rounds import Round
from analyzers.ranks.runner_times import RunnerTimes
from analyzers.ranks.skew import Lateness, RankSkew
from analyzers.ranks.spread import STANDS_OUT, Spread
from analyzers.report.model import Finding, Severity
from analyzers.statistics.counts import STABLE_SHARE, smallest_p_value
from analyzers.table.callables import is_prefill
from analyzers.text.words import counted, listed, milliseconds

STRAGGLER_P_VALUE = 0.01
"""So unlikely by chance must it be that one rank is last so often."""

LATE_SHARE = 0.05
"""Late ranks in this share of the rounds are a warning; a few are what any host does now and then."""

ROTATING_SHARE = 0.1
"""A distance of ranks from this share of the runner's duration on is worth saying who causes it."""

LITTLE_SHARE = 0.02
"""A rank that is last by less than this share of the runner's duration, and within the scatter, is no news."""

TURNS_SHARE = 0.5
"""Ranks are late in turn when one stands out in this share of the rounds."""

PREFILL_ROUNDS_NEEDED = 8
"""Of fewer prefills nobody can say who is late."""


def lateness(skew: RankSkew, rounds: Sequence[Round], measured: Measured) -> list[Finding]:
    """Findings about the ranks of one callable, the most telling first; `rounds` are those that `skew` covers."""
    compared = skew.runner_end_skew.n
    if not compared or (is_prefill(skew.callable) and compared < PREFILL_ROUNDS_NEEDED):
        return []
    return list(_Ranks(skew, rounds, measured).findings())


@dataclass(frozen=True)
class _Last:
    """The rank that is most often last at one edge, and how that compares with the others."""

    figures: Lateness
    rank: int
    count: int
    excess_ns: float
    p_value: float
    scatter_ns: float

    @classmethod
    def of(cls, figures: Lateness, spread: Spread) -> _Last | None:
        """None where no round has a last rank."""
        if figures.test is None:
            return None
        rank, count = max(figures.counts.items(), key=lambda entry: (entry[1], -entry[0]))
        excess = figures.median_excess_ns[rank]
        return cls(figures, rank, count, excess, figures.test.p_value, spread.scatter_ns(rank))

    @property
    def persistent(self) -> bool:
        """Whether it is last too often for chance."""
        return self.p_value < STRAGGLER_P_VALUE

    @property
    def changes(self) -> bool:
        """Whether the last rank is now this one, now that: the rounds are enough to tell, and it is not always the same."""
        return can_tell(self.figures) and self.stability <= STABLE_SHARE

    @property
    def stability(self) -> float:
        """Share of the rounds in which it is last."""
        return self.count / self.figures.rounds

    @property
    def stands_out(self) -> bool:
        """Whether it is late by more than the others vary."""
        return self.excess_ns >= STANDS_OUT * self.scatter_ns

    @property
    def evidence(self) -> str:
        """How often and by how much, and how likely that is by chance."""
        test = self.figures.test
        method = f" ({test.method})" if test is not None else ""
        return (
            f"{self.figures.edge}s last in {self.count} of {counted(self.figures.rounds, 'round')}, by "
            f"{milliseconds(self.excess_ns)} after the median; p = {self.p_value:.2g}{method}"
        )

    @property
    def in_numbers(self) -> dict[str, float]:
        """The evidence as a finding holds it."""
        return {
            "rank": self.rank,
            "last": self.count,
            "rounds": self.figures.rounds,
            "median_excess_ns": self.excess_ns,
            "scatter_of_others_ns": self.scatter_ns,
            "p_value": self.p_value,
        }


def can_tell(figures: Lateness) -> bool:
    """Whether so many rounds can show that one rank is last too often for chance."""
    return smallest_p_value(sum(figures.counts.values()), len(figures.counts)) < STRAGGLER_P_VALUE


class _Ranks:
    """The ranks of one callable."""

    def __init__(self, skew: RankSkew, rounds: Sequence[Round], measured: Measured) -> None:
        times = RunnerTimes.of(rounds)
        self._skew = skew
        self._end = Spread.of(times, "end")
        self._last = [
            last
            for figures, spread in (
                (skew.last_to_end, self._end),
                (skew.last_to_start, Spread.of(times, "start")),
            )
            if (last := _Last.of(figures, spread)) is not None
        ]
        self._work = Work.of(measured.recording.requests, skew.ranks)
        self._shared = shared_cores(measured.recording.manifest)

    def findings(self) -> Iterable[Finding]:
        """Who is late, and how often any is; only the first of them is a warning about the same lateness."""
        who = self._by_rank(self._straggler) + self._by_rank(self._uneven_work)
        if not who:
            who = list(self._in_turn())
        yield from who
        told = any(finding.severity == "warning" or finding.code == "uneven_work" for finding in who)
        yield from self._late_ranks(told=told)

    @cached_property
    def _runner_ns(self) -> float:
        return self._skew.runner_run.p50 or 0.0

    @cached_property
    def _late_rounds(self) -> int:
        return len({event.round for event in (*self._skew.late_starts, *self._skew.long_tails)})

    @property
    def _often_late(self) -> bool:
        """Whether late ranks are common in decode, and the host is no reason for it."""
        common = self._late_rounds >= LATE_SHARE * self._skew.runner_start_skew.n
        return bool(self._late_rounds) and common and not is_prefill(self._skew.callable) and not self._shared

    def _by_rank(self, make: Callable[[list[_Last]], Iterable[Finding]]) -> list[Finding]:
        """What `make` finds of the persistently last ranks, the edges of one rank together."""
        found: dict[int, list[_Last]] = {}
        for last in self._last:
            worth = last.stands_out or last.excess_ns >= LITTLE_SHARE * self._runner_ns
            if last.persistent and worth:
                found.setdefault(last.rank, []).append(last)
        return [finding for edges in found.values() for finding in make(edges)]

    def _straggler(self, edges: list[_Last]) -> Iterable[Finding]:
        rank = edges[0].rank
        if self._work.has_more(rank):
            return
        late = [last for last in edges if last.stands_out and last.excess_ns > self._skew.late_ns]
        severity: Severity = "warning" if late and not is_prefill(self._skew.callable) else "info"
        chosen = late or edges
        title = f"{self._skew.callable}: rank {rank} is persistently the last to {chosen[0].figures.edge}"
        advice = "look at that device and at the host core of its process" if late else ""
        evidence = "; ".join(last.evidence for last in chosen)
        if not late and chosen[0].stands_out:
            title += f", but by {milliseconds(chosen[0].excess_ns)} only"
        elif not late:
            title = f"{self._skew.callable}: rank {rank} is most often the last to {chosen[0].figures.edge}"
            title += ", within the scatter"
            evidence += f"; the others vary by {milliseconds(chosen[0].scatter_ns)} themselves"
        yield Finding("straggler", severity, title, evidence, advice, figures=chosen[0].in_numbers)

    def _uneven_work(self, edges: list[_Last]) -> Iterable[Finding]:
        rank = edges[0].rank
        if not self._work.has_more(rank):
            return
        carries = self._work.of_rank(rank)
        last = listed([edge.figures.edge for edge in edges])
        yield Finding(
            "uneven_work",
            "info",
            f"{self._skew.callable}: rank {rank} is the last to {last}, and carries {carries}",
            "; ".join(edge.evidence for edge in edges),
            "to compare ranks, give each of them as many requests",
            figures=edges[0].in_numbers,
        )

    def _in_turn(self) -> Iterable[Finding]:
        """That no rank is the straggler, although ranks end apart, or that the rounds are too few to tell."""
        last = next((last for last in self._last if last.figures.edge == "end"), None)
        if last is None or last.persistent:
            return
        least = min(self._skew.late_ns, ROTATING_SHARE * self._runner_ns)
        share = self._end.share_standing_out(least)
        spread = self._skew.runner_end_skew.p50 or 0.0
        if not self._late_rounds and spread < ROTATING_SHARE * self._runner_ns:
            return
        if not last.changes:
            yield self._too_few_rounds(last)
            return
        in_turn = share >= TURNS_SHARE and not is_prefill(self._skew.callable)
        severity: Severity = "warning" if in_turn or self._often_late else "info"
        title = f"{self._skew.callable}: no persistent straggler, the last rank changes"
        evidence = (
            f"rank {last.rank} {last.evidence}; stability {100 * last.stability:.0f} %, "
            f"median skew {milliseconds(spread)}"
        )
        advice = ""
        if in_turn:
            title += f"; in {100 * share:.0f} % of the rounds one rank is far behind the others"
            advice = "look at what that rank and its host did in these rounds: dsv4bench view"
        elif self._shared:
            evidence += f"; {self._shared}"
        figures = {**last.in_numbers, "median_skew_ns": spread, "share_standing_out": share}
        yield Finding("no_persistent_straggler", severity, title, evidence, advice, figures=figures)

    def _too_few_rounds(self, last: _Last) -> Finding:
        """Nothing is said of a rank that chance alone makes last as often, nor that it is now one and now another."""
        of = counted(last.figures.rounds, "round")
        least = smallest_p_value(sum(last.figures.counts.values()), len(last.figures.counts))
        evidence = f"rank {last.rank} {last.evidence}"
        if least >= STRAGGLER_P_VALUE:
            evidence += f"; one that is last in all of them would give p = {least:.2g}"
        return Finding(
            "too_few_rounds",
            "info",
            f"{self._skew.callable}: {of}, too few rounds to tell whether one rank is late",
            f"{evidence}; only p below {STRAGGLER_P_VALUE:g} tells",
            "record more rounds",
            figures={**last.in_numbers, "smallest_p_value": least},
        )

    def _late_ranks(self, *, told: bool) -> Iterable[Finding]:
        """How often any rank is late."""
        starts, tails = self._skew.late_starts, self._skew.long_tails
        if not starts and not tails:
            return
        worst = max((*starts, *tails), key=lambda event: event.after_median_ns)
        what = [
            counted(len(events), noun)
            for events, noun in ((starts, "late start"), (tails, "long tail"))
            if events
        ]
        evidence = (
            f"in {self._late_rounds} of {counted(self._skew.runner_start_skew.n, 'round')}; "
            f"worst: rank {worst.rank} in round {worst.round}, {milliseconds(worst.after_median_ns)} late"
        )
        often = self._often_late and not told
        yield Finding(
            "late_ranks",
            "warning" if often else "info",
            f"{self._skew.callable} ({self._skew.scope} rounds): {listed(what)} of more than "
            f"{milliseconds(self._skew.late_ns)}",
            evidence + (f"; {self._shared}" if self._shared else ""),
            "look at these rounds in the timeline: dsv4bench view" if often else "",
            figures={
                "late_starts": len(starts),
                "long_tails": len(tails),
                "rounds": self._late_rounds,
                "worst_ns": worst.after_median_ns,
            },
        )
