"""How often the gate cries wolf or cannot tell, and how small a regression it catches, beside five common rules.

    python benchmarks/gate_power.py                  # 4,000 trials a cell, about ten minutes
    python benchmarks/gate_power.py --markdown       # the tables of docs/gating.md
    python benchmarks/gate_power.py --only verdicts  # one of them: verdicts, rules, orders

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

import msgspec
import numpy as np
import numpy.typing as npt
from scipy import stats

from analyzers.gate.model import GatePolicy, MetricPolicy, Samples, Verdict
from analyzers.gate.stages import Stage, stage_sizes
from analyzers.gate.verdict import decide
from analyzers.statistics.rank_tests import hodges_lehmann_ratio, mann_whitney

Floats = npt.NDArray[np.float64]

THRESHOLD = 0.02
RUNS = 10
REQUESTS = 32
LOOKBACK = 20
CHANGES = (0.0, 0.01, 0.02, 0.03, 0.05, 0.10)
POLICY = GatePolicy({"tpot_ms": MetricPolicy(THRESHOLD)}, stage_runs=RUNS)
PROOF = msgspec.structs.replace(POLICY, excluded=0.0)
TWO_STAGES = msgspec.structs.replace(POLICY, max_runs=2 * RUNS)
NOISES = (0.01, 0.02, 0.05, 0.10)
VERDICT_CHANGES = (0.0, 0.02, 0.05, 0.10, 0.20)
VERDICTS: tuple[Verdict, ...] = ("PASS", "FAIL", "UNDECIDED")


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


def verdict_of(
    world: World, change: float, policy: GatePolicy = POLICY, order: str = "ABBA"
) -> tuple[Verdict, int]:
    """The verdict of a gate of interleaved runs, stage after stage, and the runs a side that it took."""
    sizes = stage_sizes(policy)
    base, head = world.interleaved(sum(sizes), change, order)
    verdict: Verdict = "UNDECIDED"
    runs = 0
    for number, size in enumerate(sizes, 1):
        runs += size
        stage = Stage(number, len(sizes))
        verdict = decide(
            _samples(base[:runs]), _samples(head[:runs]), policy, method="", stored=False, stage=stage
        ).verdict
        if verdict != "UNDECIDED":
            break
    return verdict, runs


def gate(world: World, change: float) -> bool:
    """The gate: interleaved, ten runs a side and stage, four stages at most."""
    return verdict_of(world, change)[0] == "FAIL"


def gate_of_two_stages(world: World, change: float) -> bool:
    """The same with `--max-runs 20`."""
    return verdict_of(world, change, TWO_STAGES)[0] == "FAIL"


def gate_on_both_signs(world: World, change: float) -> bool:
    """That one, but with a second stage only where the first has both a low p-value and a ratio beyond the threshold."""
    base, head = world.interleaved(2 * RUNS, change, "ABBA")
    first_base, first_head = base[:RUNS].tolist(), head[:RUNS].tolist()
    if (
        mann_whitney(first_head, first_base).p_value >= POLICY.stage_one_p
        or hodges_lehmann_ratio(first_head, first_base) <= 1 + THRESHOLD
    ):
        return False
    return _all_at_once(base, head) == "FAIL"


def _all_at_once(base: Floats, head: Floats) -> Verdict:
    return decide(_samples(base), _samples(head), POLICY, method="", stored=False).verdict


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
    "the same, --max-runs 20": gate_of_two_stages,
    "that one, stage two only on both signs": gate_on_both_signs,
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


def verdict_table(trials: int, seed: int, markdown: bool) -> None:
    """Print how often each verdict is given, and how many runs a side that takes, by noise and true change.

    A quarter of the trials will do: a gate of several stages takes long to simulate, and its rates are not that small.
    """
    trials = max(1, trials // 4)
    _row(
        ["gate, noise between runs", *(f"{change:+.0%}" if change else "A/A" for change in VERDICT_CHANGES)],
        markdown,
        head=True,
    )
    for name, policy in (("default", POLICY), ("--proof", PROOF)):
        for noise in NOISES:
            cells = []
            for change in VERDICT_CHANGES:
                world = World(
                    np.random.default_rng([seed, round(change * 1e4), round(noise * 1e4)]), run=noise
                )
                found = [verdict_of(world, change, policy) for _ in range(trials)]
                shares = [sum(it == verdict for it, _ in found) / trials for verdict in VERDICTS]
                runs = sum(runs for _, runs in found) / trials
                cells.append(" / ".join(f"{100 * share:.1f}" for share in shares) + f" ({runs:.0f})")
            _row([f"{name}, {noise:.0%}", *cells], markdown)
    print(
        f"\nPASS / FAIL / UNDECIDED, in % of {trials} gates a cell; in brackets the runs a side that it took.\n"
    )


def rule_table(trials: int, seed: int, markdown: bool) -> None:
    """Print how often each rule fails the head, by true change."""
    _row(["rule", *(f"{change:+.0%}" if change else "A/A" for change in CHANGES)], markdown, head=True)
    for name, rule in RULES.items():
        _row([name, *(_percent(rate(rule, change, trials, seed), trials) for change in CHANGES)], markdown)
    upper = stats.binomtest(0, trials).proportion_ci(0.95, "exact").high
    print(f"\n{trials} trials a cell; 0 of {trials} means below {upper:.2%} with 95 % confidence.\n")


def order_table(trials: int, seed: int, markdown: bool) -> None:
    """Print the false alarms of the orders of runs, by how much the machine drifts."""
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
    print()


TABLES = {"verdicts": verdict_table, "rules": rule_table, "orders": order_table}


def gate_in_order(world: World, change: float, order: str) -> bool:
    """The gate's final rule on twenty runs a side in any order."""
    base, head = world.interleaved(2 * RUNS, change, order)
    return _all_at_once(base, head) == "FAIL"


def _percent(count: int, trials: int) -> str:
    return f"{100 * count / trials:.2f} %"


def _row(cells: list[str], markdown: bool, head: bool = False) -> None:
    if markdown:
        print("| " + " | ".join(cells) + " |", flush=True)
        if head:
            print("| --- |" + " ---: |" * (len(cells) - 1))
    else:
        width = max(10, *(len(cell) + 2 for cell in cells[1:]))
        print(f"{cells[0]:<50}" + "".join(f"{cell:>{width}}" for cell in cells[1:]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--only", choices=list(TABLES), help="print this table alone")
    arguments = parser.parse_args()
    for name, table in TABLES.items():
        if arguments.only in (None, name):
            table(arguments.trials, arguments.seed, arguments.markdown)


if __name__ == "__main__":
    main()
