"""Published figures and measured ones as a table, with what keeps them from being compared."""

from __future__ import annotations

from analyzers.report.published import PublishedComparison
from analyzers.text.tables import CellKind, Column, Row, Table

MACHINES_DIFFER = "machines differ: what was published of another system is no target for this one"

_TITLE = "Published beside measured"


def published_table(comparison: PublishedComparison) -> Table:
    """Figure, published value, measured value, unit and source; one row a published figure."""
    rows: list[Row] = [
        [figure.title, figure.published, figure.measured, figure.unit, figure.source]
        for figure in comparison.figures
    ]
    columns = [
        Column("figure"),
        Column(f"published, {comparison.system}".removesuffix(", "), CellKind.NUMBER, _written),
        Column("measured here", CellKind.NUMBER, _written),
        Column("unit"),
        Column("source", dispensable=1),
    ]
    if comparison.problem is not None:
        return Table(_TITLE, columns, rows, [f"unavailable: {comparison.problem}"])
    notes = [f"published: {comparison.source}", MACHINES_DIFFER]
    if comparison.differences:
        notes.append("another workload than the published one: " + "; ".join(comparison.differences))
    notes += [
        f"{figure.title} cannot be measured: {figure.problem}"
        for figure in comparison.figures
        if figure.measured is None and figure.problem is not None
    ]
    return Table(_TITLE, columns, rows, notes)


def _written(value: float) -> str:
    """Whole numbers as they are, others with three decimals."""
    return str(int(value)) if value == int(value) else f"{value:.3f}"
