"""Tables as values: typed columns and rows of figures. How they look is the business of whoever draws them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from analyzers.frames import data_frame
from analyzers.text.figures import UNAVAILABLE, number, percent

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Cell = str | int | float | None
"""A value of the kind that its column says; None where it is unavailable."""

Row = Sequence[Cell]
"""Cells; one that is shorter than the columns of its table leaves the last of them empty."""


class CellKind(Enum):
    """What the cells of a column are."""

    TEXT = "text"
    """Words, which stand on the left and may wrap."""

    FIGURES = "figures"
    """Figures that no one number can hold, in writing: `3 of 4`, or rows of different units."""

    COUNT = "count"
    """Whole numbers: of things, of ranks and devices, of points in time in ns."""

    NUMBER = "number"
    """Floating-point numbers of any unit."""

    TIME = "time"
    """Times in ns, written in ms."""

    SHARE = "share"
    """Parts of a whole, 1 for all of it, written as percentages."""


_WRITTEN: dict[CellKind, Callable[[Any], str]] = {
    CellKind.TEXT: str,
    CellKind.FIGURES: str,
    CellKind.COUNT: str,
    CellKind.NUMBER: lambda value: number(value, 1),
    CellKind.TIME: number,
    CellKind.SHARE: percent,
}


@dataclass(frozen=True)
class Column:
    """A heading, and what stands below it."""

    heading: str
    kind: CellKind = CellKind.TEXT
    write: Callable[[Any], str] | None = None
    """How a value is written, where that is not the way of its kind."""

    absent: str = UNAVAILABLE
    """What stands for a value that is None."""

    dispensable: int = 0
    """Where room is short columns are left out, 1 first, then 2, and so on; 0 never."""

    @property
    def is_text(self) -> bool:
        """Whether it holds words, which stand on the left and may wrap, rather than numbers, which must not."""
        return self.kind is CellKind.TEXT

    def written(self, value: Cell) -> str:
        """A value as text."""
        return self.absent if value is None else (self.write or _WRITTEN[self.kind])(value)


@dataclass(frozen=True)
class Table:
    """One table; `notes` stand below it."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    notes: list[str] = field(default_factory=list)

    def to_arrow(self) -> pa.Table:
        """The table as an Arrow table: typed columns, times in ns, null for what is unavailable (docs/python.md).

        Raises:
            MissingExtraError: pyarrow is not installed.
        """
        from analyzers.text.arrow import arrow_table

        return arrow_table(self)

    def to_pandas(self) -> pd.DataFrame:
        """The table as a data frame: the columns of `to_arrow`.

        Raises:
            MissingExtraError: pandas or pyarrow is not installed.
        """
        return data_frame(self.to_arrow)

    def written(self) -> list[list[str]]:
        """The rows as text, each as long as the columns."""
        return [
            [
                column.written(row[index]) if index < len(row) else ""
                for index, column in enumerate(self.columns)
            ]
            for row in self.rows
        ]
