"""Trends as one HTML file, in the style of the report: no network, no script, dark and light."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from analyzers.history.drawing import beyond, drawn_range, named_revisions, tick_labels
from analyzers.history.tables import runs_table
from analyzers.history.trends import LevelStep, Series, Trend, TrendRun, day, figure, minute, with_unit
from analyzers.report.html.axes import LEFT, RIGHT, WIDTH, Scale, picture, y_axis
from analyzers.report.html.markup import Markup, element, join
from analyzers.report.html.parts import figure as captioned
from analyzers.report.html.parts import head, section, table_markup
from analyzers.text.figures import percent
from analyzers.text.output import write_file

_HEIGHT = 220
_TOP = 26
_NAME_ROOM = 84.0
"""Units between two revisions below the axis."""
_INSET = 14
_TABLE_METRICS = 4
_TRIANGLE = 5


def render_history(drawn: Sequence[tuple[Series, Sequence[Trend]]], title: str) -> str:
    """A page with a section a series: a chart a metric, what stepped, and every run."""
    links = [element("a", series.name, href=f"#{series.id}") for series, _ in drawn]
    runs = sum(len(series.entries) for series, _ in drawn)
    about = f"{runs} runs in {len(drawn)} series; every run is a point, in order of time"
    body = element(
        "body",
        element("header", element("h1", title), element("p", about, class_="about"), element("nav", *links)),
        element("main", *(_series(series, trends) for series, trends in drawn)),
        element("footer", "dsv4bench history: trends, not verdicts; `dsv4bench gate` judges a change"),
    )
    return "<!doctype html>\n" + element("html", head(title), body, lang="en").html + "\n"


def write_history(path: Path, drawn: Sequence[tuple[Series, Sequence[Trend]]]) -> None:
    """Write that page; a metric that no run of a series has is left out of it.

    Raises:
        UnusableInputError: the file cannot be written.
    """
    having = [(series, [trend for trend in trends if trend.runs]) for series, trends in drawn]
    write_file(path, render_history(having, "History"), "--html")


def _series(series: Series, trends: Sequence[Trend]) -> Markup:
    content = [element("p", series.title, class_="note")]
    steps = [_step_item(trend, step) for trend in trends for step in trend.steps]
    if steps:
        content.append(element("ul", *steps, class_="findings"))
    else:
        content.append(element("p", "No metric stepped from one level to another.", class_="note"))
    content += [captioned(_caption(trend), trend_chart(trend)) for trend in trends if trend.runs]
    # A table has room for a few metrics: those that stepped before those that did not.
    chosen = sorted(range(len(trends)), key=lambda index: not trends[index].steps)[:_TABLE_METRICS]
    shown = [trends[index] for index in sorted(chosen)]
    content.append(element("div", table_markup(runs_table(series, shown, "Runs")), class_="runs"))
    return section(series.id, series.name, content)


def _step_item(trend: Trend, step: LevelStep) -> Markup:
    return element(
        "li",
        element("span", "better" if step.better else "worse", class_="severity"),
        element("strong", f"{trend.metric} {_change(step)}".strip()),
        element("p", step.text),
        class_="finding info" if step.better else "finding warning",
    )


def _caption(trend: Trend) -> str:
    unit = f", {trend.unit}" if trend.unit else ""
    better = "higher" if trend.higher_is_better else "lower"
    low, high = drawn_range(trend)
    far = beyond(trend, low, high)
    more = f"; {len(far)} beyond what is drawn: {', '.join(map(figure, far[:4]))}" if far else ""
    more += f"; {len(trend.without_figure)} runs without it" if trend.without_figure else ""
    return f"{trend.metric}: {trend.title}{unit} ({better} is better); lines are levels (medians){more}"


def trend_chart(trend: Trend) -> Markup:
    """The runs as points, the levels as lines, a dashed line at each step; revisions below where each begins."""
    low, high = drawn_range(trend)
    bottom = _TOP + _HEIGHT
    up = Scale(low, high, bottom, _TOP)
    last = max(1, len(trend.runs) - 1)
    across = Scale(0, last, LEFT + _INSET, WIDTH - RIGHT - _INSET)
    labels = dict(zip(up.ticks, tick_labels(up.ticks), strict=True))
    marks = [_step_mark(step, across) for step in trend.steps]
    levels = [
        element(
            "line",
            element(
                "title", f"level of {level.end - level.start} runs: {with_unit(level.value, trend.unit)}"
            ),
            x1=across(level.start),
            x2=across(level.end - 1),
            y1=up(level.value),
            y2=up(level.value),
            class_="curve",
        )
        for level in trend.levels
    ]
    points = [_point(run, across(index), up, trend.unit) for index, run in enumerate(trend.runs)]
    return picture(
        bottom + 38,
        f"{trend.metric} of {len(trend.runs)} runs",
        y_axis(up, trend.unit, labels.__getitem__),
        *marks,
        *levels,
        *points,
        *_revisions(trend, across, bottom),
    )


def _step_mark(step: LevelStep, across: Scale) -> Markup:
    x = (across(step.run - 1) + across(step.run)) / 2
    return join(
        element("line", element("title", step.text), x1=x, x2=x, y1=_TOP, y2=_TOP + _HEIGHT, class_="mark"),
        element("text", _change(step), x=x, y=_TOP - 8, class_="middle"),
    )


def _point(run: TrendRun, x: float, up: Scale, unit: str) -> Markup:
    tip = f"{run.label}, {minute(run.started_ns)}: {with_unit(run.value, unit)}"
    title = element("title", f"{tip}; {run.note}" if run.note else tip)
    y = up(run.value)
    if up.low <= run.value <= up.high:
        return element("circle", title, cx=x, cy=y, r=3.5, class_="point")
    outward = -_TRIANGLE if run.value > up.high else _TRIANGLE
    corners = f"{x - _TRIANGLE:.1f},{y - outward:.1f} {x + _TRIANGLE:.1f},{y - outward:.1f} {x:.1f},{y + outward:.1f}"
    return element("polygon", title, points=corners, class_="markpoint")


def _revisions(trend: Trend, across: Scale, bottom: float) -> list[Markup]:
    """The revisions that have room, and the dates of the first and the last run."""
    names = []
    for index in named_revisions(trend, across, _NAME_ROOM):
        x = across(index)
        names.append(element("line", x1=x, x2=x, y1=bottom, y2=bottom + 4, class_="grid"))
        names.append(element("text", trend.runs[index].label, x=x, y=bottom + 16, class_="tick middle"))
    first, last = day(trend.runs[0].started_ns), day(trend.runs[-1].started_ns)
    names.append(element("text", first, x=LEFT, y=bottom + 33, class_="axis"))
    if last != first:
        names.append(element("text", last, x=WIDTH - RIGHT, y=bottom + 33, class_="axis end"))
    return names


def _change(step: LevelStep) -> str:
    return "" if step.change is None else percent(step.change, signed=True)
