"""Summaries against values worked out by hand."""

from __future__ import annotations

import pytest

from analyzers.statistics.summary import summarize


def test_summary_of_nothing_is_null_not_zero() -> None:
    summary = summarize([])
    assert summary.n == 0
    assert (summary.mean, summary.min, summary.p50, summary.p95, summary.p99, summary.max) == (None,) * 6


@pytest.mark.parametrize(
    ("n", "has_p95", "has_p99"), [(19, False, False), (20, True, False), (99, True, False), (100, True, True)]
)
def test_percentiles_appear_with_the_sample_that_supports_them(n: int, has_p95: bool, has_p99: bool) -> None:
    summary = summarize(list(range(n)))
    assert (summary.p95 is not None, summary.p99 is not None) == (has_p95, has_p99)


def test_percentiles_interpolate_linearly() -> None:
    summary = summarize(list(range(101)))
    assert (summary.p50, summary.p95, summary.p99, summary.mean) == (50, 95, 99, 50)
    # Rank 0.95 * 19 = 18.05 of 0..19.
    assert summarize(list(range(20))).p95 == pytest.approx(18.05)


def test_means_of_large_integers_are_exact() -> None:
    large = 2**62
    assert summarize([large, large + 2]).mean == float(large + 1)
