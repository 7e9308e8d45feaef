"""Span tables, span by span, for tests that work their spans out by hand. Times are in ns."""

from __future__ import annotations

from typing import Any

from analyzers.table.spans import Clock, Lane, Source, SpanTableBuilder

_FILES = {Source.SERVING: "trace.json", Source.STRACE: "server.log"}


class Spans(SpanTableBuilder):
    """Spans of one process of one file, on the host's clock where nothing else is said."""

    def __init__(self, source: Source, file: str = "", pid: int = 1, clock: Clock = Clock.HOST) -> None:
        super().__init__(source)
        self._file, self._pid, self._clock = file or _FILES[source], pid, clock

    def add(
        self, name: str, start: int, end: int, tid: int = 1, *, pid: int | None = None, **fields: Any
    ) -> None:
        """Add the span from `start` to `end`; `fields` are those of `append`."""
        lane = Lane(self._file, self._pid if pid is None else pid, tid)
        self.append(name, start, end - start, lane, **{"clock": self._clock, **fields})
