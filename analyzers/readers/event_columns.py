"""Complete events ("X") as columns, many at a time: what the fast path spends its time on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from analyzers.readers.chrome_events import Event, nanoseconds
from analyzers.table.arguments import LENIENT_JSON
from analyzers.table.spans import ABSENT, Int64s, as_id

_LARGEST_US = 2**62 // 1000
_NO_ARGUMENTS = (b"", b"{}", b"null")


class _ArgumentIds(msgspec.Struct, gc=False):
    """The arguments that are ids; all others are skipped, and decoded when somebody asks for them."""

    step_id: Any = None
    slot: Any = None
    buffer_slot: Any = None
    dispatch_id: Any = None
    generation: Any = None
    run_id: Any = None
    run_epoch: Any = None
    worker_id: Any = None
    rank: Any = None
    failed: Any = None


_FIELDS = _ArgumentIds.__struct_fields__
_NO_IDS = _ArgumentIds()
_ids = msgspec.json.Decoder(_ArgumentIds)


class NotOrdinaryError(Exception):
    """Some event has fields of an unusual type or value: the events must be read one by one."""


def text_column(values: Sequence[Any]) -> Sequence[str]:
    """Names or categories; a missing one is "".

    Raises:
        NotOrdinaryError: one is no string.
    """
    kinds = set(map(type, values))
    if kinds == {str}:
        return values
    if kinds <= {str, type(None)}:
        return [value or "" for value in values]
    raise NotOrdinaryError


def lane_labels(events: Sequence[Event]) -> list[tuple[int | str, int | str]]:
    """(pid, tid) of each event.

    Raises:
        NotOrdinaryError: one is missing, or neither an integer nor a string.
    """
    labels = [(event.pid, event.tid) for event in events]
    if {kind for label in set(labels_types(labels)) for kind in label} <= {int, str}:
        return labels
    raise NotOrdinaryError


def labels_types(labels: Iterable[tuple[Any, Any]]) -> Iterable[tuple[type, type]]:
    """The types in each pair of labels."""
    return ((type(first), type(second)) for first, second in labels)


def time_column(raws: Iterable[msgspec.Raw]) -> Int64s:
    """Times in us as exact ns.

    Raises:
        NotOrdinaryError: one is no number or out of range.
    """
    texts = list(map(bytes, raws))
    try:
        whole = list(map(int, texts))
    except ValueError:
        return np.array([_exact(text) for text in texts], dtype=np.int64)
    if whole and (max(whole) > _LARGEST_US or min(whole) < -_LARGEST_US):
        raise NotOrdinaryError
    return np.array(whole, dtype=np.int64) * 1000


def _exact(text: bytes) -> int:
    whole, _, fraction = text.partition(b".")
    if whole.isdigit() and len(whole) < 16 and fraction.isdigit() and len(fraction) < 4:
        return int(whole) * 1000 + int(fraction.ljust(3, b"0"))
    value = nanoseconds(msgspec.Raw(text))
    if value is None:
        raise NotOrdinaryError
    return value


def argument_columns(arguments: Sequence[bytes]) -> dict[str, Int64s | int]:
    """The columns that arguments fill: ids, the rank an event claims for itself, whether its dispatch failed.

    Raises:
        NotOrdinaryError: some arguments are no object.
    """
    try:
        found = [_NO_IDS if text in _NO_ARGUMENTS else _ids.decode(text) for text in arguments]
    except (msgspec.DecodeError, RecursionError, ValueError):
        found = [_NO_IDS if text in _NO_ARGUMENTS else _lenient_ids(text) for text in arguments]
    columns = dict(zip(_FIELDS, zip(*map(msgspec.structs.astuple, found), strict=True), strict=True))
    slots, failed = columns.pop("buffer_slot"), columns.pop("failed")
    if any(value is not None for value in columns["slot"]):
        slots = tuple(
            buffer if own is None else own for own, buffer in zip(columns["slot"], slots, strict=True)
        )
    found_ids = {column: _id_column(values) for column, values in {**columns, "slot": slots}.items()}
    return {**found_ids, "failed": np.array([value is True for value in failed], dtype=np.int64)}


def _lenient_ids(text: bytes) -> _ArgumentIds:
    """The ids in arguments of which some other may be JSON that only Python reads, such as NaN."""
    try:
        return _ids.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        pass
    try:
        values = LENIENT_JSON.decode(text.decode(errors="replace"))
    except (RecursionError, ValueError) as error:
        raise NotOrdinaryError from error
    if not isinstance(values, dict):
        raise NotOrdinaryError
    return _ArgumentIds(**{key: values[key] for key in _FIELDS if key in values})


def _id_column(values: Sequence[Any]) -> Int64s | int:
    kinds = set(map(type, values))
    if kinds == {type(None)}:
        return ABSENT
    if kinds <= {int, type(None)}:
        integers = values if kinds == {int} else [ABSENT if value is None else value for value in values]
        try:
            return np.array(integers, dtype=np.int64)
        except OverflowError:
            pass
    return np.array([as_id(value) for value in values], dtype=np.int64)


def has_arguments(arguments: Sequence[bytes]) -> Sequence[bool]:
    """Which events have arguments."""
    return [text not in _NO_ARGUMENTS for text in arguments]
