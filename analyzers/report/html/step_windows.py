"""A window of steps: a lane for each kind of work and each rank, bars in the colour of their step."""

from __future__ import annotations

from analyzers.charts.step_windows import StepWindow, WindowLane
from analyzers.report.html.axes import LEFT, RIGHT, WIDTH, Scale, picture, x_axis
from analyzers.report.html.markup import Markup, element, join
from analyzers.text.figures import number

_ROW = 15
_GAP = 5
_COLOURS = 4
_DIGIT = 7
"""Width of a digit of a bar's label."""


def step_window_chart(window: StepWindow) -> Markup:
    """One window of steps."""
    scale = Scale(0, max(1, window.duration_ns), LEFT, WIDTH - RIGHT)
    colours = _colours(window)
    top = 4.0
    lanes = []
    for lane in window.lanes:
        lanes.append(_lane(lane, top, scale, colours))
        top += lane.rows * _ROW + _GAP
    axis = x_axis(scale, 2, top, f"ms from {window.origin_ns} ns of the recording's clock")
    label = f"Timeline of {window.shown} steps of {window.callable}"
    return picture(top + 38, label, axis, *lanes)


def _colours(window: StepWindow) -> dict[int, int]:
    """Neighbouring steps differ: every number takes the next of a few colours."""
    steps = sorted({step for lane in window.lanes for step in lane.number if step is not None})
    return {step: index % _COLOURS for index, step in enumerate(steps)}


def _lane(lane: WindowLane, top: float, scale: Scale, colours: dict[int, int]) -> Markup:
    height = lane.rows * _ROW
    name = lane.kind if lane.rank is None else f"rank {lane.rank}"
    label = element("text", name, x=LEFT - 8, y=top + height / 2 + 4, class_="lane end")
    ground = element(
        "rect", x=LEFT, y=top - 1, width=WIDTH - LEFT - RIGHT, height=height + 1, class_="ground"
    )
    columns = zip(lane.number, lane.row, lane.start_ns, lane.end_ns, strict=True)
    bars = [_bar(lane, bar, top, scale, colours) for bar in columns]
    return join(ground, label, *bars)


def _bar(
    lane: WindowLane,
    bar: tuple[int | None, int, int, int],
    top: float,
    scale: Scale,
    colours: dict[int, int],
) -> Markup:
    of, row, start, end = bar
    left, right = scale(start), scale(end)
    width = max(1.0, right - left)
    y = top + row * _ROW
    colour = "other" if of is None else f"s{colours[of]}"
    what = lane.kind if lane.rank is None else f"rank {lane.rank}, {lane.kind}"
    whose = "of no numbered step" if of is None else f"of {of}"
    tip = f"{what} {whose}: {number(end - start)} ms, from {number(start)} ms"
    drawn = element(
        "rect",
        element("title", tip),
        x=left,
        y=y,
        width=width,
        height=_ROW - 2,
        rx=1.5,
        class_=f"bar {colour}",
    )
    label = "" if of is None else str(of)
    if not label or width < _DIGIT * len(label) + 4:
        return drawn
    return join(
        drawn,
        element("text", label, x=left + width / 2, y=y + _ROW - 5, class_=f"inbar middle {colour}-text"),
    )
