"""Where a series of runs steps from one level to another: the exact L1 Potts fit, which outlier runs do not fool."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from analyzers.statistics.robust import NORMAL_QUARTILE

Floats = npt.NDArray[np.float64]

MINIMUM_RUNS = 3
"""A level that fewer runs hold is not one: they are outliers."""

_CAP = 3.0
"""A run counts at most so many sigma for or against a level, so that two outliers near each other make none."""

_PENALTY = (3.6, 0.5)
"""A step must improve the fit by a + b log n sigma: in 95 % of series of noise alone none does (docs/history.md)."""


@dataclass(frozen=True)
class Segment:
    """Runs `start` to `end` (not included) of a series and their level, which is their median."""

    start: int
    end: int
    level: float


def segments(values: Sequence[float]) -> list[Segment]:
    """The levels that a series holds in turn, at least `MINIMUM_RUNS` runs each; [] for an empty series.

    They minimize sum min(|value - level|, 3 sigma) + penalty * steps. This is the L1 Potts functional (Friedrich,
    Kempe, Liebscher and Winkler, J. Comput. Graph. Statist. 17 (2008) 201-224), its loss bounded against outliers
    (Fearnhead and Rigaill, J. Amer. Statist. Assoc. 114 (2019) 169-183). Values are finite; a step lies before each
    segment but the first.
    """
    series = np.asarray(values, dtype=np.float64)
    if not np.isfinite(series).all():
        raise ValueError("values must be finite")
    if len(series) == 0:
        return []
    a, b = _PENALTY
    sigma = noise(series)
    starts = potts(series, sigma * (a + b * math.log(len(series))), sigma * _CAP, MINIMUM_RUNS)
    return [
        Segment(start, end, float(np.median(series[start:end])))
        for start, end in pairwise([*starts, len(series)])
    ]


def noise(series: Floats) -> float:
    """The standard deviation of the runs about their level, in the unit of the values.

    From the median absolute difference of consecutive runs, which a few steps and outliers leave alone. Where most
    consecutive runs are equal that is 0, and the mean absolute difference stands in.
    """
    if len(series) < 2:
        return 0.0
    differences = np.abs(np.diff(series))
    median = float(np.median(differences))
    if median > 0:
        return median / (NORMAL_QUARTILE * math.sqrt(2))
    return float(differences.mean()) * math.sqrt(math.pi) / 2


def potts(series: Floats, penalty: float, cap: float, minimum: int) -> list[int]:
    """First index of each segment of the exact optimum, segments of at least `minimum` values (all, if there are fewer).

    A dynamic programme over the levels (Storath, Weinmann and Unser, Inf. Inference 6 (2017) 225-245). They need only
    be values of the series: as a function of its level, the bounded cost of a segment has its minima there. Takes
    O(n * distinct values) time and O(n) memory.
    """
    n = len(series)
    levels = np.unique(series)
    if n < 2 * minimum or len(levels) == 1:
        return [0]
    # cost[k, v]: the best fit whose last segment has level v and k + 1 values so far, in the last row `minimum` or more;
    # since[v]: where that segment of the last row began; begin[end]: where the best segment that ends there began.
    cost = np.full((minimum, len(levels)), np.inf)
    since = np.zeros(len(levels), dtype=np.int64)
    begin = np.zeros(n + 1, dtype=np.int64)
    best = -penalty
    for end, value in enumerate(series, 1):
        grown = np.vstack([np.full(len(levels), best + penalty), cost[:-1]])
        reached = grown[-1] < cost[-1]
        since[reached] = end - minimum
        grown[-1] = np.minimum(grown[-1], cost[-1])
        cost = grown + np.minimum(np.abs(levels - value), cap)
        winner = int(np.argmin(cost[-1]))
        best = float(cost[-1, winner])
        begin[end] = since[winner]
    starts = []
    end = n
    while end > 0:
        end = int(begin[end])
        starts.append(end)
    return starts[::-1]
