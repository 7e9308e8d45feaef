"""Columns of numbers: joined without copies where they can be, without memory where they hold one value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.int32]


class GrowingColumn:
    """A column that rows are added to. While all its values are equal it keeps only that value.

    It grows in place: pieces to be joined at the end would leave the heap full of holes.
    """

    def __init__(self, dtype: type[np.generic]) -> None:
        self._values = np.empty(0, dtype=dtype)
        self._length = 0
        self._constant: npt.NDArray[Any] | None = None

    def extend(self, values: npt.NDArray[Any], count: int) -> None:
        """Add `count` values: an array of them, or one value for all."""
        if not count:
            return
        first = values.reshape(-1)[:1].copy()
        is_constant = values.ndim == 0 or bool((values == first).all())
        if is_constant and (not self._length or (self._constant is not None and self._constant == first)):
            self._constant, self._length = first, self._length + count
            return
        if self._constant is not None:
            self._reserve(self._length)
            self._values[: self._length] = self._constant
            self._constant = None
        self._reserve(self._length + count)
        self._values[self._length : self._length + count] = values
        self._length += count

    def take(self) -> npt.NDArray[Any]:
        """Everything added; the column is empty afterwards."""
        if self._constant is not None:
            taken = np.broadcast_to(self._constant.reshape(()), self._length)
        else:
            self._values.resize(self._length, refcheck=False)
            taken = self._values
        self._values, self._length, self._constant = np.empty(0, dtype=taken.dtype), 0, None
        return taken

    def _reserve(self, length: int) -> None:
        if length > len(self._values):
            self._values.resize(max(length, 1024, len(self._values) * 5 // 4), refcheck=False)


def constant(values: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """The one value of a column that is a view of it; None for a column with values of its own."""
    return values[:1].reshape(()) if len(values) and values.strides == (0,) else None


def join(parts: Sequence[npt.NDArray[Any]], dtype: type[np.generic]) -> npt.NDArray[Any]:
    """All parts as one column; a view of one value where every part is one of that value."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return np.empty(0, dtype=dtype)
    if len(parts) == 1:
        return parts[0]
    constants = {int(value) for part in parts if (value := constant(part)) is not None}
    if len(constants) == 1 and all(constant(part) is not None for part in parts):
        return np.broadcast_to(parts[0][:1].reshape(()), sum(map(len, parts)))
    return np.concatenate(parts)


def merge_labels(
    labels: Sequence[tuple[Any, ...]], codes: Sequence[Codes]
) -> tuple[tuple[Any, ...], list[Codes]]:
    """The distinct labels of all parts in order, and each part's codes for them; the code -1 is no label."""
    merged: dict[Any, int] = {}
    recoded = []
    for part_labels, part_codes in zip(labels, codes, strict=True):
        mapping = np.array([merged.setdefault(label, len(merged)) for label in part_labels], dtype=np.int32)
        if not len(part_labels) or bool((mapping == np.arange(len(mapping))).all()):
            recoded.append(part_codes)
        elif (value := constant(part_codes)) is not None:
            code = value if value < 0 else mapping[value]
            recoded.append(np.broadcast_to(code, len(part_codes)))
        else:
            recoded.append(np.append(mapping, np.int32(-1))[part_codes])
    return tuple(merged), recoded
