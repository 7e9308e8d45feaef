"""How often the gate cries wolf, and how small a regression it catches, beside five common rules; by simulation.

    python benchmarks/gate_power.py                  # 4,000 trials a row, about a minute
    python benchmarks/gate_power.py --markdown       # the tables of docs/gating.md

The world of the simulation, all effects multiplicative and lognormal unless said otherwise:

- A session (one machine, one hour) has a speed of its own: 4 % standard deviation between sessions.
- A run differs from its session by 1.5 %; 5 % of the runs are outliers, slower by a further 10 to 40 % (uniform).
- A request differs from its run by 10 %; a run has 32 of them.

Stored runs come from other sessions; interleaved runs share one. Every rule sees the same regression in the head.
The gate's rule is the product's own code. Same seed, same tables.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy import stats

from analyzers.gate.model import GatePolicy, MetricPolicy, Samples
from analyzers.gate.verdict import judge, wants_second_stage
from analyzers.statistics.rank_tests import hodges_lehmann_ratio, mann_whitney

Floats = npt.NDArray[np.float64]

THRESHOLD = 0.02
RUNS = 10
REQUESTS = 32
LOOKBACK = 20
CHANGES = (0.0, 0.01, 0.02, 0.03, 0.05, 0.10)
POLICY = GatePolicy({"tpot_ms": MetricPolicy(THRESHOLD)}, stage_runs=RUNS)


@dataclass(frozen=True)
class World:
    """Where noise comes from; standard deviations of logarithms, and shares."""

    random: np.random.Generator
    session: float = 0.04
    run: float = 0.015
    outlier_share: float = 0.05
    request: float = 0.10
    drift: float = 0.0
    """How much slower the machine becomes from the first to the last of the interleaved runs, linearly."""

    def session_speed(self, count: int = 1) -> Floats:
        """Time factors of `count` sessions."""
        return np.exp(self.random.normal(0, self.session, count))

    def runs(self, speed: float | Floats, count: int, change: float = 0.0) -> Floats:
        """Times of `count` runs in sessions of this speed, in ms about 50."""
        noise = np.exp(self.random.normal(0, self.run, count))
        slowed = self.random.random(count) < self.outlier_share
        outliers = np.where(slowed, 1 + self.random.uniform(0.1, 0.4, count), 1)
        return 50 * speed * (1 + change) * noise * outliers

    def interleaved(self, count: int, change: float, order: str) -> tuple[Floats, Floats]:
        """Base and head of one session, `count` a side; `order` repeats: A is a base run, B a head run."""
        sequence = np.array(list((order * (2 * count))[: 2 * count]))
        times = self.runs(float(self.session_speed()[0]), 2 * count) * (
            1 + self.drift * np.arange(2 * count) / (2 * count - 1)
        )
        return times[sequence == "A"], times[sequence == "B"] * (1 + change)

    def requests(self, run_time: float) -> Floats:
        """Times of the requests of a run."""
        return run_time * np.exp(self.random.normal(0, self.request, REQUESTS))


def gate(world: World, change: float) -> bool:
    """The gate: interleaved, ten runs a side, ten more where the first ten are suspicious."""
    base, head = world.interleaved(2 * RUNS, change, "ABBA")
    first = judge(_samples(base[:RUNS]), _samples(head[:RUNS]), POLICY, method="", stored=False)
    if not wants_second_stage(first, POLICY):
        return False
    return judge(_samples(base), _samples(head), POLICY, method="", stored=False).verdict == "FAIL"


def gate_on_both_signs(world: World, change: float) -> bool:
    """The gate, but with a second stage only where the first has both a low p-value and a ratio beyond the threshold."""
    base, head = world.interleaved(2 * RUNS, change, "ABBA")
    first_base, first_head = base[:RUNS].tolist(), head[:RUNS].tolist()
    if (
        mann_whitney(first_head, first_base).p_value >= POLICY.stage_one_p
        or hodges_lehmann_ratio(first_head, first_base) <= 1 + THRESHOLD
    ):
        return False
    return judge(_samples(base), _samples(head), POLICY, method="", stored=False).verdict == "FAIL"


def _samples(values: Floats) -> Samples:
    return Samples({"tpot_ms": values.tolist()})


def one_against_stored(world: World, change: float) -> bool:
    """One run, compared with one stored run."""
    stored, now = world.session_speed(2)
    return float(world.runs(now, 1, change)[0] / world.runs(stored, 1)[0]) > 1 + THRESHOLD


def welch_on_requests(world: World, change: float) -> bool:
    """Welch's t-test at 0.05 on the requests of one run a side, in one session."""
    speed = float(world.session_speed()[0])
    base = world.requests(float(world.runs(speed, 1)[0]))
    head = world.requests(float(world.runs(speed, 1, change)[0]))
    return bool(stats.ttest_ind(head, base, equal_var=False, alternative="greater").pvalue < 0.05)


def mann_whitney_against_stored(world: World, change: float) -> bool:
    """Mann-Whitney at 0.05, ten runs against ten stored ones."""
    stored, now = world.session_speed(2)
    return (
        mann_whitney(world.runs(now, RUNS, change).tolist(), world.runs(stored, RUNS).tolist()).p_value < 0.05
    )


def lookback_z(world: World, change: float) -> bool:
    """One run, more than two standard deviations above the mean of the last twenty stored runs."""
    history = world.runs(world.session_speed(LOOKBACK), LOOKBACK)
    now = float(world.runs(world.session_speed(), 1, change)[0])
    return now > float(history.mean() + 2 * history.std(ddof=1))


def mean_ratio(world: World, change: float) -> bool:
    """The ratio of the means of ten interleaved runs a side is above the threshold."""
    base, head = world.interleaved(RUNS, change, "ABBA")
    return float(head.mean() / base.mean()) > 1 + THRESHOLD


def median_ratio_only(world: World, change: float) -> bool:
    """The gate without its test: the Hodges-Lehmann ratio of ten interleaved runs a side is above the threshold."""
    base, head = world.interleaved(RUNS, change, "ABBA")
    return hodges_lehmann_ratio(head.tolist(), base.tolist()) > 1 + THRESHOLD


RULES: dict[str, Callable[[World, float], bool]] = {
    "dsv4bench gate run": gate,
    "the same, stage two only on both signs": gate_on_both_signs,
    "one run against a stored one, +2 %": one_against_stored,
    "Welch 0.05 on the requests of one run a side": welch_on_requests,
    "Mann-Whitney 0.05 against ten stored runs": mann_whitney_against_stored,
    "lookback z > 2 over twenty stored runs": lookback_z,
    "mean ratio > 1.02, ten interleaved runs a side": mean_ratio,
    "Hodges-Lehmann ratio > 1.02 without a test": median_ratio_only,
}


def rate(
    rule: Callable[[World, float], bool], change: float, trials: int, seed: int, drift: float = 0.0
) -> int:
    """In how many of `trials` worlds the rule fails the head."""
    world = World(np.random.default_rng([seed, round(change * 10_000), round(drift * 10_000)]), drift=drift)
    return sum(rule(world, change) for _ in range(trials))


def tables(trials: int, seed: int, markdown: bool) -> None:
    """Print the table of the rules, and that of the orders under drift."""
    _row(["rule", *(f"{change:+.0%}" if change else "A/A" for change in CHANGES)], markdown, head=True)
    for name, rule in RULES.items():
        _row([name, *(_percent(rate(rule, change, trials, seed), trials) for change in CHANGES)], markdown)
    upper = stats.binomtest(0, trials).proportion_ci(0.95, "exact").high
    print(f"\n{trials} trials a cell; 0 of {trials} means below {upper:.2%} with 95 % confidence.\n")
    drifts = (0.0, 0.02, 0.04, 0.08)
    _row(["false alarms, machine slows by", *(f"{drift:.0%}" for drift in drifts)], markdown, head=True)
    for order in ("ABBA", "AB", "A" * 2 * RUNS + "B" * 2 * RUNS):
        label = order if len(order) <= 4 else "all base, then all head"
        counts = [
            rate(
                partial(gate_in_order, order=order),
                0.0,
                trials,
                seed,
                drift,
            )
            for drift in drifts
        ]
        _row([label, *(_percent(count, trials) for count in counts)], markdown)


def gate_in_order(world: World, change: float, order: str) -> bool:
    """The gate's final rule on twenty runs a side in any order."""
    base, head = world.interleaved(2 * RUNS, change, order)
    return judge(_samples(base), _samples(head), POLICY, method="", stored=False).verdict == "FAIL"


def _percent(count: int, trials: int) -> str:
    return f"{100 * count / trials:.2f} %"


def _row(cells: list[str], markdown: bool, head: bool = False) -> None:
    if markdown:
        print("| " + " | ".join(cells) + " |", flush=True)
        if head:
            print("| --- |" + " ---: |" * (len(cells) - 1))
    else:
        print(f"{cells[0]:<50}" + "".join(f"{cell:>10}" for cell in cells[1:]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    tables(arguments.trials, arguments.seed, arguments.markdown)


if __name__ == "__main__":
    main()
