"""Tables for other programs: `pyarrow.Table`s with typed columns. Needs the extra `parquet`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from analyzers.extras import library
from analyzers.text.tables import CellKind, Column, Table

if TYPE_CHECKING:
    import pyarrow

_UNITS = {CellKind.TIME: "ns", CellKind.SHARE: "1"}


def arrow_table(table: Table) -> pyarrow.Table:
    """The table with null for what is unavailable, its title and notes as metadata.

    Words and figures in writing are utf8, counts int64, numbers, shares (1 is all) and times float64. Times are ns as in
    the JSON, not ms as in the renderings: the column's name and its metadata `unit` say so. Where headings repeat, the
    later ones get a number.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    arrow = library("pyarrow", "parquet", "an Arrow table")

    types = {
        CellKind.TEXT: arrow.utf8(),
        CellKind.FIGURES: arrow.utf8(),
        CellKind.COUNT: arrow.int64(),
        CellKind.NUMBER: arrow.float64(),
        CellKind.TIME: arrow.float64(),
        CellKind.SHARE: arrow.float64(),
    }
    fields = [
        arrow.field(name, types[column.kind], metadata=_metadata(column))
        for name, column in zip(_names(table.columns), table.columns, strict=True)
    ]
    cells = [
        [row[index] if index < len(row) else None for row in table.rows]
        for index in range(len(table.columns))
    ]
    arrays = [arrow.array(values, field.type) for values, field in zip(cells, fields, strict=True)]
    metadata = {"title": table.title, "notes": "\n".join(table.notes)}
    return arrow.Table.from_arrays(arrays, schema=arrow.schema(fields, metadata=metadata))


def _names(columns: Sequence[Column]) -> list[str]:
    """The headings, with the unit of times, each once."""
    seen: Counter[str] = Counter()
    names = []
    for column in columns:
        name = column.heading
        if column.kind is CellKind.TIME:
            name = f"{name.removesuffix(' (ms)')} (ns)"
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name} {seen[name]}")
    return names


def _metadata(column: Column) -> dict[str, str] | None:
    unit = _UNITS.get(column.kind)
    return None if unit is None else {"unit": unit}
