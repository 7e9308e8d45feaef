"""Step detection: the exact optimum, planted steps, noise alone, outliers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.history.level_steps import MINIMUM_RUNS, Floats, Segment, noise, potts, segments


def segment_costs(series: Floats, cap: float) -> dict[tuple[int, int], float]:
    """What every segment costs at its best level, by trying every value of the series."""
    n = len(series)
    return {
        (start, end): min(float(np.minimum(np.abs(series[start:end] - level), cap).sum()) for level in series)
        for start in range(n)
        for end in range(start + 1, n + 1)
    }


def total_cost(costs: dict[tuple[int, int], float], bounds: tuple[int, ...], penalty: float) -> float:
    return penalty * (len(bounds) - 2) + sum(costs[pair] for pair in itertools.pairwise(bounds))


def every_segmentation(n: int, minimum: int) -> Iterator[tuple[int, ...]]:
    for count in range(n // minimum):
        for inner in itertools.combinations(range(minimum, n - minimum + 1), count):
            bounds = (0, *inner, n)
            if all(end - start >= minimum for start, end in itertools.pairwise(bounds)):
                yield bounds


@settings(deadline=None)
@given(
    values=st.lists(st.integers(0, 12), min_size=3, max_size=10),
    half_penalty=st.integers(1, 20),
    cap=st.integers(1, 12),
    minimum=st.integers(1, 3),
)
def test_no_segmentation_is_better_than_the_one_found(
    values: list[int], half_penalty: int, cap: int, minimum: int
) -> None:
    series = np.array(values, dtype=np.float64)
    penalty = half_penalty / 2
    bounds = (*potts(series, penalty, cap, minimum), len(series))
    costs = segment_costs(series, cap)
    allowed = list(every_segmentation(len(series), minimum))
    assert bounds in allowed
    assert total_cost(costs, bounds, penalty) == min(total_cost(costs, each, penalty) for each in allowed)


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 1000), min_size=1, max_size=40), st.floats(0.01, 100))
def test_the_unit_of_the_values_does_not_matter(values: list[float], factor: float) -> None:
    series = np.array(values)
    starts = [part.start for part in segments(values)]
    # A power of two scales without rounding.
    scale = 2.0 ** round(np.log2(factor))
    assert [part.start for part in segments((series * scale).tolist())] == starts


def test_levels_are_the_medians_between_the_steps() -> None:
    values = [44.0, 44.2, 44.1, 44.3, 44.1, 48.0, 48.3, 48.1, 48.2]
    first, second = segments(values)
    assert first == Segment(0, 5, 44.1)
    assert (second.start, second.end, second.level) == (5, 9, pytest.approx(48.15))


@pytest.mark.parametrize("outlier", [60.0, 1e6, 0.0])
def test_single_outliers_make_no_level(outlier: float) -> None:
    values = [44.0, 44.2, 44.1, outlier, 44.3, 44.1, 44.2, outlier, 44.0, 44.1, 44.2, outlier]
    assert [part.start for part in segments(values)] == [0]


def test_two_outliers_near_each_other_make_no_level_but_three_runs_do() -> None:
    calm = [44.0, 44.2, 44.1, 44.3, 44.1, 44.2, 44.0, 44.3]
    assert [part.start for part in segments([*calm, 90.0, 44.2, 91.0, *calm])] == [0]
    assert [part.start for part in segments([*calm, 90.0, 44.2, 91.0])] == [0]
    assert [part.start for part in segments([*calm, 90.0, 90.1, 90.3])] == [0, 8]


@pytest.mark.parametrize(
    ("values", "starts"),
    [
        ([], []),
        ([5.0], [0]),
        ([1.0, 2.0, 3.0, 4.0, 5.0], [0]),  # too few for two levels
        ([1.727] * 10, [0]),
        ([1.727] * 5 + [1.8] * 5, [0, 5]),  # no noise at all
        ([1.0, 1.0, 1.0, 2.0, 1.0, 1.0, 2.0, 1.0, 1.0], [0]),
    ],
)
def test_short_and_noiseless_series(values: list[float], starts: list[int]) -> None:
    assert [part.start for part in segments(values)] == starts


def test_values_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        segments([1.0, float("nan"), 2.0])


def test_noise_is_that_of_the_runs_about_their_levels() -> None:
    generator = np.random.default_rng(3)
    series = generator.normal(100, 2.0, 2000)
    assert noise(series) == pytest.approx(2.0, rel=0.06)
    series[1000:] += 50
    series[::50] += 300
    assert noise(series) == pytest.approx(2.0, rel=0.1)
    # Consecutive differences 1, 3, 2 have median 2, which is 0.6745 * sqrt(2) sigma.
    assert noise(np.array([0.0, 1.0, 4.0, 2.0])) == pytest.approx(2 / 0.953873)
    # Differences 0, 0, 6: the mean 2, and E|difference| = 2 sigma / sqrt(pi).
    assert noise(np.array([1.0, 1.0, 1.0, 7.0])) == pytest.approx(1.772454)


def runs(generator: np.random.Generator, n: int, step_at: int | None, outliers: float) -> list[float]:
    """45 ms with 1.5 % noise, 5 % more from `step_at` on; an outlier takes 1.2 to 2 times as long."""
    values = 45 * (1 + 0.015 * generator.standard_normal(n))
    if step_at is not None:
        values[step_at:] *= 1.05
    hit = generator.random(n) < outliers
    values[hit] *= generator.uniform(1.2, 2.0, int(hit.sum()))
    return [float(value) for value in values]


def test_a_planted_step_is_found_at_its_place() -> None:
    """The rates of docs/history.md, over 100 seeded series of 40 runs."""
    generator = np.random.default_rng(1)
    found = [segments(runs(generator, 40, 20, 0.05)) for _ in range(100)]
    one_step = [parts for parts in found if len(parts) == 2]
    near = [parts for parts in one_step if abs(parts[1].start - 20) <= 1]
    assert len(one_step) >= 0.95 * len(found)
    assert len(near) >= 0.9 * len(found)
    changes = [parts[1].level / parts[0].level for parts in near]
    assert np.median(changes) == pytest.approx(1.05, abs=0.005)


@pytest.mark.parametrize("outliers", [0.0, 0.05])
@pytest.mark.parametrize("n", [2 * MINIMUM_RUNS, 40])
def test_noise_alone_has_no_step_in_95_of_100_series(n: int, outliers: float) -> None:
    generator = np.random.default_rng(7)
    trials = 200
    false_alarms = sum(len(segments(runs(generator, n, None, outliers))) > 1 for _ in range(trials))
    assert false_alarms <= 0.05 * trials
