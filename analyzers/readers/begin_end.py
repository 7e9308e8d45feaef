"""Begin and end events on their way to spans: which begin an end belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from analyzers.readers.chrome_events import Event
from analyzers.table.spans import Lane


@dataclass(frozen=True)
class TimedEvent:
    """A begin or end event waiting for its counterpart; file order breaks ties of time."""

    at_ns: int
    is_begin: bool
    name: str
    event: Event
    lane: Lane
    where: str


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
