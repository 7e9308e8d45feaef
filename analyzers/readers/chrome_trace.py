"""Chrome trace events to spans: X, begin/end, async pairs, instants, names (docs/formats.md, Serving trace)."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analyzers.errors import UnusableInputError
from analyzers.readers.begin_end import BEGINS, ENDS, BeginsAndEnds, TimedEvent
from analyzers.readers.chrome_events import Envelope, Event, nanoseconds, text_of
from analyzers.readers.durations import DurationCheck
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
from analyzers.readers.trace_names import TraceNames
from analyzers.table.arguments import ArgumentFile, ArgumentList, decode_arguments
from analyzers.table.spans import (
    ABSENT,
    Clock,
    Int64s,
    Kind,
    Lane,
    Mask,
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

_INSTANTS = frozenset("iIRn")


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
        assembler.add(batch.events, batch.offsets, stream.where)
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
        self._durations = DurationCheck()
        self._names = TraceNames(path)
        self._pairs = BeginsAndEnds()

    def trace(self, envelope: Envelope) -> ChromeTrace:
        """Everything added, as one trace."""
        self._names.settle()
        self._append_pairs()
        spans = self.spans.build()
        sound = self._durations.plausible(spans, self._with_times(spans), self._issues)
        if not sound.all():
            spans = spans.select(sound)
        spans = self._named(spans)
        if envelope.rank is not None:
            spans = spans.with_ranks(np.broadcast_to(np.int64(envelope.rank), len(spans)))
        return ChromeTrace(
            spans=spans,
            invalid=self._named(self.invalid.build()),
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

    def add(self, events: Sequence[Event], offsets: Int64s, where: Callable[[int], str]) -> None:
        """Take events; `offsets` are their positions in the content, of which `where` makes a place in words."""
        is_complete = [event.ph == "X" for event in events]
        chosen = list(itertools.compress(events, is_complete))
        try:
            self._add_columns(chosen, offsets[is_complete], where)
        except NotOrdinaryError:
            is_complete = [False] * len(events)
            chosen = []
        self.records += len(chosen)
        self.parsed += len(chosen)
        if len(chosen) < len(events):
            for event, offset, complete in zip(events, offsets.tolist(), is_complete, strict=True):
                if not complete:
                    self._add_one(event, offset, where)

    def _add_columns(self, events: Sequence[Event], offsets: Int64s, where: Callable[[int], str]) -> None:
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
        self._durations.watch(
            np.arange(len(self.spans), len(self.spans) + len(events)),
            columns["start_ns"],
            durations,
            lambda index: where(int(offsets[index])),
        )
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

    def _add_one(self, event: Event, offset: int, line_of: Callable[[int], str]) -> None:
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
        if phase != "X" and phase not in _INSTANTS and phase not in BEGINS | ENDS:
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
            self._complete(event, start, lane, line_of(offset))
            return
        self.parsed += 1
        if phase in _INSTANTS:
            self._append(self.spans, event, start, 0, lane, Kind.INSTANT, _arguments(event))
            return
        place = line_of(offset) if phase in BEGINS else where
        self._pairs.add(TimedEvent(start, phase in BEGINS, text_of(event.name), event, lane, place))

    def _append_pairs(self) -> None:
        """Make spans of begin and end events."""
        for begin, end, kind in self._pairs.matched(self._issues):
            arguments = {**_arguments(begin.event), **_arguments(end.event)}
            duration = end.at_ns - begin.at_ns
            self._append(
                self.spans, begin.event, begin.at_ns, duration, begin.lane, kind, arguments, begin.where
            )

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
        self._append(builder, event, start, duration, lane, Kind.SPAN, _arguments(event), where)

    def _append(
        self,
        builder: SpanTableBuilder,
        event: Event,
        start: int,
        duration: int,
        lane: Lane,
        kind: Kind,
        arguments: dict[str, Any],
        where: str = "",
    ) -> None:
        if builder is self.spans:
            self._durations.watch_one(len(builder), start, duration, where)
        builder.append(
            text_of(event.name),
            start,
            duration,
            lane,
            clock=self._clock,
            category=text_of(event.cat),
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
        if isinstance(name, str):
            at_ns = nanoseconds(event.ts)
            self._names.add(event.name, _label(event.pid), _label(event.tid), at_ns, name)

    def _named(self, spans: SpanTable) -> SpanTable:
        return dataclasses.replace(
            self._names.tell_apart(spans),
            process_names=self._names.process_names(),
            thread_names=self._names.thread_names(),
        )

    def _with_times(self, spans: SpanTable) -> Mask:
        """Rows but those at time 0 of a trace that otherwise starts more than a day later: their time was lost."""
        at_zero: Mask = spans.start_ns == 0
        later = spans.start_ns[~at_zero]
        if not at_zero.any() or not len(later) or later.min() <= _DAY_NS:
            return np.ones(len(spans), dtype=np.bool_)
        count = int(at_zero.sum())
        where = self._first_zero or spans.name_of(int(at_zero.argmax()))
        self._issues.add("zero_ts", where, count=count, lost=count)
        return ~at_zero


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
