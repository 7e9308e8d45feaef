"""Complete events ("X") as columns, many at a time: what the fast path spends its time on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from analyzers.readers.chrome_events import Event, nanoseconds
from analyzers.table.arguments import LENIENT_JSON
from analyzers.table.identity import IdCodes
from analyzers.table.spans import ABSENT, Int64s, Mask, as_id

_LARGEST_US = 2**62 // 1000
_NO_ARGUMENTS = (b"", b"{}", b"null")


class _ArgumentIds(msgspec.Struct, gc=False):
    """The arguments that are ids; all others are skipped, and decoded when somebody asks for them."""

    step_id: Any = msgspec.UNSET
    slot: Any = msgspec.UNSET
    buffer_slot: Any = msgspec.UNSET
    dispatch_id: Any = msgspec.UNSET
    generation: Any = msgspec.UNSET
    run_id: Any = msgspec.UNSET
    run_epoch: Any = msgspec.UNSET
    worker_id: Any = msgspec.UNSET
    rank: Any = msgspec.UNSET
    failed: Any = None


_NUMBERS = ("worker_id", "rank")
"""Arguments that count something; what is no integer is none of them."""

_PAIRING = ("step_id", "dispatch_id")
"""Ids that pair submits with waits: one that is given and cannot be used is worth a word."""

_NO_VALUE = -(2**63)
"""Stands for an argument that is not given while a column is made; given, it is no integer from 0 up."""

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


def argument_columns(arguments: Sequence[bytes], ids: IdCodes) -> dict[str, Int64s | int]:
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
    if any(value is not msgspec.UNSET for value in columns["slot"]):
        slots = tuple(
            buffer if own is msgspec.UNSET else own
            for own, buffer in zip(columns["slot"], slots, strict=True)
        )
    filled: dict[str, Int64s | int] = {}
    unusable: Mask = np.zeros(len(arguments), dtype=np.bool_)
    for column, values in {**columns, "slot": slots}.items():
        plain = _plain_integers(values)
        if plain is None:
            plain = np.array(
                [_code(value, None if column in _NUMBERS else ids) for value in values], dtype=np.int64
            )
            if column in _PAIRING:
                given = np.array([value is not msgspec.UNSET for value in values], dtype=np.bool_)
                unusable |= given & (plain == ABSENT)
        filled[column] = plain
    return {
        **filled,
        "failed": np.array([value is True for value in failed], dtype=np.int64),
        "unusable_id": unusable.astype(np.int64) if unusable.any() else 0,
    }


def ids_of_event(arguments: dict[str, Any], ids: IdCodes) -> dict[str, Any]:
    """What `argument_columns` says, of the arguments of one event."""
    known = {field: arguments.get(field, msgspec.UNSET) for field in _FIELDS}
    buffer_slot = known.pop("buffer_slot")
    if known["slot"] is msgspec.UNSET:
        known["slot"] = buffer_slot
    failed = known.pop("failed") is True
    found = {field: _code(value, None if field in _NUMBERS else ids) for field, value in known.items()}
    unusable = any(known[field] is not msgspec.UNSET and found[field] == ABSENT for field in _PAIRING)
    return {**found, "failed": failed, "unusable_id": unusable}


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


def _plain_integers(values: Sequence[Any]) -> Int64s | int | None:
    """A column of integers from 0 up, ABSENT where there is none; None where some value is anything else."""
    types = list(map(type, values))
    kinds = set(types)
    if kinds == {msgspec.UnsetType}:
        return ABSENT
    if not kinds <= {int, msgspec.UnsetType}:
        return None
    if len(kinds) > 1:
        values = [_NO_VALUE if value is msgspec.UNSET else value for value in values]
    try:
        column = np.array(values, dtype=np.int64)
    except OverflowError:
        return None
    none = column == _NO_VALUE
    column[none] = ABSENT
    not_given = len(types) - types.count(int)
    return column if np.count_nonzero(column < 0) == np.count_nonzero(none) == not_given else None


def _code(value: Any, ids: IdCodes | None) -> int:
    if value is msgspec.UNSET:
        return ABSENT
    if ids is None:
        return as_id(value)
    code = ids.code(value)
    return ABSENT if code is None else code


def has_arguments(arguments: Sequence[bytes]) -> Sequence[bool]:
    """Which events have arguments."""
    return [text not in _NO_ARGUMENTS for text in arguments]
