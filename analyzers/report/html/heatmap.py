"""The skew heat map: a row a rank, a column a round, the colour how late the rank was."""

from __future__ import annotations

from analyzers.charts.series import LatenessGrid
from analyzers.report.html.axes import LEFT, PLOT, WIDTH, milliseconds, picture, round_steps
from analyzers.report.html.markup import Markup, element, join
from analyzers.text.figures import number

_CLASSES = (1 / 500, 1 / 50, 1 / 5, 1, 10)
"""Upper limits of the colours as multiples of what counts as late: equal colours mean the same in every report."""
_WIDEST = 40


def heatmap(grid: LatenessGrid) -> Markup:
    """Rank x round lateness, with the legend below."""
    columns = len(grid.first_round)
    row_height = 18 if len(grid.ranks) <= 16 else 10
    width = min(PLOT / columns, _WIDEST)
    bottom = 4 + row_height * len(grid.ranks)
    rows = [
        _row(grid, index, 4.0 + row_height * index, row_height, width) for index in range(len(grid.ranks))
    ]
    ticks = [
        element(
            "text",
            str(grid.first_round[column]),
            x=LEFT + width * (column + 0.5),
            y=bottom + 15,
            class_="tick middle",
        )
        for column in _tick_columns(columns, width)
    ]
    axis = element(
        "text", "round, in order from 0", x=LEFT + width * columns / 2, y=bottom + 31, class_="axis middle"
    )
    label = f"Lateness of runner_run {grid.edge} by rank and round, {grid.callable}"
    return picture(bottom + 72, label, *rows, *ticks, axis, _legend(grid.late_ns, bottom + 48))


def _tick_columns(columns: int, width: float) -> list[int]:
    most = max(2, int(columns * width / 60))
    return sorted({int(tick) for tick in round_steps(0, max(1, columns - 1), most) if int(tick) < columns})


def _row(grid: LatenessGrid, index: int, top: float, height: float, width: float) -> Markup:
    rank = grid.ranks[index]
    gap = 1 if width > 5 else 0
    cells = [
        element(
            "rect",
            element("title", _tip(grid, rank, column, value)),
            x=LEFT + width * column,
            y=top,
            width=width - gap,
            height=height - 1,
            class_=f"heat {_class(value, grid.late_ns)}",
        )
        for column, value in enumerate(grid.after_median_ns[index])
    ]
    name = element("text", f"rank {rank}", x=LEFT - 8, y=top + height / 2 + 4, class_="lane end")
    return join(name, *cells)


def _tip(grid: LatenessGrid, rank: int, column: int, value: float | None) -> str:
    first = grid.first_round[column]
    last = min(first + grid.rounds_per_column, grid.rounds) - 1
    where = f"round {first}" if last == first else f"rounds {first} to {last}"
    if value is None:
        return f"rank {rank}, {where}: not complete"
    late = "after" if value >= 0 else "before"
    return f"rank {rank}, {where}: {grid.edge} {number(abs(value))} ms {late} the median"


def _class(value: float | None, late_ns: int) -> str:
    if value is None:
        return "none"
    return f"h{sum(value > limit * late_ns for limit in _CLASSES)}"


def _legend(late_ns: int, top: float) -> Markup:
    limits = [milliseconds(limit * late_ns) for limit in _CLASSES]
    labels = [f"to {limits[0]} ms", *(f"to {limit} ms" for limit in limits[1:]), f"over {limits[-1]} ms"]
    names = [*(f"h{index}" for index in range(len(labels))), "none"]
    each = (WIDTH - LEFT) / (len(names))
    entries = []
    for index, (name, label) in enumerate(zip(names, [*labels, "not complete"], strict=True)):
        x = LEFT + each * index
        entries.append(element("rect", x=x, y=top, width=22, height=13, class_=f"heat {name}"))
        entries.append(element("text", label, x=x + 28, y=top + 11, class_="tick"))
    return join(*entries)
