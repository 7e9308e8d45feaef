"""Statistics of the gate: is one sample of runs larger than another, and by which ratio (docs/gating.md).

The sample is the run: one value a run. Nothing here assumes a distribution, so that a few outlier runs cannot decide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from analyzers.statistics.confidence_interval import ConfidenceInterval

Floats = npt.NDArray[np.float64]

EXACT_RUNS = 80
"""Up to this many runs of both sides together, p-values are exact; beyond, the normal approximation is."""


_ROUNDING = 1e-9
"""A probability that is the allowed one but for rounding is allowed."""


class RankTest(msgspec.Struct, frozen=True):
    """One-sided Mann-Whitney test that the head's values tend to be larger than the base's.

    Source: Mann and Whitney, Ann. Math. Statist. 18 (1947) 50-60. `u` counts the pairs in which the head is larger,
    ties as a half. With ties the p-value is exact too: it counts the permutations of the observed midranks.
    """

    u: float
    p_value: float
    method: Literal["exact", "normal approximation"]


def mann_whitney(head: Sequence[float], base: Sequence[float]) -> RankTest:
    """Test whether `head` tends to be larger than `base`; both hold at least one finite value."""
    values = _sample(head, base)
    doubled = _doubled_midranks(values)
    n, m = len(head), len(base)
    rank_sum = int(doubled[:n].sum())
    u = rank_sum / 2 - n * (n + 1) / 2
    if n + m <= EXACT_RUNS:
        return RankTest(u, _exact_tail(tuple(np.sort(doubled).tolist()), n, rank_sum), "exact")
    return RankTest(u, _normal_tail(u, n, m, values), "normal approximation")


def two_sided_p(one: Sequence[float], other: Sequence[float]) -> float:
    """Mann-Whitney, two-sided: twice the smaller of the one-sided p-values, at most 1."""
    return min(1.0, 2 * min(mann_whitney(one, other).p_value, mann_whitney(other, one).p_value))


def hodges_lehmann_ratio(head: Sequence[float], base: Sequence[float]) -> float:
    """The head as a multiple of the base: the median of all ratios head / base, taken on the logarithmic scale.

    Source: Hodges and Lehmann, Ann. Math. Statist. 34 (1963) 598-611, of the logarithms; so swapping the sides gives
    the reciprocal. All values are positive.
    """
    return float(np.exp(np.median(_log_ratios(head, base))))


def ratio_interval(
    head: Sequence[float], base: Sequence[float], confidence: float = 0.95
) -> ConfidenceInterval:
    """The interval of `hodges_lehmann_ratio`: the ratios that the two-sided exact test does not reject.

    Its ends are order statistics of the pairwise ratios, chosen so that at least `confidence` is reached; the
    confidence in the result is the one that is. Too few runs bound nothing: both ends are None.
    """
    n, m = len(head), len(base)
    ratios = np.sort(np.exp(_log_ratios(head, base)))
    below = _cumulative_u(n, m)
    allowed = np.flatnonzero(below <= (1 - confidence) / 2)
    if len(allowed) == 0:
        return ConfidenceInterval(None, None, 0.0)
    outside = int(allowed[-1])
    reached = 1 - 2 * float(below[outside])
    return ConfidenceInterval(float(ratios[outside]), float(ratios[n * m - 1 - outside]), reached)


def ratio_at_most(head: Sequence[float], base: Sequence[float], error: float) -> float | None:
    """The upper bound of `hodges_lehmann_ratio`: with a probability of `error` at most, the true ratio is above it.

    One end of the interval that the one-sided exact test gives: an order statistic of the pairwise ratios. None where
    the runs are too few to bound anything.
    """
    n, m = len(head), len(base)
    ratios = np.sort(np.exp(_log_ratios(head, base)))
    allowed = np.flatnonzero(_cumulative_u(n, m) <= error * (1 + _ROUNDING))
    return float(ratios[n * m - 1 - int(allowed[-1])]) if len(allowed) else None


def median_interval(values: Sequence[float], confidence: float = 0.95) -> ConfidenceInterval:
    """The interval of the median of what `values` were drawn from: two order statistics, whatever the distribution.

    Source: David and Nagaraja, Order Statistics, 2003, section 7.1: the median lies outside of the j-th smallest and
    the j-th largest with probability 2 P(Binomial(n, 1/2) < j). Too few values bound nothing: both ends are None.
    """
    ordered = sorted(values)
    n = len(ordered)
    below, reached, taken = 0.0, 0.0, 0
    for j in range(1, n // 2 + 1):
        below += math.comb(n, j - 1) / 2**n
        if 2 * below > 1 - confidence:
            break
        taken, reached = j, 1 - 2 * below
    if not taken:
        return ConfidenceInterval(None, None, 0.0)
    return ConfidenceInterval(ordered[taken - 1], ordered[n - taken], reached)


def median_at_most(values: Sequence[float], error: float) -> float | None:
    """The upper bound of the median of what `values` were drawn from: it is above with a probability of `error` at most.

    The j-th smallest value, where at least j of n values are below the median with probability P(Binomial(n, 1/2) >= j).
    None where the values are too few.
    """
    n, above, bound = len(values), 0.0, None
    for j, value in zip(range(n, 0, -1), sorted(values, reverse=True), strict=True):
        above += math.comb(n, j) / 2**n
        if above > error:
            break
        bound = value
    return bound


def smallest_p_value(head_runs: int, base_runs: int) -> float:
    """The smallest p-value that so many runs can give: every head above every base."""
    return 1 / math.comb(head_runs + base_runs, head_runs)


def smallest_two_sided_p(a_runs: int, b_runs: int) -> float:
    """The smallest p-value that `two_sided_p` can give for so many runs."""
    return min(1.0, 2 * smallest_p_value(a_runs, b_runs))


def least_significant_u(head_runs: int, base_runs: int, p_value: float) -> int | None:
    """The smallest U with a p-value below `p_value`, without ties; None where none has."""
    # U is symmetric: P(U >= n m - u) = P(U <= u).
    allowed = np.flatnonzero(_cumulative_u(head_runs, base_runs) < p_value)
    return head_runs * base_runs - int(allowed[-1]) if len(allowed) else None


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values of several tests, so that the chance of any false alarm stays that of one test.

    Source: Holm, Scand. J. Statist. 6 (1979) 65-70.
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for position, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - position) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def common_language_effect(head: Sequence[float], base: Sequence[float]) -> float:
    """The share of pairs in which the head is larger, ties as a half: 0.5 is no effect, 1 is every pair."""
    return mann_whitney(head, base).u / (len(head) * len(base))


def _sample(head: Sequence[float], base: Sequence[float]) -> Floats:
    values = np.asarray([*head, *base], dtype=np.float64)
    if not (len(head) and len(base)):
        raise ValueError("both sides need at least one value")
    if not np.isfinite(values).all():
        raise ValueError("values must be finite")
    return values


def _log_ratios(head: Sequence[float], base: Sequence[float]) -> Floats:
    values = _sample(head, base)
    if not (values > 0).all():
        raise ValueError("ratios need positive values")
    logarithms = np.log(values)
    ratios: Floats = np.subtract.outer(logarithms[: len(head)], logarithms[len(head) :]).ravel()
    return ratios


def _doubled_midranks(values: Floats) -> npt.NDArray[np.int64]:
    """Twice the rank of each value, ties sharing their mean rank: whole numbers, so that sums are exact."""
    ordered = np.sort(values)
    first = np.searchsorted(ordered, values, side="left")
    last = np.searchsorted(ordered, values, side="right")
    ranks: npt.NDArray[np.int64] = (first + last + 1).astype(np.int64)
    return ranks


@lru_cache(maxsize=256)
def _rank_sum_tail(ranks: tuple[int, ...], chosen: int) -> Floats:
    """P(sum of `chosen` of these ranks drawn without replacement >= s), for s = 0 .. the sum of all."""
    total = sum(ranks)
    # ways[k, s]: how many subsets of k of the ranks seen so far sum to s, as a share of all subsets in the end.
    ways = np.zeros((chosen + 1, total + 1))
    ways[0, 0] = 1.0
    for seen, rank in enumerate(ranks):
        for k in range(min(seen + 1, chosen), 0, -1):
            ways[k, rank:] += ways[k - 1, : total + 1 - rank]
    probability = ways[chosen] / math.comb(len(ranks), chosen)
    tail: Floats = np.cumsum(probability[::-1])[::-1]
    return tail


def _exact_tail(ranks: tuple[int, ...], chosen: int, rank_sum: int) -> float:
    return min(1.0, float(_rank_sum_tail(ranks, chosen)[rank_sum]))


@lru_cache(maxsize=256)
def _cumulative_u(n: int, m: int) -> Floats:
    """P(U <= u) without ties, for u = 0 .. n * m."""
    if n + m > EXACT_RUNS:
        u = np.arange(n * m + 1, dtype=np.float64)
        deviation = math.sqrt(n * m * (n + m + 1) / 12)
        tails: Floats = np.array(
            [0.5 * math.erfc(-(value + 0.5 - n * m / 2) / deviation / math.sqrt(2)) for value in u]
        )
        return tails
    # U is symmetric: P(U <= u) = P(U >= n * m - u), and U = rank sum - n (n + 1) / 2.
    tail = _rank_sum_tail(tuple(range(2, 2 * (n + m) + 1, 2)), n)
    upper = tail[np.arange(n * m + 1) * 2 + n * (n + 1)]
    cumulative: Floats = upper[::-1]
    return cumulative


def _normal_tail(u: float, n: int, m: int, values: Floats) -> float:
    """The upper tail with tie and continuity correction (Lehmann, Nonparametrics, 1975, section 1.4)."""
    counts = np.unique(values, return_counts=True)[1].astype(np.float64)
    total = n + m
    variance = n * m / 12 * (total + 1 - float((counts**3 - counts).sum()) / (total * (total - 1)))
    if variance == 0:
        return 1.0
    z = (u - n * m / 2 - 0.5) / math.sqrt(variance)
    return 0.5 * math.erfc(z / math.sqrt(2))
