"""How noisy this machine is, from runs of one thing against itself, and what a gate on it can see.

The gate's own decision rule is tried on runs that are drawn, with replacement, from those that were measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from analyzers.gate.metrics import metric, unit_of
from analyzers.gate.model import GatePolicy, MetricPolicy, Samples, Verdict
from analyzers.gate.policy import judged_metrics
from analyzers.gate.power import POWER
from analyzers.gate.stages import Stage, stage_sizes
from analyzers.gate.verdict import decide
from analyzers.statistics.rank_tests import hodges_lehmann_ratio, two_sided_p
from analyzers.statistics.robust import scaled_mad

Floats = npt.NDArray[np.float64]

SCHEMA_VERSION = 1
STAGE_RUNS = (5, 10, 20)
"""Runs a side and stage that are tried."""
_SEED = 20260101
_POWER_TRIALS = 100
_LARGEST_CHANGE = 1.0
_HALVINGS = 6
_TIE_BREAK = 0.1
"""Standard deviation of what is added to a drawn run, in those of the noise: two runs are never quite alike."""


class Noise(msgspec.Struct, frozen=True):
    """One metric over runs that should all be alike."""

    name: str
    unit: str
    runs: int
    median: float
    spread: float
    """Robust coefficient of variation between runs: 1.4826 x median absolute deviation / median."""
    range: float
    """(largest - smallest) / median."""
    drift: float
    """The second half of the runs against the first: Hodges-Lehmann ratio - 1."""
    drift_p: float
    """Two-sided, that the machine did not drift."""


class Plan(msgspec.Struct, frozen=True):
    """What a gate of so many runs a side and stage does on this machine."""

    runs: int
    max_regression: float
    false_alarms: float
    """Share of gates of alike sides that fail."""
    false_alarms_at_most: float
    """Upper end of its 95 % interval, as far as the trials go."""
    undecided: float
    """Share of gates of alike sides that come to no verdict within the runs that they may make."""
    detectable: dict[str, float | None]
    """Smallest regression of each metric that fails with 90 % probability; None for none up to 100 %."""


class GateCalibration(msgspec.Struct, frozen=True):
    """Everything that is known, and what is not."""

    schema_version: int
    source: str
    machine: str | None
    runs: int
    """Measured, of both sides together."""
    noise: list[Noise]
    plans: list[Plan]
    recommended_runs: int | None
    """Runs a side and stage; None where the runs allow no advice."""
    recommended_max_regression: float | None
    trials: int
    seed: int
    caveats: list[str]
    warnings: list[str]


def calibrate_gate(base: Samples, head: Samples, policy: GatePolicy, *, trials: int = 400) -> GateCalibration:
    """Judge the noise in runs of one thing, made as two interleaved sides, and try gates on them.

    `trials` is the number of gates that are drawn for each figure; the draws are the same ones every time.
    """
    judged = judged_metrics(policy)
    names = [name for name in judged if judged[name].max_regression is not None]
    values = {name: series for name in names if (series := _series(base, head, name)) is not None}
    noise = [_noise(name, series) for name, series in values.items()]
    plans = []
    if values and all(len(series) >= 2 for series in values.values()):
        asked = msgspec.structs.replace(policy, metrics={name: judged[name] for name in values})
        plans = [_plan(values, asked, runs, trials) for runs in STAGE_RUNS]
    runs, threshold = _recommendation(plans)
    return GateCalibration(
        SCHEMA_VERSION,
        base.source,
        base.machine,
        len(base.runs) + len(head.runs),
        noise,
        plans,
        runs,
        threshold,
        trials,
        _SEED,
        _caveats(noise, [name for name in names if name not in values], trials),
        list(dict.fromkeys([*base.warnings, *head.warnings])),
    )


def _series(base: Samples, head: Samples, name: str) -> Floats | None:
    """All values of a metric in about the order of the runs: pair after pair; None without a usable one."""
    sides = [side.metrics.get(name) or [] for side in (base, head)]
    values = [value for pair in zip(*sides, strict=False) for value in pair if value is not None]
    usable = values and all(math.isfinite(value) and value > 0 for value in values)
    return np.array(values) if usable else None


def _noise(name: str, series: Floats) -> Noise:
    median = float(np.median(series))
    half = len(series) // 2
    drift, drift_p = 0.0, 1.0
    if half:
        first, second = series[:half].tolist(), series[half:].tolist()
        drift = hodges_lehmann_ratio(second, first) - 1
        drift_p = two_sided_p(second, first)
    return Noise(
        name,
        unit_of(name),
        len(series),
        median,
        scaled_mad(series) / median,
        float(np.ptp(series)) / median,
        drift,
        drift_p,
    )


def _plan(values: Mapping[str, Floats], policy: GatePolicy, runs: int, trials: int) -> Plan:
    planned = msgspec.structs.replace(policy, stage_runs=runs, max_runs=None)
    most = sum(stage_sizes(planned))
    verdicts = [_verdict(_draw(values, most, trial), {}, planned) for trial in range(trials)]
    failed = verdicts.count("FAIL")
    return Plan(
        runs,
        max(_threshold(asked) for asked in judged_metrics(planned).values()),
        failed / trials,
        _upper_bound(failed, trials),
        verdicts.count("UNDECIDED") / trials,
        {name: _detectable(values, name, planned, min(trials, _POWER_TRIALS)) for name in values},
    )


def _detectable(values: Mapping[str, Floats], name: str, policy: GatePolicy, trials: int) -> float | None:
    """The smallest regression of one metric that is caught in POWER of the trials, by bisection."""
    draws = [_draw(values, sum(stage_sizes(policy)), trial) for trial in range(trials)]

    def is_caught(change: float) -> bool:
        worse = (
            1 / (1 + change)
            if metric(name, judged_metrics(policy)[name].better).higher_is_better
            else 1 + change
        )
        return sum(_verdict(draw, {name: worse}, policy) == "FAIL" for draw in draws) >= POWER * trials

    low, high = 0.0, _threshold(judged_metrics(policy)[name]) + 0.01
    while not is_caught(high):
        low, high = high, 2 * high
        if high > _LARGEST_CHANGE:
            return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_caught(middle) else (middle, high)
    return high


def _draw(values: Mapping[str, Floats], runs: int, trial: int) -> dict[str, tuple[Floats, Floats]]:
    """Two sides of `runs` runs each, drawn from those measured; a drawn run brings all of its metrics."""
    random = np.random.default_rng((_SEED, trial))
    drawn = {}
    length = min(map(len, values.values()))
    picks = random.integers(length, size=(2, runs))
    for name, series in values.items():
        logarithms = np.log(series)
        jitter = random.normal(0, _TIE_BREAK * scaled_mad(logarithms), size=(2, runs))
        base, head = np.exp(logarithms[picks] + jitter)
        drawn[name] = (base, head)
    return drawn


def _verdict(
    draw: Mapping[str, tuple[Floats, Floats]], worse: Mapping[str, float], policy: GatePolicy
) -> Verdict:
    """What a gate of these runs says, whose head is worse by these factors: stage after stage, as `gate run` does."""
    verdict: Verdict = "UNDECIDED"
    sizes = stage_sizes(policy)
    for number in range(1, len(sizes) + 1):
        count = sum(sizes[:number])
        base = Samples({name: sides[0][:count].tolist() for name, sides in draw.items()})
        head = Samples(
            {name: (sides[1][:count] * worse.get(name, 1.0)).tolist() for name, sides in draw.items()}
        )
        stage = Stage(number, len(sizes))
        verdict = decide(base, head, policy, method="", stored=False, stage=stage).verdict
        if verdict != "UNDECIDED":
            break
    return verdict


def _recommendation(plans: Sequence[Plan]) -> tuple[int | None, float | None]:
    """The fewest runs that catch twice the allowed regression; where none do, the most runs, and a threshold to suit.

    The threshold is then what noise adds to the smallest change caught, to the next half percent.
    """
    for plan in plans:
        if all(found is not None and found <= 2 * plan.max_regression for found in plan.detectable.values()):
            return plan.runs, plan.max_regression
    if not plans or any(found is None for found in plans[-1].detectable.values()):
        return None, None
    last = plans[-1]
    added = max(found or 0.0 for found in last.detectable.values()) - last.max_regression
    return last.runs, max(last.max_regression, math.ceil(added * 200 - 1e-9) / 200)


def _caveats(noise: Sequence[Noise], missing: Sequence[str], trials: int) -> list[str]:
    """What these runs cannot tell."""
    caveats = [f"no usable values of {name}: nothing is said of it" for name in missing]
    if noise:
        runs = min(item.runs for item in noise)
        factor = _uncertainty(runs)
        known = f"by a factor of {factor:.1f}" if factor is not None else "by any factor"
        caveats += [
            f"a spread from {runs} runs may be off {known} either way (95 %), and with it all that follows from it",
            f"what disturbs fewer than 1 in {max(1, runs // 3)} runs was probably not seen",
            "another day, other neighbours or another temperature of this machine were not seen at all",
            f"false-alarm rates are shares of {trials} gates drawn from the same {runs} runs",
        ]
    caveats += [
        f"{item.name} drifted by {100 * item.drift:+.1f} % while the runs were made (p = {item.drift_p:.2g}): taking "
        "turns cancels that, a stored baseline does not; here it counts as noise"
        for item in noise
        if item.drift_p < 0.05
    ]
    caveats += [
        f"{item.name} never varied: any steady change of it is caught, as far as these runs go"
        for item in noise
        if item.range == 0
    ]
    return caveats


def _uncertainty(runs: int) -> float | None:
    """Factor by which a robust spread may be off, 95 %: two standard errors of its logarithm.

    The median absolute deviation of normal noise has an efficiency of 0.37 (Rousseeuw and Croux, J. Amer. Statist.
    Assoc. 88 (1993) 1273-1283), so that the standard error is sqrt(1 / (2 * 0.37 * (runs - 1))).
    """
    return math.exp(2 / math.sqrt(2 * 0.37 * (runs - 1))) if runs > 2 else None


def _upper_bound(failed: int, trials: int) -> float:
    """Upper end of the 95 % interval of a share (Wilson, J. Amer. Statist. Assoc. 22 (1927) 209-212)."""
    z, share = 1.96, failed / trials
    middle = share + z * z / (2 * trials)
    return min(
        1.0,
        (middle + z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials)))
        / (1 + z * z / trials),
    )


def _threshold(asked: MetricPolicy) -> float:
    return asked.max_regression or 0.0
