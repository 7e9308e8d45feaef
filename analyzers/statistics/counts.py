"""Whether counts are more uneven than chance makes them. Pure functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

STABLE_SHARE = 0.8
"""Of events that fall in one category more often than in this share nobody says that their category changes."""

_EXACT_OUTCOMES = 50_000
"""The exact multinomial test enumerates outcomes; beyond this many, chi-square is used."""


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


def smallest_p_value(events: int, categories: int) -> float:
    """The smallest p-value that so many events can give, in one category all of them; 1 where nothing can be tested."""
    test = uniform_test([events, *[0] * (categories - 1)])
    return 1.0 if test is None else test.p_value


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
    """P(X >= statistic) of a chi-square variable with so many degrees of freedom, 1 or more.

    It is the incomplete gamma function Q(degrees / 2, x) at x = statistic / 2, a finite sum for whole degrees: from
    Q(1/2, x) = erfc(sqrt(x)) or Q(0, x) = 0 up by Q(a + 1, x) = Q(a, x) + x^a e^-x / Gamma(a + 1) (Abramowitz and
    Stegun, 6.5.21). All terms are positive, so that nothing cancels.
    """
    x, odd = statistic / 2, degrees % 2
    if x <= 0:
        return 1.0
    orders = (step + odd / 2 for step in range(degrees // 2))
    tail = sum(math.exp(a * math.log(x) - x - math.lgamma(a + 1)) for a in orders)
    return min(1.0, tail + (math.erfc(math.sqrt(x)) if odd else 0.0))
