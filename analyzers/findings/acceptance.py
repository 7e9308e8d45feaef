"""Whether drafts are accepted less and less over a run: the Cochran-Armitage test for a trend in proportions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from analyzers.measurement import Measured
from analyzers.readers.request_timing import RequestTiming
from analyzers.report.model import Finding

TREND_P_VALUE = 0.01
LEAST_FALL = 0.05
"""A fall of fewer points than this between the first and the last third is of no account."""

LEAST_EVENTS = 30


class Trial(NamedTuple):
    """`accepted` of `proposed` drafts at one time, in ns."""

    time_ns: int
    accepted: int
    proposed: int


class AcceptanceTrend(NamedTuple):
    """The test's figures; `p_value` is one-sided: how likely a fall like this is if nothing changed."""

    first_third: float
    last_third: float
    z: float
    p_value: float


def acceptance_fell(measured: Measured) -> Iterable[Finding]:
    """The finding that acceptance fell over the measured requests, where it did."""
    requests = [timing for timing in measured.recording.requests if timing.phase == "measured"]
    trials = acceptance_trials(requests)
    trend = falling_trend(trials)
    if trend is None or trend.p_value >= TREND_P_VALUE:
        return
    if trend.first_third - trend.last_third < LEAST_FALL:
        return
    yield Finding(
        "acceptance_fell",
        "warning",
        f"MTP acceptance fell over the run, from {100 * trend.first_third:.1f} % to {100 * trend.last_third:.1f} %",
        f"first and last third of {len(trials)} request steps; p = {trend.p_value:.2g} (Cochran-Armitage trend)",
        "compare time per step, not time per token: each step commits fewer tokens towards the end",
        figures=trend._asdict(),
    )


def acceptance_trials(timings: Sequence[RequestTiming]) -> list[Trial]:
    """One trial an output event of a request: all its tokens but one are accepted drafts.

    A request's first event comes from its prefill and its last one may be cut at its end: neither counts. Requests whose
    steps did not all offer equally many drafts are left out.
    """
    trials = []
    for timing in timings:
        if not timing.is_whole or not timing.chunks or not timing.steps or not timing.proposed:
            continue
        drafts, uneven = divmod(timing.proposed, timing.steps)
        if uneven or any(tokens > 1 + drafts for _, tokens in timing.chunks[1:]):
            continue
        trials += [Trial(time, tokens - 1, drafts) for time, tokens in timing.chunks[1:-1] if tokens > 0]
    return sorted(trials)


def falling_trend(trials: Sequence[Trial]) -> AcceptanceTrend | None:
    """Cochran-Armitage with the times as scores; None for too few trials, or ones that vary in nothing.

    T = sum (t - mean t)(accepted - proposed p), Var T = p (1 - p) sum proposed (t - mean t)^2, z = T / sqrt(Var T),
    p over all trials and mean t weighted by proposed.
    """
    proposed = sum(trial.proposed for trial in trials)
    if len(trials) < LEAST_EVENTS or not proposed:
        return None
    rate = sum(trial.accepted for trial in trials) / proposed
    origin = trials[0].time_ns
    centre = sum((trial.time_ns - origin) * trial.proposed for trial in trials) / proposed
    statistic = variance = 0.0
    for trial in trials:
        offset = trial.time_ns - origin - centre
        statistic += offset * (trial.accepted - trial.proposed * rate)
        variance += rate * (1 - rate) * trial.proposed * offset**2
    if variance <= 0:
        return None
    z = statistic / math.sqrt(variance)
    third = len(trials) // 3
    return AcceptanceTrend(
        _rate(trials[:third]), _rate(trials[-third:]), z, 0.5 * math.erfc(-z / math.sqrt(2))
    )


def _rate(trials: Sequence[Trial]) -> float:
    return sum(trial.accepted for trial in trials) / sum(trial.proposed for trial in trials)
