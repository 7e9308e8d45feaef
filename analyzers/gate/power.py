"""How small a regression so many runs catch, and how many a decision takes (docs/gating.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from analyzers.statistics.rank_tests import Floats, least_significant_u, smallest_p_value
from analyzers.statistics.robust import outliers

POWER = 0.9
"""Probability with which the minimum detectable regression is caught."""

_TRIALS = 2000
_SEED = 20260101
_MOST_RUNS = 1000


def minimum_detectable(
    head: Sequence[float], base: Sequence[float], max_regression: float, p_value: float
) -> float | None:
    """The smallest regression (0.03 is 3 %) that runs as many and as noisy as these make fail with probability 0.9.

    To fail, the rank test needs p < `p_value` and the Hodges-Lehmann ratio must exceed 1 + `max_regression`. The noise
    is the standard deviation of the logarithms within each side, without outliers; its shape is taken as normal, and
    the probability is that of 2,000 seeded simulations. None where no outcome of so few runs is significant.
    """
    shifts = _shifts(len(head), len(base), p_value)
    if shifts is None:
        return None
    rank_shift, ratio_error = shifts
    noise = noise_of(head, base)
    # Each simulation's least log shift that makes it fail; the quantile over all of them.
    needed = np.maximum(noise * rank_shift, math.log1p(max_regression) + noise * ratio_error)
    return max(0.0, math.expm1(float(np.quantile(needed, POWER))))


def noise_of(head: Sequence[float], base: Sequence[float]) -> float:
    """Standard deviation of the logarithms around each side's own mean, outliers left out; 0 where nothing moves."""
    squares, degrees = 0.0, 0
    for side in (head, base):
        far = set(outliers(side) or ())
        kept = np.log([value for index, value in enumerate(side) if index not in far])
        squares += float(((kept - kept.mean()) ** 2).sum())
        degrees += len(kept) - 1
    return math.sqrt(squares / degrees) if degrees > 0 else 0.0


def runs_needed(tests: int, p_value: float, base_runs: int | None = None) -> int:
    """Runs a side (or of the head, beside `base_runs`) from which a change can be significant in each of `tests` tests.

    With a base that can never do, the answer is for both sides.
    """
    fixed = base_runs is not None and smallest_p_value(_MOST_RUNS, base_runs) * tests < p_value
    for runs in range(1, _MOST_RUNS):
        if smallest_p_value(runs, base_runs if fixed and base_runs else runs) * tests < p_value:
            return runs
    return _MOST_RUNS


def runs_to_exclude(noise: float, excluded: float, error: float) -> int | None:
    """About how many runs a side exclude a regression of `excluded` with probability 0.9 where nothing has changed.

    `noise` is that of `noise_of`, and `error` the probability with which the bound may be wrong. The Hodges-Lehmann
    ratio of normal noise has the variance of a difference of means times pi / 3. None where no number of runs does.
    """
    if excluded <= 0:
        return None
    score = NormalDist().inv_cdf(1 - error) + NormalDist().inv_cdf(POWER)
    needed = 2 * math.pi / 3 * (noise * score / math.log1p(excluded)) ** 2
    return max(1, math.ceil(needed))


def runs_to_keep(noise: float, distance: float, error: float) -> int | None:
    """About how many runs show with probability 0.9 that their median keeps a limit.

    `distance` is the logarithm of how far away the limit is. The median of normal noise has the variance of the mean
    times pi / 2. None where the median is the limit itself.
    """
    if distance <= 0:
        return None
    score = NormalDist().inv_cdf(1 - error) + NormalDist().inv_cdf(POWER)
    return max(1, math.ceil(math.pi / 2 * (noise * score / distance) ** 2))


def more_runs(runs: int, p_value: float, wanted: float) -> int:
    """How many more runs a side bring a p-value down to `wanted` if the difference stays as it is.

    The normal score of a rank test grows with the square root of the runs.
    """
    now, needed = NormalDist().inv_cdf(1 - p_value), NormalDist().inv_cdf(1 - wanted)
    return max(1, math.ceil(runs * (needed / now) ** 2) - runs)


@lru_cache(maxsize=64)
def _shifts(head_runs: int, base_runs: int, p_value: float) -> tuple[Floats, Floats] | None:
    """Over simulations of unit noise: the shift from which the test is significant, and the error of the ratio."""
    least = least_significant_u(head_runs, base_runs, p_value)
    if least is None:
        return None
    random = np.random.default_rng(_SEED)
    trials = max(200, min(_TRIALS, 2_000_000 // (head_runs * base_runs)))
    heads = random.standard_normal((trials, head_runs, 1))
    bases = random.standard_normal((trials, 1, base_runs))
    pairs: npt.NDArray[np.float64] = np.sort((heads - bases).reshape(trials, -1), axis=1)
    # U reaches `least` once so many pairs are positive: the shift lifts the least-th largest above 0.
    return -pairs[:, -least], -np.median(pairs, axis=1)
