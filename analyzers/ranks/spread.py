"""How the ranks lie around the median of each round, and whether one of them stands out. Pure functions of numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.ranks.runner_times import Edge, Floats, RunnerTimes

STANDS_OUT = 3
"""A rank stands out when it is late by so many standard deviations of the others (their modified z)."""

GAP_SHARE = 2 / 3
"""The last rank of a round stands out when its distance from the one before is this share of the whole spread: the
statistic r10 of Dixon's test, at a value that three and more ranks of one distribution rarely reach."""

TWO_RANKS_RATIO = 4
"""Of two ranks: how far apart they end beside how much that varies; two independent ends give 1.7."""

_MAD_TO_SIGMA = 1.4826


@dataclass(frozen=True)
class Spread:
    """`after_ns[round, column]`: how long after its round's median the rank of a column was at one edge, in ns."""

    ranks: tuple[int, ...]
    after_ns: Floats

    @classmethod
    def of(cls, times: RunnerTimes, edge: Edge) -> Spread:
        """Of the starts or of the ends of the runners."""
        return cls(times.ranks, times.after_median(edge))

    def scatter_ns(self, rank: int) -> float:
        """How much the others vary from round to round: 1.4826 MAD around the median of each, pooled."""
        column = self.ranks.index(rank)
        others = np.delete(self.after_ns, column, axis=1)
        if not others.size:
            return 0.0
        return _MAD_TO_SIGMA * float(np.median(np.abs(others - np.median(others, axis=0))))

    def share_standing_out(self, least_ns: float) -> float:
        """Share of the rounds in which one rank, whichever, comes `least_ns` after the median and apart from the rest."""
        if not self.after_ns.size:
            return 0.0
        ordered = np.sort(self.after_ns, axis=1)
        late = ordered[:, -1] >= least_ns
        if len(self.ranks) > 2:
            apart = ordered[:, -1] - ordered[:, -2] >= GAP_SHARE * (ordered[:, -1] - ordered[:, 0])
            return float((late & apart).mean())
        # Two ranks are always equally far from their median: only over the rounds can a delay be told from chance.
        distance = ordered[:, -1]
        typical = float(np.median(distance))
        varies = float(np.median(np.abs(distance - typical)))
        return float(late.mean()) if typical >= TWO_RANKS_RATIO * varies else 0.0
