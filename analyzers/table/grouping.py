"""Groups of equal values in columns, without a Python object a row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.intp]


def number_groups(*columns: npt.NDArray[Any]) -> Rows:
    """A number for each row, equal where all `columns` are: 0, 1, ... in ascending order of the values."""
    numbers = np.zeros(len(columns[0]), dtype=np.intp)
    for column in columns:
        values, codes = np.unique(column, return_inverse=True)
        # Neither factor exceeds the number of rows, so that their product fits.
        _, numbers = np.unique(numbers * max(1, len(values)) + codes, return_inverse=True)
    return numbers


def split_groups(groups: npt.NDArray[Any]) -> Iterator[Rows]:
    """The rows of each group, in order; groups by their first row."""
    order = np.argsort(groups, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(groups[order])) + 1) if len(order) else []
    yield from sorted(parts, key=lambda rows: int(rows[0]))


def turns(groups: npt.NDArray[Any]) -> Rows:
    """Which one of its group each row is: 0 for the first, 1 for the second, ..."""
    order = np.argsort(groups, kind="stable")
    counted = np.arange(len(groups))
    is_first = np.ones(len(groups), dtype=np.bool_)
    is_first[1:] = np.diff(groups[order]) != 0
    found = np.empty(len(groups), dtype=np.intp)
    found[order] = counted - np.maximum.accumulate(np.where(is_first, counted, 0))
    return found
