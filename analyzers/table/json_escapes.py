"""Backslashes that begin no JSON escape, as in a Windows path that was written as it is: doubled, they are themselves."""

from __future__ import annotations

import bisect
import re
from typing import NamedTuple

# At the end of a text an escape may be cut: whether it is a legal one, nobody can tell.
_BACKSLASH = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}|(?=(?:u[0-9a-fA-F]{0,3})?\Z)|(?P<stray>))')


class Escaped(NamedTuple):
    """A JSON text whose stray backslashes are doubled."""

    text: str
    stray: list[int]
    """Where they were before, ascending; [] for a text without any."""

    def before(self, position: int) -> int:
        """Where a position in `text` was before."""
        # Before it, every stray one has become a pair: the n-th, from 0, at its place plus n.
        places = range(len(self.stray))
        return position - bisect.bisect_left(places, position, key=lambda n: self.stray[n] + n)

    def has_stray(self, start: int, end: int) -> bool:
        """Whether one was in [start, end) of the text before."""
        return bisect.bisect_left(self.stray, start) < bisect.bisect_left(self.stray, end)


def double_stray_backslashes(text: str) -> Escaped:
    """`text` with every backslash that begins no legal escape doubled; legal escapes keep their meaning."""
    if "\\" not in text:
        return Escaped(text, [])
    stray = [match.start() for match in _BACKSLASH.finditer(text) if match["stray"] is not None]
    if not stray:
        return Escaped(text, stray)
    parts = [text[begin:end] for begin, end in zip([0, *stray], [*stray, len(text)], strict=True)]
    return Escaped("\\".join(parts), stray)
