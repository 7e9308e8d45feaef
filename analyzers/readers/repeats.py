"""Records that a log holds more than once, byte for byte: each is one record, however often it was delivered."""

from __future__ import annotations

import numpy as np

from analyzers.table.spans import ID_COLUMNS, Int64s, Mask, SpanTable

_COLUMNS = ("start_ns", "duration_ns", "lane", "name", "hid", "depth", "invocation", "clock", *ID_COLUMNS)
_MULTIPLIER = 0x9E3779B97F4A7C15


def first_of_each(spans: SpanTable) -> Mask | None:
    """The rows that are not there before, arguments included; None where that is all of them."""
    keys = _keys(spans)
    order = np.argsort(keys, kind="stable")
    equal = np.flatnonzero(keys[order[1:]] == keys[order[:-1]])
    if not len(equal):
        return None
    columns = [getattr(spans, column) for column in dict.fromkeys(_COLUMNS)]
    suspects = np.sort(np.unique(np.concatenate([order[equal], order[equal + 1]])))
    known: set[tuple[object, ...]] = set()
    first = np.ones(len(spans), dtype=np.bool_)
    for row in suspects.tolist():
        record = (*(int(column[row]) for column in columns), repr(spans.args(row)))
        first[row] = record not in known
        known.add(record)
    return None if first.all() else first


def _keys(spans: SpanTable) -> Int64s:
    """A number for every row that equal records share, and others hardly ever."""
    keys = spans.start_ns.astype(np.uint64)
    for column in (spans.duration_ns, spans.lane, spans.name, spans.invocation):
        keys *= np.uint64(_MULTIPLIER)
        keys ^= keys >> np.uint64(29)
        keys += column.astype(np.int64).astype(np.uint64)
    return keys.view(np.int64)
