"""Begin and end events on their way to spans: which begin an end belongs to."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from analyzers.readers.chrome_events import Event, text_of
from analyzers.readers.load_report import IssueCounter
from analyzers.table.spans import Kind, Lane, Process

_HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]+")
_LONGEST_ID = 40
_ON_THREAD = frozenset("BE")
BEGINS, ENDS = frozenset("BbS"), frozenset("EeF")
"""Phases; those of one letter belong together, and S with F."""


@dataclass(frozen=True)
class TimedEvent:
    """A begin or end event waiting for its counterpart; file order breaks ties of time."""

    at_ns: int
    is_begin: bool
    name: str
    event: Event
    lane: Lane
    where: str


class AsyncId(NamedTuple):
    """What begin and end of one asynchronous span share, besides the name."""

    category: str
    identifier: Hashable
    scope: str
    reach: Literal["local", "global", ""]
    """Whether it is one of its process alone, or the same in all processes; a plain `id` does not say."""

    @classmethod
    def of(cls, event: Event) -> AsyncId:
        """The id of an asynchronous event."""
        identifier, reach = event.id, cls.reach_of(event)
        if reach:
            identifier = event.id2[reach]
        return cls(text_of(event.cat), _identifier(identifier), text_of(event.scope), reach)

    @staticmethod
    def reach_of(event: Event) -> Literal["local", "global", ""]:
        """What the event says of its id; a plain one counts before `id2`."""
        if event.id is not None or not isinstance(event.id2, dict):
            return ""
        return "local" if "local" in event.id2 else "global" if "global" in event.id2 else ""


def _identifier(value: Any) -> Hashable:
    """An id as a number where it is one: `7`, `"7"` and `"0x7"` are the same."""
    text = str(value)
    if len(text) > _LONGEST_ID:
        return text
    if _HEXADECIMAL.fullmatch(text):
        return int(text, 16)
    return int(text) if text.isascii() and text.isdecimal() else text


class OpenSpans:
    """Spans that have begun: the innermost of all or of a name is found without a search, however many are open."""

    def __init__(self) -> None:
        self._open: dict[int, TimedEvent] = {}
        self._by_name: dict[str, list[int]] = {}
        self._begun = 0

    def push(self, begin: TimedEvent) -> None:
        """A span begins inside of those that are open."""
        self._open[self._begun] = begin
        self._by_name.setdefault(begin.name, []).append(self._begun)
        self._begun += 1

    def pop(self, name: str, *, cut: bool) -> tuple[TimedEvent | None, list[TimedEvent]]:
        """The innermost span of `name` (of any, if that is empty), and with `cut` what is open inside of it too."""
        if not (self._by_name.get(name) if name else self._open):
            return None, []
        position = self._by_name[name][-1] if name else next(reversed(self._open))
        inside: list[TimedEvent] = []
        while cut and next(reversed(self._open)) != position:
            inside.append(self._take(next(reversed(self._open))))
        return self._take(position), inside[::-1]

    def left(self) -> list[TimedEvent]:
        """What never ended."""
        return list(self._open.values())

    def _take(self, position: int) -> TimedEvent:
        begin = self._open.pop(position)
        self._by_name[begin.name].pop()
        return begin


@dataclass
class Matched:
    """Begins with their ends, and what has no counterpart."""

    pairs: list[tuple[TimedEvent, TimedEvent]] = field(default_factory=list)
    begins: list[TimedEvent] = field(default_factory=list)
    ends: list[TimedEvent] = field(default_factory=list)

    def add(self, other: Matched) -> None:
        """Take what was matched elsewhere."""
        self.pairs += other.pairs
        self.begins += other.begins
        self.ends += other.ends


def match(timed_events: Iterable[TimedEvent], *, cut: bool) -> Matched:
    """Pair ends with begins: one without a name closes the innermost span, another the innermost of its name.

    With `cut`, as on a thread, where spans nest, an end cuts what is open inside; asynchronous spans of one id may overlap.
    """
    found, open_spans = Matched(), OpenSpans()
    for timed in sorted(timed_events, key=lambda timed: timed.at_ns):
        if timed.is_begin:
            open_spans.push(timed)
            continue
        begin, inside = open_spans.pop(timed.name, cut=cut)
        if begin is None:
            found.ends.append(timed)
            continue
        found.begins += inside
        found.pairs.append((begin, timed))
    found.begins += open_spans.left()
    return found


def match_by_process(of_process: Mapping[Process, Sequence[TimedEvent]]) -> tuple[Matched, bool]:
    """Pair the asynchronous events of one id, and whether several processes use it for spans of their own.

    An id does not say which process it is of. Where a process has both ends of a name, they are its own; a name that no
    process has both ends of begins in one and ends in another.
    """
    if len(of_process) < 2:
        return match(itertools.chain(*of_process.values()), cut=False), False
    found = Matched()
    for timed_events in of_process.values():
        found.add(match(timed_events, cut=False))
    owned = {begin.name for begin, _ in found.pairs}
    alone = [timed for timed in (*found.begins, *found.ends) if timed.name not in owned]
    across = match(alone, cut=False)
    across.pairs += found.pairs
    across.begins += [timed for timed in found.begins if timed.name in owned]
    across.ends += [timed for timed in found.ends if timed.name in owned]
    users = {(timed.name, process) for process, timed_events in of_process.items() for timed in timed_events}
    shared = Counter(name for name, _ in users if name in owned)
    return across, any(count > 1 for count in shared.values())


class BeginsAndEnds:
    """Collects begin and end events, and pairs them once all are known, since files are not sorted."""

    def __init__(self) -> None:
        self._on_thread: dict[Lane, list[TimedEvent]] = {}
        self._async: dict[AsyncId, list[TimedEvent]] = {}

    def add(self, timed: TimedEvent) -> None:
        """Take an event."""
        if timed.event.ph in _ON_THREAD:
            self._on_thread.setdefault(timed.lane, []).append(timed)
        else:
            self._async.setdefault(AsyncId.of(timed.event), []).append(timed)

    def matched(self, issues: IssueCounter) -> Iterator[tuple[TimedEvent, TimedEvent, Kind]]:
        """Every begin with its end; what has no counterpart is counted, and so are ids that processes share."""
        for kind, matched in self._matches(issues):
            for begin, end in matched.pairs:
                yield begin, end, kind
            for begin in matched.begins:
                issues.add("unmatched_begin", begin.where)
            for end in matched.ends:
                issues.add("unmatched_end", end.where)

    def _matches(self, issues: IssueCounter) -> Iterator[tuple[Kind, Matched]]:
        for on_thread in self._on_thread.values():
            yield Kind.SPAN, match(on_thread, cut=True)
        for identifier, timed_events in self._async.items():
            if identifier.reach == "global":
                yield Kind.ASYNC, match(timed_events, cut=False)
                continue
            of_process: dict[Process, list[TimedEvent]] = {}
            for timed in timed_events:
                of_process.setdefault(timed.lane.process, []).append(timed)
            if identifier.reach == "local":
                for local in of_process.values():
                    yield Kind.ASYNC, match(local, cut=False)
                continue
            matched, is_shared = match_by_process(of_process)
            if is_shared:
                issues.add("shared_id", timed_events[0].where)
            yield Kind.ASYNC, matched
