"""Step records: how long each rank took in each step, `{"step": 3, "ms": {"0": 10.2, "1": 11.0}}` a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from analyzers.readers.files import OpenedFile
from analyzers.readers.observations.observation import Figure, Observation, ObservedFile, report_of
from analyzers.readers.observations.records import (
    BadRecordError,
    Record,
    first_record,
    number,
    read_records,
)
from analyzers.statistics.counts import STABLE_SHARE, smallest_p_value, uniform_test
from analyzers.text.words import counted

KIND = "rank steps"
STRAGGLER_P_VALUE = 0.01
_STEPS_SHOWN = 20


class RankStepFigure(Figure):
    """Over the steps that every rank has."""

    STEP_SKEW = "median step skew", "ms"
    STABILITY = "culprit stability"
    """The share of the steps with one slowest rank in which it is the rank that most often is."""


def looks_like(opened: OpenedFile) -> bool:
    """Whether the first record is a step with times of ranks."""
    return _is_step(first_record(opened))


def read(opened: OpenedFile) -> ObservedFile:
    """Who is slowest in each step, and whether it is always the same rank."""
    steps = read_records(opened, _is_step, _rank_times)
    observation = _measure(opened.name, steps)
    return ObservedFile(observation, report_of(opened.name, observation.n, opened.issues))


def _is_step(record: Record) -> bool:
    return "step" in record and isinstance(record.get("ms"), dict)


def _rank_times(record: Record) -> dict[str, float]:
    times = record.get("ms")
    if not isinstance(times, dict) or not times:
        raise BadRecordError("no times of ranks")
    return {rank: number(time) for rank, time in times.items()}


def _measure(path: str, steps: Sequence[dict[str, float]]) -> Observation:
    ranks = sorted({rank for step in steps for rank in step}, key=lambda rank: (len(rank), rank))
    whole = [step for step in steps if len(step) == len(ranks) > 1]
    slowest = Counter(rank for step in whole if (rank := _slowest(step)) is not None)
    skews = [max(step.values()) - min(step.values()) for step in whole]
    figures: dict[str, float | None] = {
        RankStepFigure.STEP_SKEW: median(skews) if skews else None,
        RankStepFigure.STABILITY: max(slowest.values()) / slowest.total() if slowest else None,
    }
    notes = []
    if len(whole) < len(steps):
        notes.append(f"{counted(len(steps) - len(whole), 'step')} without every rank left out")
    notes += _straggler(slowest, ranks, len(whole))
    shown = [_slowest(step) for step in whole[:_STEPS_SHOWN]]
    if shown:
        more = f" and {len(whole) - len(shown)} more" if len(whole) > len(shown) else ""
        notes.append(f"slowest by step: {', '.join(rank or 'several' for rank in shown)}{more}")
    return Observation(path, KIND, len(steps), figures, notes)


def _straggler(slowest: Counter[str], ranks: Sequence[str], steps: int) -> list[str]:
    """Whether one rank is slowest too often for chance."""
    test = uniform_test([slowest[rank] for rank in ranks]) if slowest else None
    if test is None:
        return []
    rank, count = slowest.most_common(1)[0]
    if test.p_value < STRAGGLER_P_VALUE:
        return [
            f"persistent straggler: rank {rank}, slowest in {count} of {steps} steps, p = {test.p_value:.2g}"
        ]
    total, least = slowest.total(), smallest_p_value(slowest.total(), len(ranks))
    # With few steps, one that is slowest in most of them may or may not be persistent; with none in most, none is.
    if count > (STABLE_SHARE if least < STRAGGLER_P_VALUE else 0.5) * total:
        return [
            f"too few steps to tell whether one rank is slow: rank {rank}, slowest in {count} of {total}"
            f" (p = {test.p_value:.2g}, {test.method})"
        ]
    return [
        f"no persistent straggler: no rank is slowest in more than {100 * count / slowest.total():.0f}% of the steps"
        f" (p = {test.p_value:.2g}, {test.method})"
    ]


def _slowest(step: dict[str, float]) -> str | None:
    """The rank that took longest; None where several did."""
    most = [rank for rank, time in step.items() if time == max(step.values())]
    return most[0] if len(most) == 1 else None
