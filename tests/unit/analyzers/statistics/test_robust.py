"""Outlier tests and the trend test against figures worked out by hand."""

from __future__ import annotations

import math
from statistics import NormalDist, median

import pytest

from analyzers.findings.acceptance import Trial, acceptance_trials, falling_trend
from analyzers.readers.request_timing import RequestTiming
from analyzers.statistics.robust import lowest_outlier, modified_z, outliers, scaled_mad


def test_modified_z_is_the_distance_from_the_median_in_scaled_mads() -> None:
    # Median 3, deviations 2 1 0 1 97: their median is 1.
    scores = modified_z([1, 2, 3, 4, 100])
    assert scores == pytest.approx([-2 / 1.4826, -1 / 1.4826, 0, 1 / 1.4826, 97 / 1.4826])


def test_where_most_values_are_equal_the_mean_deviation_stands_in() -> None:
    # MAD is 0; the mean deviation is 8 / 4 = 2.
    assert modified_z([5, 5, 5, 13]) == pytest.approx([0, 0, 0, 8 / (1.2533 * 2)])
    assert modified_z([5, 5, 5]) == [0, 0, 0]


def test_three_sigma_could_not_fire_for_eight_ranks() -> None:
    # One of 8 lies (n - 1) / sqrt(n) = 2.47 deviations out, however far it is.
    values = [500.0] * 7 + [-1e9]
    mean = sum(values) / 8
    sigma = math.sqrt(sum((value - mean) ** 2 for value in values) / 7)
    assert abs(values[-1] - mean) / sigma == pytest.approx(2.4749, abs=1e-4)
    assert lowest_outlier(values) == 7


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        # (ordered[1] - ordered[0]) / range against 0.634 for n = 8.
        ([500, 500, 500, 500, 500, 100, 500, 500], 5),
        ([163, 163, 163, 163, 100, 200, 200, 200], None),  # 63 / 100
        ([164, 164, 164, 164, 100, 200, 200, 200], 4),  # 64 / 100
        ([7, 7, 7, 7, 7, 7, 7, 7], None),
        ([1, 9, 9], 0),  # 8 / 8 against 0.994
        ([1, 9], None),
    ],
)
def test_dixon_finds_the_rank_that_waits_least(values: list[float], expected: int | None) -> None:
    assert lowest_outlier(values) == expected


def test_more_than_ten_ranks_are_judged_by_modified_z() -> None:
    # Median 100, MAD 1: 90 lies 10 / 1.4826 = 6.7 below, 95 only 3.4.
    others = [99, 99, 99, 99, 100, 101, 101, 101, 101, 100, 102]
    assert lowest_outlier([*others, 90]) == 11
    assert lowest_outlier([*others, 95]) is None


def test_the_trend_test_of_a_textbook_table() -> None:
    # 10 of 10, 5 of 10 and 0 of 10 at times 0, 1 and 2: p = 1/2, T = -10, Var T = 1/4 * 10 * 2 = 5.
    trials = [Trial(time, int(index < (10, 5, 0)[time]), 1) for time in range(3) for index in range(10)]
    trend = falling_trend(trials)
    assert trend is not None
    assert trend.z == pytest.approx(-10 / math.sqrt(5))
    # The normal tail below -4.4721 is 3.872e-6.
    assert trend.p_value == pytest.approx(3.872e-6, rel=1e-3)
    assert (trend.first_third, trend.last_third) == (1.0, 0.0)


def test_drafts_that_are_all_accepted_have_no_trend() -> None:
    assert falling_trend([Trial(time, 1, 1) for time in range(40)]) is None
    assert falling_trend([Trial(0, index % 2, 1) for index in range(40)]) is None
    assert falling_trend([Trial(time, time % 2, 1) for time in range(29)]) is None


def test_a_trial_is_every_event_between_prefill_and_the_last_step() -> None:
    timing = RequestTiming(
        "a", "measured", chunks=((0, 1), (10, 2), (20, 1), (30, 3), (40, 1)), steps=4, proposed=8, accepted=3
    )
    assert acceptance_trials([timing]) == [Trial(10, 1, 2), Trial(20, 0, 2), Trial(30, 2, 2)]


def test_requests_whose_steps_offered_unequally_many_drafts_are_left_out() -> None:
    chunks = ((0, 1), (10, 2), (20, 1), (30, 1))
    uneven = RequestTiming("a", "measured", chunks=chunks, steps=3, proposed=4, accepted=1)
    too_many = RequestTiming("b", "measured", chunks=((0, 1), (10, 3), (20, 1)), steps=2, proposed=2)
    failed = RequestTiming("c", "measured", chunks=chunks, steps=3, proposed=3, accepted=1, error="gone")
    assert acceptance_trials([uneven, too_many, failed]) == []


def test_outliers_by_the_modified_z_score() -> None:
    values = [9.9, 10.0, 10.1, 10.0, 9.8, 10.2, 14.0]
    centre = median(values)
    spread = median(abs(value - centre) for value in values)
    z = NormalDist().inv_cdf(0.75) * (14.0 - centre) / spread
    assert z > 3.5
    assert outliers(values) == [6]
    assert outliers([10.0, 10.0, 10.0, 50.0]) is None
    assert outliers([0.0, 0.0, 1e-300, 1e-300, 1e300]) == [4]


def test_a_spread_of_values_that_are_mostly_equal_is_zero() -> None:
    # Median 3, distances 2 1 0 1 97 -> 1.
    assert scaled_mad([1, 2, 3, 4, 100]) == pytest.approx(1.4826)
    assert scaled_mad([5, 5, 5, 13]) == 0
