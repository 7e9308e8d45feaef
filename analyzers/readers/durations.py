"""Durations that cannot be: of spans that end impossibly long after everything else of their file has begun."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from analyzers.readers.load_report import IssueCounter
from analyzers.table.spans import Clock, Int64s, Mask, SpanTable

_FACTOR = 1000
"""How many times the window of all starts a span may go on behind the last of them."""

_MOST_PLACES = 10_000
_LARGEST = 2**63 - 1


def implausible(starts: Int64s, durations: Int64s) -> Mask:
    """Which spans end more than 1000 times the window of all starts behind the last start.

    Not so one that begins before all others: it encloses them, as a span of a whole run does. And none where most spans end
    so late: requests that came all at once make a short window, which says nothing of how long they took.
    """
    none = np.zeros(len(starts), dtype=np.bool_)
    if not len(starts):
        return none
    last = int(starts.max())
    window = last - int(starts.min())
    far: Mask = durations - (last - starts) > min(_FACTOR * window, _LARGEST)
    if not far.any() or 2 * np.count_nonzero(far) > len(far):
        return none
    begins_later: Mask = starts > starts[~far].min()
    return far & begins_later


@dataclass
class DurationCheck:
    """Looks at spans while they are read, so as to know where those stand that turn out implausible in the end."""

    _window: tuple[int, int] | None = None
    """The first and the last start so far."""
    _places: dict[int, str] = field(default_factory=dict)
    """Row -> where it stands, of what is implausible by the starts that were known when it was read."""

    def watch(self, rows: Int64s, starts: Int64s, durations: Int64s, where: Callable[[int], str]) -> None:
        """Take rows of the table to be; `where` gives the place of one by its position among them."""
        if not len(rows):
            return
        first, last = self._window or (int(starts[0]), int(starts[0]))
        first, last = self._window = min(first, int(starts.min())), max(last, int(starts.max()))
        # The window only grows: what is plausible now will always be.
        far = durations - (last - starts) > min(_FACTOR * (last - first), _LARGEST)
        for index in np.flatnonzero(far)[: _MOST_PLACES - len(self._places)].tolist():
            self._places[int(rows[index])] = where(index)

    def watch_one(self, row: int, start: int, duration: int, where: str) -> None:
        """Take one row."""
        first, last = self._window or (start, start)
        first, last = self._window = min(first, start), max(last, start)
        if duration - (last - start) > _FACTOR * (last - first) and len(self._places) < _MOST_PLACES:
            self._places[row] = where

    def plausible(self, spans: SpanTable, considered: Mask, issues: IssueCounter) -> Mask:
        """Those of the rows `considered` that may have lasted so long; others are counted. Device spans always may."""
        if considered.all() and not self._places:
            return considered
        rows = np.flatnonzero(considered & (spans.clock != Clock.DEVICE))
        found = rows[implausible(spans.start_ns[rows], spans.duration_ns[rows])]
        if not len(found):
            return considered
        first = int(found[0])
        issues.add(
            "implausible_dur",
            self._places.get(first, spans.name_of(first)),
            count=len(found),
            lost=len(found),
        )
        kept = considered.copy()
        kept[found] = False
        return kept
