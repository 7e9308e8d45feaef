"""The statistics of the gate against scipy, and against definitions written out."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from analyzers.statistics.rank_tests import (
    EXACT_RUNS,
    common_language_effect,
    hodges_lehmann_ratio,
    holm,
    least_significant_u,
    mann_whitney,
    median_at_most,
    median_interval,
    ratio_at_most,
    ratio_interval,
    smallest_p_value,
)

positive = st.floats(0.001, 1000, allow_nan=False)
sample = st.lists(positive, min_size=1, max_size=12)
tied = st.lists(st.integers(1, 4).map(float), min_size=1, max_size=5)
p_values = st.lists(st.floats(0, 1), min_size=1, max_size=8)


@given(sample, sample)
@settings(max_examples=60, deadline=None)
def test_without_ties_the_exact_p_value_is_scipys(head: list[float], base: list[float]) -> None:
    if len(set(head + base)) < len(head + base):
        return
    expected = stats.mannwhitneyu(head, base, alternative="greater", method="exact")
    found = mann_whitney(head, base)
    assert found.method == "exact"
    assert found.u == expected.statistic
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-9)


def by_enumeration(head: Sequence[float], base: Sequence[float]) -> float:
    """Share of all ways to deal the values into two sides in which as many pairs are won, ties as halves."""
    values = [*head, *base]

    def wins(chosen: tuple[int, ...]) -> float:
        others = [values[index] for index in range(len(values)) if index not in chosen]
        return sum((values[i] > other) + 0.5 * (values[i] == other) for i in chosen for other in others)

    observed = wins(tuple(range(len(head))))
    deals = [wins(chosen) for chosen in itertools.combinations(range(len(values)), len(head))]
    return sum(value >= observed for value in deals) / len(deals)


@given(tied, tied)
@settings(max_examples=60, deadline=None)
def test_with_ties_the_p_value_counts_permutations(head: list[float], base: list[float]) -> None:
    assert mann_whitney(head, base).p_value == pytest.approx(by_enumeration(head, base))


def test_with_ties_the_p_value_is_that_of_scipys_permutation_test() -> None:
    head, base = [3.0, 3.0, 4.0, 2.0, 5.0], [1.0, 2.0, 3.0, 3.0, 2.0]
    expected = stats.mannwhitneyu(head, base, alternative="greater", method=stats.PermutationMethod())
    assert mann_whitney(head, base).p_value == pytest.approx(expected.pvalue)


def test_beyond_80_runs_the_normal_approximation_is_scipys() -> None:
    drawn = random.Random(7)
    head = [round(drawn.gauss(10.2, 1), 1) for _ in range(45)]
    base = [round(drawn.gauss(10, 1), 1) for _ in range(45)]
    assert len(head) + len(base) > EXACT_RUNS
    expected = stats.mannwhitneyu(head, base, alternative="greater", method="asymptotic")
    found = mann_whitney(head, base)
    assert found.method == "normal approximation"
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-9)


@given(sample, sample)
@settings(max_examples=60, deadline=None)
def test_swapping_the_sides_gives_the_reciprocal(head: list[float], base: list[float]) -> None:
    assert hodges_lehmann_ratio(head, base) * hodges_lehmann_ratio(base, head) == pytest.approx(1)
    assert common_language_effect(head, base) + common_language_effect(base, head) == pytest.approx(1)


@given(sample, st.floats(0.1, 10))
@settings(max_examples=40, deadline=None)
def test_the_ratio_of_a_scaled_sample_is_the_scale(base: list[float], scale: float) -> None:
    assert hodges_lehmann_ratio([value * scale for value in base], base) == pytest.approx(scale)


def test_the_ratio_interval_covers_as_often_as_it_says() -> None:
    drawn = np.random.default_rng(3)
    covered, trials, confidence = 0, 1500, 0.0
    for _ in range(trials):
        head, base = np.exp(drawn.standard_normal(6)) * 1.5, np.exp(drawn.standard_normal(6))
        interval = ratio_interval(head.tolist(), base.tolist())
        assert interval.low is not None
        assert interval.high is not None
        covered += interval.low <= 1.5 <= interval.high
        confidence = interval.confidence
    assert confidence >= 0.95
    assert covered / trials == pytest.approx(confidence, abs=4 * math.sqrt(0.05 * 0.95 / trials))


@pytest.mark.parametrize(("runs", "error"), [(5, 0.05), (10, 0.0125)])
def test_the_bound_of_the_ratio_is_wrong_as_seldom_as_it_says(runs: int, error: float) -> None:
    drawn = np.random.default_rng(8)
    trials, truth = 2000, 1.1
    sides = np.exp(drawn.standard_normal((trials, 2, runs)))
    bounds = [ratio_at_most((head * truth).tolist(), base.tolist(), error) for head, base in sides]
    wrong = sum(bound is not None and bound < truth for bound in bounds) / trials
    assert wrong <= error + 4 * math.sqrt(error * (1 - error) / trials)
    # The next order statistic would be wrong too often: the steps of U are no larger than these.
    assert wrong >= error / 2 - 4 * math.sqrt(error * (1 - error) / trials)


@given(sample, sample, st.sampled_from([0.05, 0.0125]))
@settings(max_examples=60, deadline=None)
def test_the_bound_is_the_largest_ratio_that_the_test_does_not_reject(
    head: list[float], base: list[float], error: float
) -> None:
    if len(set(head + base)) < len(head + base):
        return
    bound = ratio_at_most(head, base, error)
    if bound is None:
        assert smallest_p_value(len(head), len(base)) > error
        return

    def rejected(ratio: float) -> bool:
        return mann_whitney([value * ratio for value in base], head).p_value <= error

    assert rejected(bound * 1.0001) or bound == 0
    assert not rejected(bound * 0.9999)


@pytest.mark.parametrize(("n", "error"), [(5, 0.05), (8, 0.05), (8, 0.0125), (25, 0.05)])
def test_the_bound_of_the_median_is_the_least_value_that_does(n: int, error: float) -> None:
    bound = median_at_most([float(value) for value in range(n, 0, -1)], error)
    assert bound is not None
    # The j-th smallest is below the median where at least j of n are: P(X >= j) = sf(j - 1).
    assert stats.binom.sf(bound - 1, n, 0.5) <= error
    assert stats.binom.sf(bound - 2, n, 0.5) > error


def test_too_few_runs_have_no_bound() -> None:
    # 1 of C(4, 2) = 6 arrangements, 1 of C(6, 3) = 20; four values are below their median in 1 of 16 samples.
    assert ratio_at_most([1.0, 2.0], [1.0, 2.0], 0.05) is None
    assert ratio_at_most([1.0, 2.0, 3.0], [1.0, 2.0, 4.0], 0.05) == pytest.approx(3)
    assert median_at_most([1.0] * 4, 0.05) is None
    assert median_at_most([1.0] * 5, 0.05) == 1.0


def test_too_few_runs_bound_nothing() -> None:
    interval = ratio_interval([1.0, 2.0], [1.0, 2.0])
    assert (interval.low, interval.high, interval.confidence) == (None, None, 0.0)
    interval = median_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (interval.low, interval.high, interval.confidence) == (None, None, 0.0)


@pytest.mark.parametrize("n", [6, 10, 25, 100])
def test_the_median_interval_is_the_narrowest_that_reaches_its_confidence(n: int) -> None:
    values = [float(value) for value in range(1, n + 1)]
    interval = median_interval(values[::-1])
    assert interval.low is not None
    assert interval.high is not None
    j = int(interval.low)
    assert interval.high == n + 1 - j
    assert interval.confidence == pytest.approx(1 - 2 * stats.binom.cdf(j - 1, n, 0.5))
    assert interval.confidence >= 0.95
    assert 1 - 2 * stats.binom.cdf(j, n, 0.5) < 0.95


def test_the_median_interval_covers_as_often_as_it_says() -> None:
    drawn = np.random.default_rng(5)
    trials, truth = 2000, math.log(2)
    intervals = [median_interval(drawn.exponential(size=11).tolist()) for _ in range(trials)]
    covered = (
        sum(i.low is not None and i.high is not None and i.low <= truth <= i.high for i in intervals) / trials
    )
    assert covered == pytest.approx(intervals[0].confidence, abs=4 * math.sqrt(0.05 * 0.95 / trials))


def holm_by_rejection(p: Sequence[float], index: int) -> float:
    """The least level at which Holm's step-down procedure rejects hypothesis `index`, found by bisection."""

    def rejected(level: float) -> bool:
        left = sorted(range(len(p)), key=lambda i: p[i])
        for done, i in enumerate(left):
            if p[i] > level / (len(p) - done):
                return False
            if i == index:
                return True
        raise AssertionError

    low, high = 0.0, 1.0
    if not rejected(high):
        return 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if rejected(middle) else (middle, high)
    return high


@given(p_values)
@settings(max_examples=60, deadline=None)
def test_holm_is_the_least_level_at_which_the_procedure_rejects(p: list[float]) -> None:
    for index, adjusted in enumerate(holm(p)):
        assert adjusted == pytest.approx(holm_by_rejection(p, index), abs=1e-9)


@given(st.integers(1, 7), st.integers(1, 7))
def test_the_smallest_p_value_is_that_of_complete_separation(n: int, m: int) -> None:
    head, base = [float(i) for i in range(100, 100 + n)], [float(i) for i in range(m)]
    assert mann_whitney(head, base).p_value == pytest.approx(smallest_p_value(n, m))


@given(st.integers(1, 6), st.integers(1, 6), st.sampled_from([0.05, 0.01, 0.001]))
@settings(max_examples=50, deadline=None)
def test_the_least_significant_u(n: int, m: int, level: float) -> None:
    counts = [0] * (n * m + 1)
    for chosen in itertools.combinations(range(n + m), n):
        counts[sum(chosen) - n * (n - 1) // 2] += 1
    total = sum(counts)
    expected = next((u for u in range(n * m + 1) if sum(counts[u:]) / total < level), None)
    assert least_significant_u(n, m, level) == expected
