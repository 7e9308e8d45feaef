"""The two ends of a dispatch as the serving trace shows them: `<callable>.worker_submit` and `.worker_wait`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from analyzers.table.callables import SUBMIT, WAIT, callable_of
from analyzers.table.grouping import Rows, number_groups
from analyzers.table.identity import Lane, Process
from analyzers.table.intervals import Interval
from analyzers.table.spans import ABSENT, Codes, Int64s, Kind, Mask, Source, SpanTable, concatenate

_DISPATCH_SPAN = ".dispatch_decode"
_RECLAIM_SPAN = ".reclaim_decode"
_UNFINISHED_NS = -1000
"""dur -1: the span had not ended when the trace was written, as if it were not there yet."""

_LOOK_BACK = 4
"""How many spans before an endpoint may be the innermost around it: spans of one lane nest."""


class SpanReference(msgspec.Struct, frozen=True):
    """One span as a finding names it; times in ns of its clock, ids None when the span carries none."""

    name: str
    start_ns: int
    end_ns: int
    pid: str
    tid: str
    dispatch_id: int | str | None = None
    step_id: int | str | None = None
    slot: int | str | None = None


def span_reference(spans: SpanTable, row: int) -> SpanReference:
    """One row as a finding names it."""
    lane = spans.lane_of(row)
    return SpanReference(
        name=spans.name_of(row),
        start_ns=int(spans.start_ns[row]),
        end_ns=int(spans.end_ns[row]),
        pid=str(lane.pid),
        tid=str(lane.tid),
        dispatch_id=spans.id_of(int(spans.dispatch_id[row])),
        step_id=spans.id_of(int(spans.step_id[row])),
    )


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A submit or a wait."""

    role: Literal["submit", "wait"]
    callable: str
    lane: Lane
    interval: Interval
    dispatch_id: int
    any_step_id: int
    """Its own step_id, else the one of the dispatch_decode / reclaim_decode span around it on its lane."""
    slot: int
    id_texts: Mapping[int, str]
    """`SpanTable.id_texts`."""

    @property
    def process(self) -> Process:
        """The process that recorded it."""
        return self.lane.process

    @property
    def label(self) -> str:
        """`dispatch 7`, `step 7` or `no id`."""
        if self.dispatch_id != ABSENT:
            return f"dispatch {self._id(self.dispatch_id)}"
        return f"step {self._id(self.any_step_id)}" if self.any_step_id != ABSENT else "no id"

    def reference(self) -> SpanReference:
        """This endpoint as a finding names it."""
        return SpanReference(
            name=self.callable + (SUBMIT if self.role == "submit" else WAIT),
            start_ns=self.interval.start_ns,
            end_ns=self.interval.end_ns,
            pid=_text(self.lane.pid),
            tid=_text(self.lane.tid),
            dispatch_id=self._id(self.dispatch_id),
            step_id=self._id(self.any_step_id),
            slot=self._id(self.slot),
        )

    def _id(self, code: int) -> int | str | None:
        return None if code == ABSENT else self.id_texts.get(code, code)


@dataclass(frozen=True)
class Endpoints:
    """Submits and waits in columns of equal length, by start time; a row is made an `Endpoint` where it is named."""

    callables: tuple[str, ...]
    lanes: tuple[Lane, ...]
    processes: tuple[Process, ...]
    id_texts: Mapping[int, str]

    is_wait: Mask
    callable: Codes
    lane: Codes
    process: Codes
    start_ns: Int64s
    end_ns: Int64s
    dispatch_id: Int64s
    step_id: Int64s
    any_step_id: Int64s
    """`Endpoint.any_step_id`."""
    slot: Int64s
    failed: Mask
    """Whether the trace says that the dispatch failed: its wait ended with an error."""
    unusable_id: Mask
    """Whether the span names an id that cannot be one."""

    def __len__(self) -> int:
        return len(self.start_ns)

    def __getitem__(self, row: int | np.intp) -> Endpoint:
        return Endpoint(
            role="wait" if self.is_wait[row] else "submit",
            callable=self.callables[int(self.callable[row])],
            lane=self.lanes[int(self.lane[row])],
            interval=Interval(int(self.start_ns[row]), int(self.end_ns[row])),
            dispatch_id=int(self.dispatch_id[row]),
            any_step_id=int(self.any_step_id[row]),
            slot=int(self.slot[row]),
            id_texts=self.id_texts,
        )

    @functools.cached_property
    def has_explicit_id(self) -> Mask:
        """Whether the span itself carries an id."""
        explicit: Mask = (self.dispatch_id != ABSENT) | (self.step_id != ABSENT) | self.unusable_id
        return explicit

    @functools.cached_property
    def group(self) -> Int64s:
        """A number for the process and callable within which ids are unique."""
        return self.process.astype(np.int64) * len(self.callables) + self.callable

    @functools.cached_property
    def dispatched_once(self) -> Mask:
        """Whether no other submit of a row's process and callable carries its dispatch_id.

        An id that is used again names several steps: no span outside of them can be joined by it.
        """
        return self._submitted_once(self.dispatch_id)

    @functools.cached_property
    def stepped_once(self) -> Mask:
        """The same of its step_id."""
        return self._submitted_once(self.any_step_id)

    def _submitted_once(self, ids: Int64s) -> Mask:
        once = np.ones(len(self), dtype=np.bool_)
        submits = np.flatnonzero(~self.is_wait & (ids != ABSENT))
        keys = number_groups(self.group[submits], ids[submits])
        once[submits] = np.bincount(keys)[keys] == 1 if len(keys) else True
        return once

    def select(self, rows: Rows) -> Endpoints:
        """The rows of an index list, in that order."""
        columns = {
            field.name: getattr(self, field.name)[rows]
            for field in dataclasses.fields(self)
            if field.name not in ("callables", "lanes", "processes", "id_texts")
        }
        return dataclasses.replace(self, **columns)


def find_endpoints(*tables: SpanTable) -> Endpoints:
    """Every submit and wait of the serving traces that had ended, by start time."""
    spans = concatenate(table.select(_is_endpoint(table) | _encloses(table)) for table in tables)
    rows = np.flatnonzero(_is_endpoint(spans) & (spans.duration_ns != _UNFINISHED_NS))
    callables: dict[str, int] = {}
    callable_codes = [callables.setdefault(callable_of(name) or "", len(callables)) for name in spans.names]
    processes: dict[Process, int] = {}
    process_codes = [processes.setdefault(lane.process, len(processes)) for lane in spans.lanes]
    step_id = spans.step_id[rows]
    found = Endpoints(
        callables=tuple(callables),
        lanes=spans.lanes,
        processes=tuple(processes),
        id_texts=spans.id_texts,
        is_wait=_of_code([name.endswith(WAIT) for name in spans.names], spans.name[rows], np.bool_),
        callable=_of_code(callable_codes, spans.name[rows], np.int32),
        lane=spans.lane[rows],
        process=_of_code(process_codes, spans.lane[rows], np.int32),
        start_ns=spans.start_ns[rows],
        end_ns=spans.end_ns[rows],
        dispatch_id=spans.dispatch_id[rows],
        step_id=step_id,
        any_step_id=np.where(step_id != ABSENT, step_id, _steps_around(spans, rows)),
        slot=spans.slot[rows],
        failed=spans.failed[rows] != 0,
        unusable_id=spans.unusable_id[rows] != 0,
    )
    keys = (found.step_id, found.dispatch_id, found.is_wait, found.end_ns, found.start_ns)
    return found.select(np.lexsort(keys))


def _of_code(values: list[Any], codes: Codes, dtype: type[np.generic]) -> npt.NDArray[Any]:
    """The value of each code; there are no codes where there are no values."""
    return np.array(values, dtype=dtype)[codes] if values else np.empty(0, dtype=dtype)


def _is_endpoint(spans: SpanTable) -> Mask:
    named = spans.where_name(lambda name: name.endswith((SUBMIT, WAIT)) and callable_of(name) is not None)
    serving: Mask = (spans.source == Source.SERVING) & (spans.kind != Kind.INSTANT)
    return named & serving


def _encloses(spans: SpanTable) -> Mask:
    named = spans.where_name(lambda name: name.endswith((_DISPATCH_SPAN, _RECLAIM_SPAN)))
    with_step: Mask = spans.step_id != ABSENT
    return named & with_step


def _steps_around(spans: SpanTable, rows: Rows) -> Int64s:
    """The step id of the innermost dispatch_decode / reclaim_decode span around each of `rows` on its lane."""
    around = np.flatnonzero(_encloses(spans))
    order = np.lexsort(
        (spans.step_id[around], spans.end_ns[around], spans.start_ns[around], spans.lane[around])
    )
    around = around[order]
    both = np.concatenate([around, rows])
    is_row = np.arange(len(both)) >= len(around)
    # By lane and start, `rows` after the spans that start with them: so many spans started no later than each.
    order = np.lexsort((is_row, spans.start_ns[both], spans.lane[both]))
    started = np.empty(len(both), dtype=np.intp)
    started[order] = np.cumsum(~is_row[order])
    started = started[len(around) :]
    found = np.full(len(rows), ABSENT, dtype=np.int64)
    for back in range(1, _LOOK_BACK + 1):
        asked = np.flatnonzero((started >= back) & (found == ABSENT))
        span, row = around[started[asked] - back], rows[asked]
        encloses = (spans.lane[span] == spans.lane[row]) & (spans.end_ns[row] <= spans.end_ns[span])
        found[asked[encloses]] = spans.step_id[span[encloses]]
    return found


def _text(value: int | str | None) -> str:
    return "(unknown)" if value is None else str(value)
