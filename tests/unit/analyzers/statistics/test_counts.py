"""P-values of uneven counts against values worked out by hand, published tables, and SciPy."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from analyzers.statistics.counts import chi_square_survival, uniform_test


# Upper critical values of the chi-square distribution at 0.05 and 0.001 (standard tables).
@pytest.mark.parametrize(
    ("degrees", "statistic", "p_value"),
    [(1, 3.841, 0.05), (7, 14.067, 0.05), (7, 24.322, 0.001), (10, 18.307, 0.05), (30, 43.773, 0.05)],
)
def test_chi_square_against_tables(degrees: int, statistic: float, p_value: float) -> None:
    assert chi_square_survival(statistic, degrees) == pytest.approx(p_value, rel=2e-3)


def test_chi_square_of_two_degrees_is_an_exponential() -> None:
    for statistic in (0.1, 1.0, 2.9, 3.1, 50.0):
        assert chi_square_survival(statistic, 2) == pytest.approx(math.exp(-statistic / 2), rel=1e-12)


@given(degrees=st.integers(1, 400), statistic=st.floats(0, 1200))
def test_chi_square_is_that_of_scipy(degrees: int, statistic: float) -> None:
    assert chi_square_survival(statistic, degrees) == pytest.approx(
        chi2.sf(statistic, degrees), rel=1e-10, abs=1e-300
    )


def test_exact_test_of_two_categories_is_the_binomial_test() -> None:
    # 5 of 6 either way: (6 + 1 + 1 + 6) / 64.
    test = uniform_test([5, 1])
    assert test is not None
    assert (test.method, test.p_value) == ("exact multinomial", pytest.approx(14 / 64))


def test_exact_test_of_three_categories() -> None:
    # All three events in one of three categories: 3 outcomes of 27.
    test = uniform_test([3, 0, 0])
    assert test is not None
    assert test.p_value == pytest.approx(3 / 27)


def test_even_counts_are_no_evidence() -> None:
    test = uniform_test([2, 2, 2])
    assert test is not None
    assert test.p_value == pytest.approx(1.0)


def test_many_outcomes_use_chi_square() -> None:
    test = uniform_test([143, 0, 0, 0, 0, 0, 0, 0])
    assert test is not None
    assert test.method == "chi-square"
    assert test.p_value < 1e-100


def test_no_events_or_one_category_have_no_test() -> None:
    assert uniform_test([0, 0]) is None
    assert uniform_test([5]) is None
