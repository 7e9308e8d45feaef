"""The two ends of a dispatch as the serving trace shows them: `<callable>.worker_submit` and `.worker_wait`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from analyzers.callables import SUBMIT, WAIT, callable_of
from analyzers.rounds import Interval
from analyzers.spans import ABSENT, Kind, Lane, Mask, Source, SpanTable, concatenate

_DISPATCH_SPAN = ".dispatch_decode"
_RECLAIM_SPAN = ".reclaim_decode"


class SpanReference(msgspec.Struct, frozen=True):
    """One span as a finding names it; times in ns of its clock, ids None when the span carries none."""

    name: str
    start_ns: int
    end_ns: int
    pid: str
    tid: str
    dispatch_id: int | None = None
    step_id: int | None = None
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A submit or a wait."""

    role: Literal["submit", "wait"]
    callable: str
    lane: Lane
    interval: Interval
    dispatch_id: int
    step_id: int
    enclosing_step_id: int
    """The step_id of the dispatch_decode / reclaim_decode span around it on its lane."""
    slot: int
    failed: bool = False
    """Whether the trace says that the dispatch failed: its wait ended with an error."""

    @property
    def process(self) -> tuple[str, int | str | None]:
        """The process that recorded it."""
        return self.lane.process

    @property
    def any_step_id(self) -> int:
        """Its own step_id, else the one of the span around it."""
        return self.step_id if self.step_id != ABSENT else self.enclosing_step_id

    @property
    def has_explicit_id(self) -> bool:
        """Whether the span itself carries an id."""
        return self.dispatch_id != ABSENT or self.step_id != ABSENT

    @property
    def label(self) -> str:
        """`dispatch 7`, `step 7` or `no id`."""
        if self.dispatch_id != ABSENT:
            return f"dispatch {self.dispatch_id}"
        return f"step {self.any_step_id}" if self.any_step_id != ABSENT else "no id"

    def reference(self) -> SpanReference:
        """This endpoint as a finding names it."""
        return SpanReference(
            name=self.callable + (SUBMIT if self.role == "submit" else WAIT),
            start_ns=self.interval.start_ns,
            end_ns=self.interval.end_ns,
            pid=_text(self.lane.pid),
            tid=_text(self.lane.tid),
            dispatch_id=_or_none(self.dispatch_id),
            step_id=_or_none(self.any_step_id),
            slot=_or_none(self.slot),
        )


def find_endpoints(*tables: SpanTable) -> list[Endpoint]:
    """Every submit and wait of the serving traces, by start time."""
    parts = [table.select(_is_endpoint(table) | _encloses(table)) for table in tables]
    spans = concatenate(parts)
    rows = np.flatnonzero(_is_endpoint(spans))
    enclosing = _EnclosingSteps(spans)
    starts, lengths = spans.start_ns[rows], spans.duration_ns[rows]
    columns = (
        rows.tolist(),
        spans.name[rows].tolist(),
        spans.lane[rows].tolist(),
        starts.tolist(),
        (starts + lengths).tolist(),
        spans.dispatch_id[rows].tolist(),
        spans.step_id[rows].tolist(),
        spans.slot[rows].tolist(),
        spans.failed[rows].tolist(),
    )
    callables = [callable_of(name) or "" for name in spans.names]
    endpoints = [
        Endpoint(
            role="submit" if spans.names[name].endswith(SUBMIT) else "wait",
            callable=callables[name],
            lane=spans.lanes[lane],
            interval=Interval(start, end),
            dispatch_id=dispatch_id,
            step_id=step_id,
            enclosing_step_id=enclosing.step_around(row),
            slot=slot,
            failed=bool(failed),
        )
        for row, name, lane, start, end, dispatch_id, step_id, slot, failed in zip(*columns, strict=True)
    ]
    return sorted(endpoints, key=lambda item: (item.interval, item.role, item.dispatch_id, item.step_id))


def _is_endpoint(spans: SpanTable) -> Mask:
    named = spans.where_name(lambda name: name.endswith((SUBMIT, WAIT)) and callable_of(name) is not None)
    serving: Mask = (spans.source == Source.SERVING) & (spans.kind != Kind.INSTANT)
    return named & serving


def _encloses(spans: SpanTable) -> Mask:
    named = spans.where_name(lambda name: name.endswith((_DISPATCH_SPAN, _RECLAIM_SPAN)))
    with_step: Mask = spans.step_id != ABSENT
    return named & with_step


class _EnclosingSteps:
    """Looks up the innermost dispatch_decode / reclaim_decode span with a step_id around a row."""

    def __init__(self, spans: SpanTable) -> None:
        self._spans = spans
        self._by_lane: dict[int, list[tuple[int, int, int]]] = {}
        for row in np.flatnonzero(_encloses(spans)).tolist():
            start = int(spans.start_ns[row])
            entry = (start, start + int(spans.duration_ns[row]), int(spans.step_id[row]))
            self._by_lane.setdefault(int(spans.lane[row]), []).append(entry)
        for entries in self._by_lane.values():
            entries.sort()
        self._starts = {
            lane: np.array([entry[0] for entry in entries], dtype=np.int64)
            for lane, entries in self._by_lane.items()
        }

    def step_around(self, row: int) -> int:
        lane = int(self._spans.lane[row])
        if lane not in self._by_lane:
            return ABSENT
        start = int(self._spans.start_ns[row])
        end = start + int(self._spans.duration_ns[row])
        # Spans of one lane nest, so the innermost one around is among the last that started before.
        last = int(np.searchsorted(self._starts[lane], start, side="right"))
        for entry_start, entry_end, step_id in reversed(self._by_lane[lane][max(0, last - 4) : last]):
            if entry_start <= start and end <= entry_end:
                return step_id
        return ABSENT


def by_process_and_callable(endpoints: Sequence[Endpoint]) -> dict[tuple[object, str], list[Endpoint]]:
    """Endpoints grouped by the process and callable within which ids are unique."""
    groups: dict[tuple[object, str], list[Endpoint]] = {}
    for endpoint in endpoints:
        groups.setdefault((endpoint.process, endpoint.callable), []).append(endpoint)
    return groups


def _or_none(value: int) -> int | None:
    return None if value == ABSENT else value


def _text(value: int | str | None) -> str:
    return "(unknown)" if value is None else str(value)
