"""Spans of the serving trace that are there again: in another file of the same run, or delivered twice into one."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from analyzers.readers.chrome_trace import ChromeTrace
from analyzers.table.callables import RUN, SUBMIT, WAIT
from analyzers.table.grouping import Rows
from analyzers.table.spans import ABSENT, Clock, Kind, Mask, Source, SpanTable
from analyzers.text.words import counted

_Key = tuple[object, ...]
_MULTIPLIER = 0x9E3779B97F4A7C15


def without_repeats(traces: Sequence[ChromeTrace]) -> tuple[list[ChromeTrace], list[str]]:
    """`traces` with every span once, and what to say of those left out.

    Two files of no or one and the same rank that share a thread's span, times and ids included, hold one recording. In
    one file, only the ends of a dispatch that carry an id are known to be one: a short call may be made twice in a
    microsecond.
    """
    rows = [_candidates(trace.spans, several=len(traces) > 1) for trace in traces]
    hashes = [_hashes(trace.spans, own) for trace, own in zip(traces, rows, strict=True)]
    together = np.sort(np.concatenate([np.empty(0, np.uint64), *hashes]))
    shared = together[1:][together[1:] == together[:-1]]
    if not len(shared):
        return list(traces), []
    kept, notes = [], []
    known: dict[int | None, set[_Key]] = {}
    for trace, own_rows, own_hashes in zip(traces, rows, hashes, strict=True):
        suspects = own_rows[np.isin(own_hashes, shared)]
        before = known.setdefault(trace.rank, set())
        repeated = _repeated(trace.spans, suspects, before)
        if repeated.any():
            told = counted(int(repeated.sum()), "span")
            notes.append(f"{trace.report.path}: {told} that the recording holds already: counted once")
            trace = dataclasses.replace(trace, spans=trace.spans.select(~repeated))
        kept.append(trace)
    return kept, notes


def _candidates(spans: SpanTable, *, several: bool) -> Rows:
    candidates = _ends_with_id(spans)
    if several:
        candidates |= (spans.clock == Clock.HOST) & (spans.source == Source.SERVING)
    return np.flatnonzero(candidates)


def _ends_with_id(spans: SpanTable) -> Mask:
    named = spans.where_name(lambda name: name.endswith((SUBMIT, WAIT, RUN)))
    with_id: Mask = (
        named & (spans.kind == Kind.SPAN) & ((spans.dispatch_id != ABSENT) | (spans.step_id != ABSENT))
    )
    return with_id


def _repeated(spans: SpanTable, suspects: Rows, before: set[_Key]) -> Mask:
    """Those of `suspects` that are in `before`, the files read so far, to which they are added, or twice in this file."""
    repeated = np.zeros(len(spans), dtype=np.bool_)
    is_end = _ends_with_id(spans)
    own: set[_Key] = set()
    for row in suspects.tolist():
        lane = spans.lane_of(row)
        ids = (int(spans.step_id[row]), int(spans.dispatch_id[row]))
        times = (int(spans.start_ns[row]), int(spans.duration_ns[row]))
        key = (spans.name_of(row), lane.pid, lane.tid, int(spans.kind[row]), *times, *ids)
        repeated[row] = key in before or (bool(is_end[row]) and key in own)
        own.add(key)
    before |= own
    return repeated


def _hashes(spans: SpanTable, rows: Rows) -> npt.NDArray[np.uint64]:
    """A number for each row that equal spans share, and others hardly ever."""
    names = np.array(
        [zlib.crc32(name.encode(errors="replace")) for name in spans.names] or [0], dtype=np.uint64
    )
    keys = spans.start_ns[rows].astype(np.uint64)
    for column in (
        names[spans.name[rows]],
        spans.duration_ns[rows],
        spans.tid[rows],
        spans.dispatch_id[rows],
    ):
        keys = keys * np.uint64(_MULTIPLIER)
        keys ^= keys >> np.uint64(29)
        keys += column.astype(np.uint64)
    return keys
