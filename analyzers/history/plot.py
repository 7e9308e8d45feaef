"""A trend on a terminal: its runs, its levels, and its steps with their revisions; plain text when piped."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from analyzers.history.drawing import beyond, drawn_range, named_revisions, tick_labels
from analyzers.history.trends import LevelStep, Series, Trend, day, with_unit
from analyzers.report.html.axes import Scale, round_steps
from analyzers.text.escapes import printable
from analyzers.text.terminal import print_line

_HEIGHT = 15
_NARROWEST = 24
"""Columns a plot has at least, however narrow the terminal is."""
_TICKS = 5


@dataclass(frozen=True)
class _Signs:
    run: str
    above: str
    below: str
    level: str
    step: str
    axis: str
    tick: str
    corner: str
    foot: str
    mark: str


_UNICODE = _Signs("●", "▲", "▼", "─", "┊", "│", "┤", "└", "─", "┴")
_ASCII = _Signs("o", "^", "v", "-", ":", "|", "+", "+", "-", "+")

_RUN, _LEVEL, _STEP, _QUIET = "cyan", "green", "yellow", "dim"


def plot(series: Series, trend: Trend, console: Console) -> None:
    """Draw one trend as wide as the console is. A trend without a run is a sentence."""
    console.print(Text(printable(series.title), style="bold"))
    better = "higher" if trend.higher_is_better else "lower"
    unit = f", {trend.unit}" if trend.unit else ""
    console.print(Text(f"{trend.metric}: {trend.title}{unit} ({better} is better)"))
    if trend.runs:
        signs = _ASCII if console.options.ascii_only else _UNICODE
        low, high = drawn_range(trend)
        for line in _picture(trend, low, high, console.width, signs):
            console.print(line, no_wrap=True, overflow="crop")
        console.print(
            Text(f"{signs.run} run   {signs.level} level (median)   {signs.step} step", style=_QUIET)
        )
        if far := beyond(trend, low, high):
            values = ", ".join(with_unit(value, trend.unit) for value in far[:4]) + (
                ", ..." if len(far) > 4 else ""
            )
            console.print(Text(f"{len(far)} beyond what is drawn: {values}", style=_QUIET))
    print_steps(trend, console)


def print_steps(trend: Trend, console: Console) -> None:
    """The steps as sentences, or that there is none; and the runs that have no figure."""
    for step in trend.steps:
        print_line(Text(printable(step.text), style=step_style(step)), console)
    if trend.runs and not trend.steps:
        level = with_unit(trend.levels[0].value, trend.unit)
        console.print(Text(f"no step: {len(trend.runs)} runs about {level}"))
    if trend.without_figure:
        runs = ", ".join(printable(run) for run in trend.without_figure)
        print_line(Text(f"without {trend.metric}: {runs}", style=_QUIET), console)
    console.print()


def step_style(step: LevelStep) -> str:
    """Green for a step to the better, red for one to the worse."""
    return "green" if step.better else "bold red"


def _picture(trend: Trend, low: float, high: float, width: int, signs: _Signs) -> list[Text]:
    ticks = [tick for tick in round_steps(low, high, _TICKS) if low <= tick <= high]
    labels = tick_labels(ticks)
    left = max(map(len, labels))
    columns = max(_NARROWEST, width - left - 2)
    across = Scale(0, max(1, len(trend.runs) - 1), 1, columns - 2)
    up = Scale(low, high, _HEIGHT - 1, 0)

    def column(run: int) -> int:
        return round(across(run)) if len(trend.runs) > 1 else columns // 2

    cells = _cells(trend, low, high, up, [column(run) for run in range(len(trend.runs))], columns, signs)
    names = {round(up(tick)): label for tick, label in zip(ticks, labels, strict=True)}
    lines = []
    for row in range(_HEIGHT):
        line = Text(
            f"{names.get(row, ''):>{left}} {signs.tick if row in names else signs.axis}", style=_QUIET
        )
        for sign, style in cells[row]:
            line.append(sign, style=style)
        line.rstrip()
        lines.append(line)
    named = named_revisions(trend, column, max(len(run.label) for run in trend.runs) + 1)
    return [*lines, *_foot(trend, named, [column(run) for run in named], left + 2, columns, signs)]


def _cells(
    trend: Trend, low: float, high: float, up: Scale, places: list[int], columns: int, signs: _Signs
) -> list[list[tuple[str, str]]]:
    """A sign and its style for every cell: runs before levels before steps."""
    cells = [[(" ", "")] * columns for _ in range(_HEIGHT)]
    for step in trend.steps:
        for row in cells:
            row[places[step.run]] = (signs.step, _STEP)
    for level in trend.levels:
        for place in range(places[level.start], places[level.end - 1] + 1):
            cells[round(up(level.value))][place] = (signs.level, _LEVEL)
    for run, place in zip(trend.runs, places, strict=True):
        sign = signs.above if run.value > high else signs.below if run.value < low else signs.run
        cells[round(up(run.value))][place] = (sign, _RUN)
    return cells


def _foot(
    trend: Trend, named: list[int], places: list[int], left: int, columns: int, signs: _Signs
) -> list[Text]:
    """The axis, the revisions below the runs where each begins, and the dates of the first and the last run."""
    axis = [signs.foot] * columns
    for place in places:
        axis[place] = signs.mark
    names = Text(" " * left)
    for run, place in zip(named, places, strict=True):
        label = trend.runs[run].label
        start = max(len(names), min(left + place, left + columns - len(label)))
        names.append(" " * (start - len(names)))
        names.append(label, style=_STEP if any(step.run == run for step in trend.steps) else _QUIET)
    first, last = day(trend.runs[0].started_ns), day(trend.runs[-1].started_ns)
    dates = first if first == last else f"{first}{last:>{columns - len(first) - 2}}"
    return [
        Text(" " * (left - 1) + signs.corner + "".join(axis), style=_QUIET),
        names,
        Text(" " * (left + 1) + dates, style=_QUIET),
    ]
