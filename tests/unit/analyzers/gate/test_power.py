"""What the gate says it can see, against what it sees in simulations of its own decision."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analyzers.gate.model import GatePolicy, MetricPolicy, Samples
from analyzers.gate.power import (
    minimum_detectable,
    more_runs,
    noise_of,
    runs_needed,
    runs_to_exclude,
    runs_to_keep,
)
from analyzers.gate.verdict import decide
from analyzers.statistics.rank_tests import mann_whitney, median_at_most, ratio_at_most


@pytest.mark.parametrize(("runs", "noise"), [(6, 0.01), (10, 0.015), (20, 0.03)])
def test_a_regression_of_that_size_is_caught_nine_times_of_ten(runs: int, noise: float) -> None:
    drawn = np.random.default_rng(11)
    threshold = 0.02
    # The size that these runs would state if they showed exactly this noise.
    template = np.exp(noise * np.sqrt(runs / (runs - 1)) * _standard(runs)).tolist()
    assert noise_of(template, template) == pytest.approx(noise * math.sqrt(runs / (runs - 1)), rel=0.15)
    scale = noise / noise_of(template, template)
    exact = [math.exp(math.log(value) * scale) for value in template]
    stated = minimum_detectable(exact, exact, threshold, 0.01)
    assert stated is not None
    policy = GatePolicy({"tpot": MetricPolicy(threshold)})
    trials, caught = 400, 0
    for _ in range(trials):
        base = np.exp(noise * drawn.standard_normal(runs)) * 50
        head = np.exp(noise * drawn.standard_normal(runs)) * 50 * (1 + stated)
        result = decide(
            Samples({"tpot": base.tolist()}), Samples({"tpot": head.tolist()}), policy, method="", stored=True
        )
        caught += result.verdict == "FAIL"
    assert caught / trials == pytest.approx(0.9, abs=4 * math.sqrt(0.09 / trials))


def _standard(n: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """n values with mean 0 and sample standard deviation 1, none of them an outlier."""
    values = np.linspace(-1, 1, n)
    found: np.ndarray[tuple[int], np.dtype[np.float64]] = values / values.std(ddof=1)
    return found


def test_without_noise_whatever_is_beyond_the_threshold_is_seen() -> None:
    assert minimum_detectable([10.0] * 6, [10.0] * 6, 0.05, 0.01) == pytest.approx(0.05)


def test_so_few_runs_see_nothing() -> None:
    assert minimum_detectable([10.0] * 4, [10.0] * 4, 0.02, 0.01) is None
    assert minimum_detectable([10.0] * 5, [10.0] * 5, 0.02, 0.01) is not None


def test_more_runs_see_more_and_one_outlier_changes_little() -> None:
    few, many = (np.exp(0.02 * _standard(n)).tolist() for n in (6, 24))
    some = minimum_detectable(few, few, 0.02, 0.01)
    more = minimum_detectable(many, many, 0.02, 0.01)
    assert some is not None
    assert more is not None
    assert more < some
    with_outlier = minimum_detectable([*many[:-1], 1.5], many, 0.02, 0.01)
    assert with_outlier == pytest.approx(more, rel=0.1)


@pytest.mark.parametrize(
    ("tests", "base", "expected"),
    [
        (1, None, 5),  # C(10, 5) = 252
        (3, None, 6),  # C(12, 6) = 924
        (1, 10, 3),  # C(13, 3) = 286
        (1, 1, 100),  # C(101, 1) = 101 is the first beyond 100
    ],
)
def test_runs_needed(tests: int, base: int | None, expected: int) -> None:
    assert runs_needed(tests, 0.01, base) == expected


@pytest.mark.parametrize(("noise", "excluded"), [(0.1, 0.1), (0.02, 0.02)])
def test_so_many_runs_exclude_a_regression_nine_times_of_ten(noise: float, excluded: float) -> None:
    runs = runs_to_exclude(noise, excluded, 0.05)
    assert runs is not None
    drawn = np.random.default_rng(4)
    trials = 400
    sides = np.exp(noise * drawn.standard_normal((trials, 2, runs)))
    bounds = [ratio_at_most(head.tolist(), base.tolist(), 0.05) for head, base in sides]
    done = sum(bound is not None and bound <= 1 + excluded for bound in bounds)
    assert done / trials == pytest.approx(0.9, abs=0.02 + 4 * math.sqrt(0.09 / trials))
    assert runs_to_exclude(noise, 0.0, 0.05) is None, "no number of runs shows that nothing has changed"


def test_so_many_runs_keep_a_limit_nine_times_of_ten() -> None:
    runs = runs_to_keep(0.1, 0.05, 0.05)
    assert runs is not None
    drawn = np.random.default_rng(4)
    trials = 400
    bounds = [median_at_most(values.tolist(), 0.05) for values in 0.1 * drawn.standard_normal((trials, runs))]
    done = sum(bound is not None and bound <= 0.05 for bound in bounds)
    assert done / trials == pytest.approx(0.9, abs=0.05 + 4 * math.sqrt(0.09 / trials))
    assert runs_to_keep(0.1, 0.0, 0.05) is None


def test_more_runs_decide_if_the_difference_stays() -> None:
    base = [10.0, 10.1, 10.2, 10.3, 10.4, 10.5]
    head = [10.35, 10.6, 10.7, 10.45, 10.25, 10.8]
    p_value = mann_whitney(head, base).p_value
    more = more_runs(6, p_value, 0.01)
    # The same difference in twice as many runs is significant; the answer lies in between.
    assert mann_whitney(head * 2, base * 2).p_value < 0.01
    assert 1 <= more <= 6
