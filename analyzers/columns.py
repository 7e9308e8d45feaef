"""Columns of numbers: joined without copies where they can be, without memory where they hold one value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.int32]


def constant(values: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """The one value of a column that is a view of it; None for a column with values of its own."""
    return values[:1].reshape(()) if len(values) and values.strides == (0,) else None


def compact(values: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """`values`, or a view of their one value where they are all equal."""
    if values.ndim and len(values) and bool((values == values[0]).all()):
        values = values[:1].copy().reshape(())
    return values if values.ndim else np.broadcast_to(values, count)


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
