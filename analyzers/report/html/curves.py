"""Figures over time and as distributions."""

from __future__ import annotations

from analyzers.charts.series import Distribution, StepLatency
from analyzers.report.html.axes import (
    HALF,
    LEFT,
    RIGHT,
    WIDTH,
    Scale,
    picture,
    round_steps,
    value_scale,
    x_axis,
    y_axis,
)
from analyzers.report.html.markup import Markup, element, join
from analyzers.text.figures import number, percent

_HEIGHT = 190
_TOP = 10


def latency_chart(series: StepLatency) -> Markup:
    """Latency of every step in order; a bar from least to greatest where a point stands for several steps."""
    scale = value_scale([*series.min_ns, *series.max_ns], _TOP + _HEIGHT, _TOP, from_zero=True)
    across = Scale(0, max(1, series.steps - 1), LEFT + 6, WIDTH - RIGHT - 6)
    points = []
    for index, first in enumerate(series.first_step):
        last = min(first + series.steps_per_point, series.steps) - 1
        points.append(_point(series, index, (first, last), across((first + last) / 2), scale))
    bottom = _TOP + _HEIGHT
    ticks = [
        element("text", f"{tick:.0f}", x=across(tick), y=bottom + 15, class_="tick middle")
        for tick in round_steps(0, max(1, series.steps - 1))
        if tick == int(tick)
    ]
    middle = (LEFT + WIDTH - RIGHT) / 2
    what = unit_of(series)
    axis = element("text", f"{what}, in order from 0", x=middle, y=bottom + 31, class_="axis middle")
    label = f"{series.figure} of the {what}s of {series.callable}"
    y_title = "ms, log scale" if scale.logarithmic else "ms"
    return picture(bottom + 38, label, y_axis(scale, y_title), *ticks, axis, *points)


def unit_of(series: StepLatency) -> str:
    """What its points count: rounds where no lifecycle tells of steps."""
    return "step" if series.figure == "submit_to_completion" else "round"


def _point(series: StepLatency, index: int, steps: tuple[int, int], x: float, scale: Scale) -> Markup:
    low, median, high = series.min_ns[index], series.median_ns[index], series.max_ns[index]
    first, last = steps
    if first == last:
        tip = f"{unit_of(series)} {first}: {number(median)} ms"
        return element("circle", element("title", tip), cx=x, cy=scale(median), r=3, class_="point")
    tip = f"{unit_of(series)}s {first} to {last}: {number(low)} to {number(high)} ms, median {number(median)} ms"
    bar = element("line", element("title", tip), x1=x, x2=x, y1=scale(low), y2=scale(high), class_="range")
    return join(bar, element("circle", element("title", tip), cx=x, cy=scale(median), r=2, class_="point"))


def distribution_chart(distribution: Distribution) -> Markup:
    """The share of values at or below each value, with the percentiles that the sample supports."""
    values = distribution.values_ns
    scale = value_scale(values, LEFT, HALF - RIGHT, from_zero=False)
    up = Scale(0, 1, _TOP + _HEIGHT, _TOP)
    bottom = _TOP + _HEIGHT
    shares = [
        join(
            element("line", x1=LEFT, x2=HALF - RIGHT, y1=up(share), y2=up(share), class_="grid"),
            element("text", percent(share, 0), x=LEFT - 8, y=up(share) + 4, class_="tick end"),
        )
        for share in (0, 0.25, 0.5, 0.75, 1)
    ]
    corners = [f"M{scale(values[0]):.1f} {up(0):.1f}"]
    for index, value in enumerate(values, 1):
        corners.append(f"H{scale(value):.1f}V{up(index / len(values)):.1f}")
    title = "ms, log scale" if scale.logarithmic else "ms"
    label = f"Distribution of {distribution.figure}, {distribution.of}"
    return picture(
        bottom + 38,
        label,
        x_axis(scale, _TOP, bottom, title),
        *shares,
        element("path", d="".join(corners), class_="curve"),
        *_percentiles(distribution, scale, up),
        width=HALF,
    )


def _percentiles(distribution: Distribution, scale: Scale, up: Scale) -> list[Markup]:
    summary = distribution.summary
    marks = []
    for name, share, value in (
        ("p50", 0.5, summary.p50),
        ("p95", 0.95, summary.p95),
        ("p99", 0.99, summary.p99),
    ):
        if value is None:
            continue
        x, y = scale(value), up(share)
        tip = f"{name}: {number(value)} ms"
        marks.append(element("line", x1=x, x2=x, y1=y, y2=up(0), class_="mark"))
        marks.append(element("circle", element("title", tip), cx=x, cy=y, r=4, class_="markpoint"))
    return marks
