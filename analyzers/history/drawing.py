"""What a trend's drawings share: the range of values that they show, and which revisions they name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from analyzers.history.trends import Trend

_FAR_SIGMA = 8.0
"""Runs farther than this from their level are drawn at the edge: one of them would flatten all others."""

_NORMAL_QUARTILE = 0.6744897501960817
_MARGIN = 0.08


def drawn_range(trend: Trend) -> tuple[float, float]:
    """Lowest and highest value that a drawing shows: every level, and every run but the far outliers."""
    values = np.array([run.value for run in trend.runs])
    distance = np.abs(values - np.array([run.level for run in trend.runs]))
    sigma = float(np.median(distance)) / _NORMAL_QUARTILE
    near = distance <= _FAR_SIGMA * sigma if sigma > 0 else np.ones(len(values), dtype=np.bool_)
    shown = [*values[near].tolist(), *(level.value for level in trend.levels)]
    low, high = min(shown), max(shown)
    margin = _MARGIN * (high - low) or abs(high) * _MARGIN or 1.0
    return low - margin, high + margin


def named_revisions(trend: Trend, place: Callable[[int], float], room: float) -> list[int]:
    """Runs whose revision has room below the axis: those of the steps first, then wherever the revision changes.

    `place` gives the position of a run; two names are at least `room` apart.
    """
    changes = [
        index
        for index, run in enumerate(trend.runs)
        if index == 0 or run.label != trend.runs[index - 1].label
    ]
    named: list[int] = []
    for index in [*(step.run for step in trend.steps), *changes]:
        if all(abs(place(index) - place(other)) >= room for other in named):
            named.append(index)
    return sorted(named)


def beyond(trend: Trend, low: float, high: float) -> list[float]:
    """The values that lie outside of what is drawn."""
    return [run.value for run in trend.runs if not low <= run.value <= high]


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """Round values with as many decimals as the finest of them needs."""
    for decimals in range(7):
        texts = [f"{tick:.{decimals}f}" for tick in ticks]
        if all(
            abs(float(text) - tick) < 1e-9 * max(1.0, abs(tick))
            for text, tick in zip(texts, ticks, strict=True)
        ):
            return texts
    return [f"{tick:.3g}" for tick in ticks]
