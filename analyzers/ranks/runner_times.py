"""When each rank's runner started and ended in a round: what every figure about late ranks is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from analyzers.ranks.rounds import Round
from analyzers.table.grouping import Rows
from analyzers.table.spans import Int64s

Edge = Literal["start", "end"]
EDGES: tuple[Edge, ...] = get_args(Edge)
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RunnerTimes:
    """`runner_run` of every rank, in the rounds that have it on each of two or more ranks: a row a round, a column a rank.

    Times stay int64 ns, and so do the differences between them: a float could not hold a time since the host's start.
    """

    ranks: tuple[int, ...]
    """The rank of each column."""
    positions: Rows
    """Which of the rounds that were asked about each row is."""
    start_ns: Int64s
    end_ns: Int64s

    @classmethod
    def of(cls, rounds: Sequence[Round]) -> RunnerTimes:
        """Of the rounds of one matching that have the ranks that most of them have: those of one life do."""
        found = [
            (position, [run.phases["runner_run"] for run in item.runs.values()])
            for position, item in enumerate(rounds)
            if item.complete
            and len(item.runs) > 1
            and all("runner_run" in run.phases for run in item.runs.values())
        ]
        # Lives of one recording may have different ranks: a matrix has those of one of them.
        sizes = Counter(tuple(rounds[position].runs) for position, _ in found)
        ranks = sizes.most_common(1)[0][0] if found else ()
        found = [entry for entry in found if tuple(rounds[entry[0]].runs) == ranks]
        times = np.array([runners for _, runners in found], dtype=np.int64).reshape(len(found), len(ranks), 2)
        positions = np.array([position for position, _ in found], dtype=np.intp)
        return cls(ranks, positions, start_ns=times[:, :, 0], end_ns=times[:, :, 1])

    def __len__(self) -> int:
        return len(self.positions)

    def at(self, edge: Edge) -> Int64s:
        """When the runners started or ended, ns [rounds, ranks]."""
        return self.start_ns if edge == "start" else self.end_ns

    def last(self, edge: Edge) -> Int64s:
        """When the last rank of each round did, ns [rounds]."""
        latest: Int64s = self.at(edge).max(axis=1, initial=np.iinfo(np.int64).min)
        return latest

    def spread(self, edge: Edge) -> Int64s:
        """From the first rank of each round to the last, ns [rounds]."""
        earliest: Int64s = self.at(edge).min(axis=1, initial=np.iinfo(np.int64).max)
        return self.last(edge) - earliest

    def twice_after_median(self, edge: Edge) -> Int64s:
        """Twice how long after its round's median each rank was, ns [rounds, ranks]; negative before it.

        Doubled, because the median of an even number of ranks may lie half a nanosecond between two of them. Ranks that
        are 146 years apart do not fit.
        """
        times = self.at(edge)
        if not times.size:
            return times
        ordered = np.sort(times, axis=1)
        # From the first rank on: twice a time itself might not fit.
        offsets, ordered = times - ordered[:, :1], ordered - ordered[:, :1]
        ranks = len(self.ranks)
        twice_median = ordered[:, (ranks - 1) // 2] + ordered[:, ranks // 2]
        return 2 * offsets - twice_median[:, None]

    def after_median(self, edge: Edge) -> Floats:
        """How long after its round's median each rank was, ns [rounds, ranks]: exact to half a nanosecond."""
        return self.twice_after_median(edge) / 2
