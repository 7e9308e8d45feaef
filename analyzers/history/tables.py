"""The history as tables: the series there are, and the runs of a trend."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.gate.metrics import unit_of
from analyzers.history.entry import COMPLETE
from analyzers.history.trends import Series, Trend, day, figure, minute
from analyzers.text.figures import percent
from analyzers.text.tables import Cell, CellKind, Column, Row, Table

_LISTED = {"tpot": "tpot, ms", "throughput": "tokens/s"}
"""Metrics whose last value stands in the list of series, and what the list calls them."""


def series_tables(series: Sequence[Series]) -> list[Table]:
    """A table a machine, a row a series: how many runs, from when to when, and the last complete run's figures."""
    machines: dict[str, list[Series]] = {}
    for entry in series:
        machines.setdefault(entry.machine, []).append(entry)
    columns = [
        Column("id"),
        Column("series"),
        Column("runs", CellKind.FIGURES),
        Column("first", CellKind.FIGURES),
        Column("last", CellKind.FIGURES),
        *(_figures(heading) for heading in _LISTED.values()),
    ]
    tables = [
        Table(machine, columns, [_row(entry) for entry in found]) for machine, found in machines.items()
    ]
    if any(run.status != COMPLETE for entry in series for run in entry.entries):
        tables[-1].notes.append("runs: complete/all")
    return tables


def _figures(heading: str) -> Column:
    return Column(heading, CellKind.NUMBER, figure, absent="-")


def _row(series: Series) -> Row:
    figures = next((run.figures for run in reversed(series.entries) if run.figures), {})
    complete, total = sum(run.status == COMPLETE for run in series.entries), len(series.entries)
    return [
        series.id,
        f"{series.name}, {series.backend}, {series.model}",
        str(total) if complete == total else f"{complete}/{total}",
        day(series.entries[0].started_ns),
        day(series.entries[-1].started_ns),
        *(figures.get(name) for name in _LISTED),
    ]


def runs_table(series: Series, trends: Sequence[Trend], title: str) -> Table:
    """A row a run, also of those that have no figures, with the change against the level before at each step."""
    columns = [
        Column("revision"),
        Column("started (UTC)"),
        Column("status"),
        *(_figures(_titled(trend.metric)) for trend in trends),
        Column("steps"),
        Column("note"),
    ]
    steps: dict[str, list[str]] = {}
    for trend in trends:
        for step in trend.steps:
            change = "" if step.change is None else percent(step.change, signed=True)
            steps.setdefault(step.identity, []).append(f"{trend.metric} {change}".strip())
    rows: list[Row] = []
    for run in series.entries:
        values: list[Cell] = [run.figures.get(trend.metric) for trend in trends]
        rows.append(
            [
                run.label,
                minute(run.started_ns),
                run.status,
                *values,
                ", ".join(steps.get(run.identity, [])),
                run.note,
            ]
        )
    return Table(title, columns, rows)


def _titled(name: str) -> str:
    unit = unit_of(name)
    return f"{name}, {unit}" if unit else name
