"""Runner times worked out by hand: spreads, last ranks and distances from the median, exact at any time."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.ranks.rounds import RankRun, Round
from analyzers.ranks.runner_times import RunnerTimes
from analyzers.table.intervals import Interval

FAR = 2**62
"""Nanoseconds after 146 years; a float is off by up to 512 of them there."""


def run(rank: int, runner: Interval | None) -> RankRun:
    return RankRun(
        rank=rank,
        callable="decode",
        root=Interval(0, 1),
        phases={} if runner is None else {"runner_run": runner},
        bound_ahead=None,
        device_wall_ns=None,
        run_id=-1,
        dispatch_id=-1,
        run_epoch=-1,
        slot=-1,
        generation=-1,
        invocation=-1,
    )


def round_of(runners: Mapping[int, tuple[int, int] | None], missing: tuple[int, ...] = ()) -> Round:
    runs = {rank: run(rank, None if times is None else Interval(*times)) for rank, times in runners.items()}
    return Round(key=(), callable="decode", runs=runs, missing=missing)


def test_two_rounds_of_three_ranks() -> None:
    times = RunnerTimes.of(
        [
            round_of({0: (100, 900), 1: (130, 850), 2: (110, 1_000)}),
            round_of({0: (2_000, 2_500), 1: (2_000, 2_400), 2: (1_900, 2_500)}),
        ]
    )
    assert (times.ranks, times.positions.tolist()) == ((0, 1, 2), [0, 1])
    assert times.start_ns.tolist() == [[100, 130, 110], [2_000, 2_000, 1_900]]
    assert times.end_ns.tolist() == [[900, 850, 1_000], [2_500, 2_400, 2_500]]
    assert times.spread("start").tolist() == [30, 100]
    assert times.spread("end").tolist() == [150, 100]
    assert (times.last("start").tolist(), times.last("end").tolist()) == ([130, 2_000], [1_000, 2_500])
    assert times.after_median("start").tolist() == [[-10, 20, 0], [0, 0, -100]]
    assert times.after_median("end").tolist() == [[0, -50, 100], [0, -100, 0]]


def test_rounds_without_every_runner_are_left_out_and_the_others_keep_their_place() -> None:
    times = RunnerTimes.of(
        [
            round_of({0: (1, 2)}, missing=(1,)),
            round_of({0: (10, 20), 1: (13, 26)}),
            round_of({0: (30, 40), 1: None}),
            round_of({0: (50, 60), 1: (50, 61)}),
        ]
    )
    assert times.positions.tolist() == [1, 3]
    assert times.spread("end").tolist() == [6, 1]
    # The median of two lies between them, here by half a nanosecond.
    assert times.after_median("end").tolist() == [[-3, 3], [-0.5, 0.5]]
    assert times.twice_after_median("end").tolist() == [[-6, 6], [-1, 1]]


@pytest.mark.parametrize("rounds", [[], [round_of({0: (5, 9)})]], ids=["no round", "one rank"])
def test_one_rank_is_compared_with_nobody(rounds: list[Round]) -> None:
    times = RunnerTimes.of(rounds)
    assert len(times) == 0
    assert [figures.tolist() for figures in (times.spread("start"), times.last("end"))] == [[], []]
    assert times.after_median("end").size == 0


def test_nanoseconds_of_times_beyond_what_a_float_holds() -> None:
    # As floats all four starts would be equal.
    starts = [FAR, FAR + 3, FAR + 1, FAR + 200]
    times = RunnerTimes.of([round_of({rank: (start, FAR + 10**9) for rank, start in enumerate(starts)})])
    assert len({float(start) for start in starts}) == 1
    assert times.spread("start").tolist() == [200]
    assert times.last("start").tolist() == [FAR + 200]
    # The median is FAR + 2.
    assert times.after_median("start").tolist() == [[-2, 1, -1, 198]]


@given(
    st.lists(st.lists(st.integers(0, 2**40), min_size=4, max_size=4).map(sorted), min_size=1, max_size=5),
    st.sampled_from([0, FAR, -FAR]),
)
def test_spread_and_median_are_those_of_whole_numbers(drawn: list[list[int]], origin: int) -> None:
    rounds = [
        round_of({rank: (origin + time, origin + time) for rank, time in enumerate(reversed(row))})
        for row in drawn
    ]
    times = RunnerTimes.of(rounds)
    for edge in ("start", "end"):
        assert times.spread(edge).tolist() == [row[-1] - row[0] for row in drawn]
        expected = [[Fraction(time) - median(map(Fraction, row)) for time in reversed(row)] for row in drawn]
        assert np.array(times.twice_after_median(edge)).tolist() == [[2 * x for x in row] for row in expected]
