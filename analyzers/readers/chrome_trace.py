"""Chrome trace events to spans: X, begin/end, async pairs, instants, names (formats.md, section 2)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from analyzers.readers.chrome_events import Event, nanoseconds, read_events
from analyzers.readers.load import IssueCounter, LoadReport
from analyzers.spans import ABSENT, Clock, Kind, Lane, Source, SpanTable, SpanTableBuilder, as_id

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
    rank: int | None
    """The rank the file names for itself (`distributedInfo`)."""


def read_chrome_trace(
    data: bytes, path: str, *, clock: Clock = Clock.FILE, issues: IssueCounter | None = None
) -> ChromeTrace:
    """Read one Chrome trace: object, array or JSON lines, whole or damaged. ts and dur are microseconds.

    Raises:
        UnusableInputError: the content is no trace.
    """
    counter = issues if issues is not None else IssueCounter()
    found = read_events(data, path, counter)
    assembler = _Assembler(path, clock, found.rank if found.rank is not None else ABSENT, counter)
    for event in found.events:
        assembler.add(event)
    assembler.finish()
    spans = _without_zero_times(assembler.spans.build(), counter)
    return ChromeTrace(
        spans=spans,
        invalid=assembler.invalid.build(),
        report=LoadReport(
            path=path,
            format="chrome_trace",
            records=assembler.records,
            parsed=assembler.parsed,
            issues=counter.issues(),
        ),
        rank=found.rank,
    )


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

    def __init__(self, path: str, clock: Clock, rank: int, issues: IssueCounter) -> None:
        self.spans = SpanTableBuilder(Source.SERVING)
        self.invalid = SpanTableBuilder(Source.SERVING)
        self.records = 0
        self.parsed = 0
        self._path = path
        self._clock = clock
        self._rank = rank
        self._issues = issues
        self._nested: dict[Lane, list[_Timed]] = {}
        self._async: dict[Hashable, list[_Timed]] = {}

    def add(self, event: Event) -> None:
        """Take one event."""
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
            self._append(self.spans, event, _text(event.name), start, 0, lane, Kind.INSTANT, event.args)
            return
        timed = _Timed(start, phase in "BbS", _text(event.name), event, lane)
        if phase in "BE":
            self._nested.setdefault(lane, []).append(timed)
        else:
            self._async.setdefault(_async_key(event, lane), []).append(timed)

    def finish(self) -> None:
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
            arguments = {**_dict(begin.event.args), **_dict(timed.event.args)}
            duration = timed.at_ns - begin.at_ns
            self._append(
                self.spans, begin.event, begin.name, begin.at_ns, duration, begin.lane, kind, arguments
            )
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
        self._append(builder, event, _text(event.name), start, duration, lane, Kind.SPAN, event.args)

    def _append(
        self,
        builder: SpanTableBuilder,
        event: Event,
        name: str,
        start: int,
        duration: int,
        lane: Lane,
        kind: Kind,
        raw_arguments: Any,
    ) -> None:
        arguments = _dict(raw_arguments)
        builder.append(
            name,
            start,
            duration,
            lane,
            clock=self._clock,
            category=_text(event.cat),
            rank=self._rank,
            kind=kind,
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
        name = _dict(event.args).get("name")
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


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _without_zero_times(spans: SpanTable, issues: IssueCounter) -> SpanTable:
    """Leave out rows at time 0 of a trace that otherwise starts more than a day later: their time was lost."""
    at_zero = (spans.start_ns == 0) & (spans.duration_ns == 0)
    later = spans.start_ns[~at_zero]
    if not at_zero.any() or not len(later) or later.min() <= _DAY_NS:
        return spans
    count = int(at_zero.sum())
    issues.add("zero_ts", spans.name_of(int(at_zero.argmax())), count=count, lost=count)
    return spans.select(~at_zero)
