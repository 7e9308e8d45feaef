"""Scales and axes of the charts: round ticks, in ms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analyzers.report.html.markup import Markup, element, join
from analyzers.text.figures import MILLISECOND

WIDTH = 1000
"""Charts are this wide in their own units; the page scales them."""
LEFT = 92
RIGHT = 16
PLOT = WIDTH - LEFT - RIGHT
HALF = 620
"""Width of the charts that stand two or three in a row."""

_LOG_FROM = 20
"""Values that span more than this ratio are drawn on a logarithmic scale."""


@dataclass(frozen=True)
class Scale:
    """Maps values in [low, high] to [start, end]."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """The place of `value`, at most at the edges."""
        low, high = self.low, self.high
        value = min(max(value, low), high)
        if self.logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(value)
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        """Round values inside the scale."""
        return _decades(self.low, self.high) if self.logarithmic else round_steps(self.low, self.high)


def value_scale(values: Sequence[float], start: float, end: float, *, from_zero: bool) -> Scale:
    """A scale for durations: linear, or logarithmic where a few are many times the others."""
    low, high = min(values), max(values)
    if low > 0 and high / low > _LOG_FROM:
        return Scale(low, high, start, end, logarithmic=True)
    if from_zero:
        return Scale(0, high * 1.05 or 1, start, end)
    margin = (high - low) * 0.04 or abs(high) * 0.05 or 1
    return Scale(max(0, low - margin) if low >= 0 else low - margin, high + margin, start, end)


def round_steps(low: float, high: float, most: int = 6) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten inside [low, high]."""
    if high <= low:
        return [low]
    rough = (high - low) / most
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first = math.ceil(low / step)
    return [index * step for index in range(first, math.floor(high / step) + 1)]


def _decades(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fine = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    inside = [value for value in fine if low <= value <= high]
    return (
        inside
        if len(inside) <= 8
        else [value for value in inside if value in {10.0**power for power in powers}]
    )


def milliseconds(value: float) -> str:
    """Ticks and tool tips: ms with as many decimals as they need."""
    amount = value / MILLISECOND
    return f"{amount:.3f}".rstrip("0").rstrip(".") if abs(amount) < 100 else f"{amount:.0f}"


def x_axis(scale: Scale, top: float, bottom: float, title: str) -> Markup:
    """Vertical grid lines with their values in ms below."""
    lines = [
        join(
            element("line", x1=scale(tick), x2=scale(tick), y1=top, y2=bottom, class_="grid"),
            element("text", milliseconds(tick), x=scale(tick), y=bottom + 15, class_="tick middle"),
        )
        for tick in scale.ticks
    ]
    middle = (scale.start + scale.end) / 2
    return join(*lines, element("text", title, x=middle, y=bottom + 31, class_="axis middle"))


def y_axis(scale: Scale, title: str, label: Callable[[float], str] = milliseconds) -> Markup:
    """Horizontal grid lines with their values on the left: ns in ms, or as `label` puts them."""
    lines = [
        join(
            element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=scale(tick), y2=scale(tick), class_="grid"),
            element("text", label(tick), x=LEFT - 8, y=scale(tick) + 4, class_="tick end"),
        )
        for tick in scale.ticks
    ]
    middle = (scale.start + scale.end) / 2
    turned = f"rotate(-90 16 {middle:.1f})"
    return join(*lines, element("text", title, x=16, y=middle, transform=turned, class_="axis middle"))


def picture(height: float, label: str, *children: Markup, width: int = WIDTH) -> Markup:
    """An SVG that the page scales to the room there is."""
    return element(
        "svg",
        element("title", label),
        *children,
        viewBox=f"0 0 {width} {height:.0f}",
        role="img",
        class_="chart",
    )
