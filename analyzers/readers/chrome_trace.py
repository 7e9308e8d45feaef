"""Chrome trace events to spans: X, begin/end, async pairs, instants, names (formats.md, section 2)."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analyzers.arguments import ArgumentFile, ArgumentList, decode_arguments
from analyzers.readers.chrome_events import Envelope, Event, nanoseconds, read_events
from analyzers.readers.event_columns import (
    NotOrdinaryError,
    argument_columns,
    has_arguments,
    lane_labels,
    text_column,
    time_column,
)
from analyzers.readers.event_lines import EventLines, NotStreamableError, layout_of
from analyzers.readers.files import is_compressed, iterate_bytes
from analyzers.readers.load import IssueCounter, LoadReport, ReadAs
from analyzers.spans import ABSENT, Clock, Int64s, Kind, Lane, Source, SpanTable, SpanTableBuilder, as_id

_BATCH = 10_000
_DAY_NS = 86_400 * 1_000_000_000
_UNFINISHED_NS = -1000
"""dur -1: how several profilers write a span that had not ended."""

_INSTANTS = frozenset("iIRn")
_BEGINS, _ENDS = frozenset("bS"), frozenset("eF")


@dataclass(frozen=True)
class ChromeTrace:
    """One Chrome trace file."""

    spans: SpanTable
    invalid: SpanTable
    """Spans with a negative duration: kept for the lifecycle check, in no statistic."""
    report: LoadReport
    envelope: Envelope
    """What the file says about all of it: its rank, its time base."""

    @property
    def rank(self) -> int | None:
        """The rank the file names for itself (`distributedInfo`)."""
        return self.envelope.rank


def read_chrome_trace(
    data: bytes, path: str, *, clock: Clock = Clock.FILE, issues: IssueCounter | None = None
) -> ChromeTrace:
    """Read one Chrome trace: object, array or JSON lines, whole or damaged. ts and dur are microseconds.

    Raises:
        UnusableInputError: the content is no trace.
    """
    counter = issues if issues is not None else IssueCounter()
    found = read_events(data, path, counter)
    assembler = _Assembler(path, clock, counter, ArgumentList())
    for start in range(0, len(found.events), _BATCH):
        assembler.add(found.events[start : start + _BATCH])
    return assembler.trace(found.envelope, found.read_as)


def stream_chrome_trace(path: Path, *, clock: Clock = Clock.FILE) -> ChromeTrace | None:
    """Read one Chrome trace in pieces, if its events each begin a line; None for anything else.

    Raises:
        UnusableInputError: the file cannot be read.
    """
    if not path.is_file():
        return None
    issues = IssueCounter()
    pieces = iterate_bytes(path, issues)
    head = next(pieces, b"")
    layout = layout_of(head)
    if layout is None:
        return None
    lines = EventLines(itertools.chain([head], pieces), layout, issues)
    source = ArgumentList() if is_compressed(path) else ArgumentFile(path)
    assembler = _Assembler(str(path), clock, issues, source)
    try:
        for batch in lines:
            assembler.add(batch.events, batch.offsets)
    except NotStreamableError:
        return None
    return assembler.trace(lines.envelope, "streamed")


@dataclass(frozen=True)
class _Timed:
    """A begin or end event waiting for its counterpart; file order breaks ties of time."""

    at_ns: int
    is_begin: bool
    name: str
    event: Event
    lane: Lane


class _Assembler:
    """Turns events into rows; begin/end events are matched once all are known, since files are not sorted."""

    def __init__(
        self, path: str, clock: Clock, issues: IssueCounter, arguments: ArgumentList | ArgumentFile
    ) -> None:
        self.spans = SpanTableBuilder(Source.SERVING)
        self.invalid = SpanTableBuilder(Source.SERVING)
        self.records = 0
        self.parsed = 0
        self._path = path
        self._clock = clock
        self._issues = issues
        self._arguments = arguments
        self._nested: dict[Lane, list[_Timed]] = {}
        self._async: dict[Hashable, list[_Timed]] = {}

    def trace(self, envelope: Envelope, read_as: ReadAs) -> ChromeTrace:
        """Everything added, as one trace."""
        self._finish()
        spans = _without_zero_times(self.spans.build(), self._issues)
        if envelope.rank is not None:
            spans = spans.with_ranks(np.broadcast_to(np.int64(envelope.rank), len(spans)))
        return ChromeTrace(
            spans=spans,
            invalid=self.invalid.build(),
            report=LoadReport(
                path=self._path,
                format="chrome_trace",
                records=self.records,
                parsed=self.parsed,
                issues=self._issues.issues(),
                read_as="repaired" if self._issues.repaired else read_as,
            ),
            envelope=envelope,
        )

    def add(self, events: Sequence[Event], offsets: Int64s | None = None) -> None:
        """Take events; `offsets` are their positions in the file that keeps their arguments."""
        is_complete = [event.ph == "X" for event in events]
        chosen = list(itertools.compress(events, is_complete))
        try:
            self._add_columns(chosen, None if offsets is None else offsets[is_complete])
        except NotOrdinaryError:
            for event in events:
                self._add_one(event)
            return
        self.records += len(chosen)
        self.parsed += len(chosen)
        if len(chosen) < len(events):
            for event, complete in zip(events, is_complete, strict=True):
                if not complete:
                    self._add_one(event)

    def _add_columns(self, events: Sequence[Event], offsets: Int64s | None) -> None:
        """Add complete events as columns.

        Raises:
            NotOrdinaryError: one of them is unusual; none was added.
        """
        if not events:
            return
        durations = time_column(event.dur for event in events)
        if durations.min() < 0:
            raise NotOrdinaryError
        arguments = [bytes(event.args) for event in events]
        labels = lane_labels(events)
        columns: dict[str, Any] = {
            "start_ns": time_column(event.ts for event in events),
            "duration_ns": durations,
            **argument_columns(arguments),
        }
        names = text_column([event.name for event in events])
        categories = text_column([event.cat for event in events])
        lanes = {label: Lane(self._path, _label(label[0]), _label(label[1])) for label in set(labels)}
        if any(lane.pid is None or lane.tid is None for lane in lanes.values()):
            raise NotOrdinaryError
        codes = self.spans.codes
        self.spans.extend(
            len(events),
            name=codes("name", names),
            category=codes("category", categories),
            hid=codes("hid", [""])[0],
            lane=codes("lane", [lanes[label] for label in labels]),
            clock=int(self._clock),
            kind=int(Kind.SPAN),
            arguments=self._positions(arguments, offsets),
            argument_source=codes("argument_source", [self._arguments])[0],
            **columns,
        )

    def _positions(self, arguments: Sequence[bytes], offsets: Int64s | None) -> Int64s:
        given = has_arguments(arguments)
        if isinstance(self._arguments, ArgumentFile):
            return np.where(given, 0 if offsets is None else offsets, ABSENT)
        keep = self._arguments.add
        positions = [keep(text) if has else ABSENT for text, has in zip(arguments, given, strict=True)]
        return np.array(positions, dtype=np.int64)

    def _add_one(self, event: Event) -> None:
        """Take one event of any kind."""
        phase = event.ph
        if phase is None and event.name is None:
            return  # `{}`: how some writers end their array
        self.records += 1
        where = f"event {self.records}"
        if not isinstance(phase, str) or not phase:
            self._issues.add("malformed", where, lost=1)
            return
        if phase == "M":
            self._metadata(event)
            self.parsed += 1
            return
        if phase != "X" and phase not in _INSTANTS and phase not in "BE" and phase not in _BEGINS | _ENDS:
            self._issues.add("unknown_phase", where)
            self.parsed += 1
            return
        start = nanoseconds(event.ts)
        if start is None:
            self._issues.add("bad_ts", where, lost=1)
            return
        lane = self._lane(event, where)
        if phase == "X":
            self._complete(event, start, lane, where)
            return
        self.parsed += 1
        if phase in _INSTANTS:
            self._append(self.spans, event, start, 0, lane, Kind.INSTANT, _arguments(event))
            return
        timed = _Timed(start, phase in "BbS", _text(event.name), event, lane)
        if phase in "BE":
            self._nested.setdefault(lane, []).append(timed)
        else:
            self._async.setdefault(_async_key(event, lane), []).append(timed)

    def _finish(self) -> None:
        """Match begin and end events."""
        for group, kind in ((self._nested, Kind.SPAN), (self._async, Kind.ASYNC)):
            for timed_events in group.values():
                self._match(sorted(timed_events, key=lambda timed: timed.at_ns), kind)

    def _match(self, timed_events: list[_Timed], kind: Kind) -> None:
        stack: list[_Timed] = []
        for timed in timed_events:
            if timed.is_begin:
                stack.append(timed)
                continue
            # An end without a name closes the innermost span; a named one closes the innermost of that name.
            depth = next(
                (
                    index
                    for index in range(len(stack) - 1, -1, -1)
                    if not timed.name or stack[index].name == timed.name
                ),
                None,
            )
            if depth is None:
                self._issues.add("unmatched_end", timed.name)
                continue
            for open_span in stack[depth + 1 :]:
                self._issues.add("unmatched_begin", open_span.name)
            begin = stack[depth]
            del stack[depth:]
            arguments = {**_arguments(begin.event), **_arguments(timed.event)}
            duration = timed.at_ns - begin.at_ns
            self._append(self.spans, begin.event, begin.at_ns, duration, begin.lane, kind, arguments)
        for open_span in stack:
            self._issues.add("unmatched_begin", open_span.name)

    def _complete(self, event: Event, start: int, lane: Lane, where: str) -> None:
        duration = nanoseconds(event.dur)
        if duration is None:
            self._issues.add("bad_dur", where, lost=1)
            return
        self.parsed += 1
        if duration == _UNFINISHED_NS:
            self._issues.add("unfinished", where)
        elif duration < 0:
            self._issues.add("invalid_dur", where, lost=1)
        builder = self.spans if duration >= 0 else self.invalid
        self._append(builder, event, start, duration, lane, Kind.SPAN, _arguments(event))

    def _append(
        self,
        builder: SpanTableBuilder,
        event: Event,
        start: int,
        duration: int,
        lane: Lane,
        kind: Kind,
        arguments: dict[str, Any],
    ) -> None:
        builder.append(
            _text(event.name),
            start,
            duration,
            lane,
            clock=self._clock,
            category=_text(event.cat),
            rank=as_id(arguments.get("rank")),
            kind=kind,
            failed=arguments.get("failed") is True,
            step_id=as_id(arguments.get("step_id")),
            slot=as_id(arguments.get("slot", arguments.get("buffer_slot"))),
            dispatch_id=as_id(arguments.get("dispatch_id")),
            generation=as_id(arguments.get("generation")),
            run_id=as_id(arguments.get("run_id")),
            run_epoch=as_id(arguments.get("run_epoch")),
            worker_id=as_id(arguments.get("worker_id")),
            arguments=arguments,
        )

    def _lane(self, event: Event, where: str) -> Lane:
        pid, tid = _label(event.pid), _label(event.tid)
        if pid is None or tid is None:
            self._issues.add("missing_pid", where)
        return Lane(self._path, pid, tid)

    def _metadata(self, event: Event) -> None:
        name = _arguments(event).get("name")
        if not isinstance(name, str):
            return
        lane = Lane(self._path, _label(event.pid), _label(event.tid))
        if event.name == "process_name":
            self.spans.process_names[lane.process] = name
        elif event.name == "thread_name":
            self.spans.thread_names[lane] = name


def _async_key(event: Event, lane: Lane) -> Hashable:
    identifier, local = event.id, False
    if identifier is None and isinstance(event.id2, dict):
        local = "local" in event.id2
        identifier = event.id2.get("local", event.id2.get("global"))
    return (
        _text(event.cat),
        str(identifier),
        _text(event.scope),
        _text(event.name),
        lane.pid if local else None,
    )


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else str(value)


def _label(value: Any) -> int | str | None:
    """A pid or tid as the file has it: an integer, else its text; None when it is missing."""
    if value is None or value == "":
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    number = value.removeprefix("-") if isinstance(value, str) else ""
    if number.isascii() and number.isdecimal() and len(number) <= 20:
        return int(str(value))
    return str(value)


def _arguments(event: Event) -> dict[str, Any]:
    raw = bytes(event.args)
    return decode_arguments(raw) if raw else {}


def _without_zero_times(spans: SpanTable, issues: IssueCounter) -> SpanTable:
    """Leave out rows at time 0 of a trace that otherwise starts more than a day later: their time was lost."""
    at_zero = spans.start_ns == 0
    later = spans.start_ns[~at_zero]
    if not at_zero.any() or not len(later) or later.min() <= _DAY_NS:
        return spans
    count = int(at_zero.sum())
    issues.add("zero_ts", spans.name_of(int(at_zero.argmax())), count=count, lost=count)
    return spans.select(~at_zero)
