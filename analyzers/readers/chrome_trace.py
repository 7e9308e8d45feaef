"""Chrome trace events to spans: X, begin/end, async pairs, instants, names (docs/formats.md, Serving trace)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analyzers.errors import UnusableInputError
from analyzers.readers.begin_end import OpenSpans, TimedEvent
from analyzers.readers.chrome_events import Envelope, Event, nanoseconds
from analyzers.readers.event_columns import (
    NotOrdinaryError,
    argument_columns,
    has_arguments,
    ids_of_event,
    lane_labels,
    text_column,
    time_column,
)
from analyzers.readers.event_layout import is_undecided, layout_of
from analyzers.readers.event_stream import EventStream
from analyzers.readers.files import PIECE, OpenedFile, open_file
from analyzers.readers.load_report import IssueCounter, LoadReport
from analyzers.table.arguments import ArgumentFile, ArgumentList, decode_arguments
from analyzers.table.spans import (
    ABSENT,
    Clock,
    Int64s,
    Kind,
    Lane,
    Source,
    SpanTable,
    SpanTableBuilder,
)

_SHORTEST_HEAD = 1 << 12
_LONGEST_HEADER = 1 << 26
"""Bytes by which a trace is told from anything else."""

_DAY_NS = 86_400 * 1_000_000_000
_UNFINISHED_NS = -1000
"""dur -1: how several profilers write a span that had not ended."""

_HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]+")
_LONGEST_ID = 40
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
    """Read one Chrome trace that is in memory: object, array or JSON lines, whole or damaged. ts and dur are us.

    Raises:
        UnusableInputError: the content is no trace.
    """
    pieces = (data[start : start + PIECE] for start in range(0, len(data), PIECE))
    opened = OpenedFile(path, pieces, issues if issues is not None else IssueCounter())
    if not looks_like(opened):
        raise UnusableInputError(f"{path}: not a trace: no traceEvents")
    return read(opened, clock=clock)


def stream_chrome_trace(path: Path, *, clock: Clock = Clock.FILE) -> ChromeTrace | None:
    """Read one Chrome trace in pieces; None when the file is something else.

    The arguments of a plain file's events stay in it until somebody asks for them.

    Raises:
        UnusableInputError: the file cannot be read, or looks like a trace and holds no event at all.
    """
    opened = open_file(path)
    return read(opened, clock=clock) if looks_like(opened) else None


def looks_like(opened: OpenedFile) -> bool:
    """Whether a file begins as a Chrome trace does; looks as far into it as it takes to tell."""
    while len(opened.head) < _SHORTEST_HEAD or (
        is_undecided(opened.head) and len(opened.head) < _LONGEST_HEADER
    ):
        if not opened.look_further():
            break
    return layout_of(opened.head) is not None


def read(opened: OpenedFile, *, clock: Clock = Clock.FILE) -> ChromeTrace:
    """Read a file that looks like a Chrome trace.

    Raises:
        UnusableInputError: it holds no event at all.
    """
    layout = layout_of(opened.head)
    if layout is None:
        raise UnusableInputError(f"{opened.name}: not a trace: no traceEvents")
    arguments = ArgumentFile(Path(opened.name)) if opened.is_plain else ArgumentList()
    assembler = _Assembler(opened.name, clock, opened.issues, arguments)
    stream = EventStream(opened.pieces(), layout, opened.issues)
    for batch in stream:
        assembler.add(batch.events, batch.offsets)
    trace = assembler.trace(stream.envelope)
    if layout.is_lines and not trace.report.parsed and opened.issues.lost("bad_line"):
        raise UnusableInputError(f"{opened.name}: not a trace: no traceEvents and no line that is an event")
    return trace


class _Assembler:
    """Turns events into rows; begin/end events are matched once all are known, since files are not sorted."""

    def __init__(
        self, path: str, clock: Clock, issues: IssueCounter, arguments: ArgumentList | ArgumentFile
    ) -> None:
        self.spans = SpanTableBuilder(Source.SERVING)
        self.invalid = SpanTableBuilder(Source.SERVING, self.spans.ids)
        self.records = 0
        self.parsed = 0
        self._path = path
        self._clock = clock
        self._issues = issues
        self._arguments = arguments
        self._first_zero: str | None = None
        """Where the first event at time 0 stands."""
        self._nested: dict[Lane, list[TimedEvent]] = {}
        self._async: dict[Hashable, list[TimedEvent]] = {}

    def trace(self, envelope: Envelope) -> ChromeTrace:
        """Everything added, as one trace."""
        self._finish()
        spans = _without_zero_times(self.spans.build(), self._issues, self._first_zero)
        if envelope.rank is not None:
            spans = spans.with_ranks(np.broadcast_to(np.int64(envelope.rank), len(spans)))
        return ChromeTrace(
            spans=spans,
            invalid=self.invalid.build(),
            report=LoadReport(
                path=self._path,
                format="chrome_trace",
                records=self.records + self._issues.lost("malformed", "bad_line", "torn_tail"),
                parsed=self.parsed,
                issues=self._issues.issues(),
                read_as="repaired" if self._issues.repaired else "streamed",
            ),
            envelope=envelope,
        )

    def add(self, events: Sequence[Event], offsets: Int64s) -> None:
        """Take events; `offsets` are their positions in the content."""
        is_complete = [event.ph == "X" for event in events]
        chosen = list(itertools.compress(events, is_complete))
        try:
            self._add_columns(chosen, offsets[is_complete])
        except NotOrdinaryError:
            is_complete = [False] * len(events)
            chosen = []
        self.records += len(chosen)
        self.parsed += len(chosen)
        if len(chosen) < len(events):
            for event, offset, complete in zip(events, offsets.tolist(), is_complete, strict=True):
                if not complete:
                    self._add_one(event, offset)

    def _add_columns(self, events: Sequence[Event], offsets: Int64s) -> None:
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
            **argument_columns(arguments, self.spans.ids),
        }
        at_zero = columns["start_ns"] == 0
        if self._first_zero is None and at_zero.any():
            self._first_zero = f"byte {int(offsets[at_zero.argmax()])}"
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

    def _positions(self, arguments: Sequence[bytes], offsets: Int64s) -> Int64s:
        given = has_arguments(arguments)
        if isinstance(self._arguments, ArgumentFile):
            return np.where(given, offsets, ABSENT)
        keep = self._arguments.add
        positions = [keep(text) if has else ABSENT for text, has in zip(arguments, given, strict=True)]
        return np.array(positions, dtype=np.int64)

    def _add_one(self, event: Event, offset: int) -> None:
        """Take one event of any kind."""
        phase = event.ph
        where = f"byte {offset}"
        if not isinstance(phase, str) or not phase:
            self._issues.add("malformed", where, lost=1)
            return
        self.records += 1
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
        if start == 0 and self._first_zero is None:
            self._first_zero = where
        lane = self._lane(event, where)
        if phase == "X":
            self._complete(event, start, lane, where)
            return
        self.parsed += 1
        if phase in _INSTANTS:
            self._append(self.spans, event, start, 0, lane, Kind.INSTANT, _arguments(event))
            return
        timed = TimedEvent(start, phase in "BbS", _text(event.name), event, lane, where)
        if phase in "BE":
            self._nested.setdefault(lane, []).append(timed)
        else:
            self._async.setdefault(_async_key(event, lane), []).append(timed)

    def _finish(self) -> None:
        """Match begin and end events."""
        for timed_events in self._nested.values():
            self._match(timed_events, Kind.SPAN)
        for timed_events in self._async.values():
            self._match(timed_events, Kind.ASYNC)

    def _match(self, timed_events: list[TimedEvent], kind: Kind) -> None:
        """Pair ends with begins: one without a name closes the innermost span, another the innermost of its name.

        On a thread spans nest, so that an end cuts what is open inside; asynchronous spans of one id may overlap.
        """
        open_spans = OpenSpans()
        for timed in sorted(timed_events, key=lambda timed: timed.at_ns):
            if timed.is_begin:
                open_spans.push(timed)
                continue
            begin, inside = open_spans.pop(timed.name, cut=kind is Kind.SPAN)
            if begin is None:
                self._issues.add("unmatched_end", timed.where)
                continue
            self._never_ended(inside)
            arguments = {**_arguments(begin.event), **_arguments(timed.event)}
            duration = timed.at_ns - begin.at_ns
            self._append(self.spans, begin.event, begin.at_ns, duration, begin.lane, kind, arguments)
        self._never_ended(open_spans.left())

    def _never_ended(self, begins: Sequence[TimedEvent]) -> None:
        for begin in begins:
            self._issues.add("unmatched_begin", begin.where)

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
            kind=kind,
            **ids_of_event(arguments, self.spans.ids),
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
    """What begin and end of one asynchronous span share, besides the name."""
    identifier, local = event.id, False
    if identifier is None and isinstance(event.id2, dict):
        local = "local" in event.id2
        identifier = event.id2.get("local", event.id2.get("global"))
    return (_text(event.cat), _identifier(identifier), _text(event.scope), lane.pid if local else None)


def _identifier(value: Any) -> Hashable:
    """An id as a number where it is one: `7`, `"7"` and `"0x7"` are the same."""
    text = str(value)
    if len(text) > _LONGEST_ID:
        return text
    if _HEXADECIMAL.fullmatch(text):
        return int(text, 16)
    return int(text) if text.isascii() and text.isdecimal() else text


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


def _without_zero_times(spans: SpanTable, issues: IssueCounter, where: str | None) -> SpanTable:
    """Leave out rows at time 0 of a trace that otherwise starts more than a day later: their time was lost."""
    at_zero = spans.start_ns == 0
    later = spans.start_ns[~at_zero]
    if not at_zero.any() or not len(later) or later.min() <= _DAY_NS:
        return spans
    count = int(at_zero.sum())
    issues.add("zero_ts", where or spans.name_of(int(at_zero.argmax())), count=count, lost=count)
    return spans.select(~at_zero)
