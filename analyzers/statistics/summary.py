"""Summaries of samples, and p-values for uneven counts. Pure functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

P95_NEEDS = 20
P99_NEEDS = 100
_EXACT_OUTCOMES = 50_000
"""The exact multinomial test enumerates outcomes; beyond this many, chi-square is used."""


class Summary(msgspec.Struct, frozen=True):
    """A sample in figures; its unit is that of the values it was made of.

    Percentiles interpolate linearly between order statistics (docs/metrics.md). A figure the
    sample does not support is None: everything for n = 0, p95 below 20 values, p99 below 100.
    """

    n: int
    mean: float | None = None
    min: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


def summarize(values: Sequence[float] | npt.NDArray[np.number]) -> Summary:
    """The `Summary` of `values`; sums of integers are exact."""
    sample = np.asarray(values)
    n = len(sample)
    if n == 0:
        return Summary(n=0)
    least, most = float(sample.min()), float(sample.max())
    if n == 1:
        return Summary(n=1, mean=least, min=least, p50=least, max=most)
    percents = [50, *([95] if n >= P95_NEEDS else []), *([99] if n >= P99_NEEDS else [])]
    found = dict(zip(percents, np.percentile(sample.astype(np.float64), percents).tolist(), strict=True))
    return Summary(
        n=n,
        mean=(exact_sum(sample) if sample.dtype == np.int64 else sum(sample.tolist())) / n,
        min=least,
        p50=found[50],
        p95=found.get(95),
        p99=found.get(99),
        max=most,
    )


def exact_sum(sample: npt.NDArray[np.int64]) -> int:
    """The sum of a non-empty sample, however large it is."""
    fits = max(-int(sample.min()), int(sample.max())) < 2**62 // len(sample)
    return int(sample.sum()) if fits else sum(sample.tolist())


def percentile(values: Sequence[float] | npt.NDArray[np.number], percent: float) -> float:
    """The percentile of a non-empty sample by linear interpolation at rank (n - 1) * percent / 100."""
    return float(np.percentile(np.asarray(values, dtype=np.float64), percent))


class UnevenTest(msgspec.Struct, frozen=True):
    """How likely counts at least this uneven are if every category is equally likely."""

    p_value: float
    method: str
    """"exact multinomial" or "chi-square"."""


def uniform_test(counts: Sequence[int]) -> UnevenTest | None:
    """Test `counts` against a uniform spread; None for fewer than two categories or no events.

    Exact multinomial (the probability of all outcomes no likelier than the observed one) while the outcomes
    can be enumerated, else the chi-square approximation.
    """
    categories, total = len(counts), sum(counts)
    if categories < 2 or total == 0:
        return None
    if math.comb(total + categories - 1, categories - 1) <= _EXACT_OUTCOMES:
        return UnevenTest(p_value=_exact_multinomial(counts), method="exact multinomial")
    expected = total / categories
    statistic = sum((count - expected) ** 2 for count in counts) / expected
    return UnevenTest(p_value=chi_square_survival(statistic, categories - 1), method="chi-square")


def _exact_multinomial(counts: Sequence[int]) -> float:
    total, categories = sum(counts), len(counts)
    # P(outcome) is proportional to total! / prod(count!): compare the sums of log-factorials.
    log_factorial = [math.lgamma(count + 1) for count in range(total + 1)]
    observed = sum(log_factorial[count] for count in counts)
    scale = log_factorial[total] - total * math.log(categories)
    tolerance = 1e-9
    p_value = 0.0

    def visit(left: int, categories_left: int, logs: float) -> None:
        nonlocal p_value
        if categories_left == 1:
            logs += log_factorial[left]
            if logs >= observed - tolerance:
                p_value += math.exp(scale - logs)
            return
        for count in range(left + 1):
            visit(left - count, categories_left - 1, logs + log_factorial[count])

    visit(total, categories, 0.0)
    return min(p_value, 1.0)


def chi_square_survival(statistic: float, degrees: int) -> float:
    """P(X >= statistic) of a chi-square variable: the incomplete gamma Q(degrees/2, statistic/2)."""
    if statistic <= 0:
        return 1.0
    a, x = degrees / 2, statistic / 2
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        # Series of the lower function P; converges fast on this side.
        term = total = 1 / a
        n = a
        while term > total * 1e-16:
            n += 1
            term *= x / n
            total += term
        return max(0.0, 1.0 - front * total)
    # Continued fraction of Q by Lentz's method.
    tiny = 1e-300
    b = x + 1 - a
    c, d = 1 / tiny, 1 / b
    fraction = d
    for i in range(1, 10_000):
        an = -i * (i - a)
        b += 2
        d = 1 / (an * d + b or tiny)
        c = b + an / c or tiny
        step = d * c
        fraction *= step
        if abs(step - 1) < 1e-15:
            break
    return min(1.0, front * fraction)
