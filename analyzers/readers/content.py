"""A text that is read on demand: a position in it, the value that starts there, and what issues call the place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from analyzers.readers.files import PIECE
from analyzers.readers.json_objects import DamagedError, parse_escaped_value

LONGEST_VALUE = 1 << 24
"""Bytes after which a value that does not end is taken for damaged."""

HELD_BEHIND = 1 << 20
"""Bytes before the position that `skip_to_candidate` keeps, in whatever pieces the content comes in."""

_FIRST_TRY = 1 << 12
_SPACE = re.compile(rb"\s*")
"""Vertical tabs and form feeds too, which other readers of traces let pass."""


class Content:
    """The bytes from a little before `position` on, as far as they were asked for.

    Places in `data` hold until `trim` or `skip_to_candidate` is called.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.data = b""
        self.position = 0
        self._pieces = pieces
        self._is_whole = False
        """Whether `data` reaches to the end."""
        self._dropped = 0
        self._line_at = (0, 1)
        """A place in `data` and the number of its line."""

    def require(self, count: int) -> None:
        """Read until `count` bytes follow the position, or all that there are."""
        missing = self.position + count - len(self.data)
        if missing <= 0 or self._is_whole:
            return
        parts = [self.data]
        while missing > 0 and (piece := next(self._pieces, None)) is not None:
            parts.append(piece)
            missing -= len(piece)
        self._is_whole = missing > 0
        self.data = b"".join(parts)

    def trim(self, keep: int = 0) -> None:
        """Forget what lies more than `keep` bytes before the position, if that is worth it."""
        count = self.position - keep
        if count < PIECE:
            return
        self._line_at = (0, self._line(count))
        self.data = self.data[count:]
        self.position -= count
        self._dropped += count

    def offset(self, place: int | None = None) -> int:
        """The offset in the whole content of a place in `data`, of the position when none is given."""
        return self._dropped + (self.position if place is None else place)

    def held_from(self, offset: int) -> bytes:
        """What is held from an offset in the whole content on, at most the last HELD_BEHIND bytes."""
        return self.data[max(0, offset - self._dropped, len(self.data) - HELD_BEHIND) :]

    def where(self, place: int) -> str:
        """What issues call a place in `data`."""
        return f"line {self._line(place)}, byte {self.offset(place)}"

    def where_at(self, offset: int) -> str:
        """The same of an offset in the whole content; without the line where it is no longer held."""
        place = offset - self._dropped
        return self.where(place) if place >= 0 else f"byte {offset}"

    def _line(self, place: int) -> int:
        known, line = self._line_at
        if place >= known:
            line += self.data.count(b"\n", known, place)
        else:
            line -= self.data.count(b"\n", place, known)
        self._line_at = (place, line)
        return line

    def skip_space(self) -> None:
        """Move to the next byte that is no white space."""
        while True:
            match = _SPACE.match(self.data, self.position)
            self.position = match.end() if match else self.position
            if self.position < len(self.data) or self._is_whole:
                return
            self.trim()
            self.require(PIECE)

    def value(self) -> tuple[Any, int]:
        """The JSON value that starts at the position and its end in `data`.

        In Latin-1 a character is a byte, so places in the text are places in `data`; strings are not decoded. A
        backslash that begins no escape stands for itself.

        Raises:
            DamagedError: none does; `is_cut` when the end of the content is why.
        """
        size = _FIRST_TRY
        while True:
            self.require(size)
            text = self.data[self.position : self.position + size].decode("latin-1")
            is_last = self._is_whole and self.position + size >= len(self.data)
            try:
                value, end = parse_escaped_value(text)
                # A number at the end of the text may go on behind it.
                if end < len(text) or is_last or isinstance(value, dict | list | str):
                    return value, self.position + end
            except DamagedError as error:
                if not error.is_cut or is_last or size >= LONGEST_VALUE:
                    raise DamagedError(is_cut=error.is_cut and is_last) from error
            size *= 16

    def is_event(self) -> bool:
        """Whether an object with a phase starts at the position."""
        try:
            value, _ = self.value()
        except DamagedError:
            return False
        return isinstance(value, dict) and isinstance(value.get("ph"), str)

    def skip_to_candidate(self, candidate: re.Pattern[bytes], mark: bytes) -> tuple[bool, int]:
        """Move behind the next match of a separator and white space; False when the content ends before it.

        Also how often `mark` stands in what was skipped.
        """
        marks = 0
        while True:
            match = candidate.search(self.data, self.position)
            if match is not None or self._is_whole:
                end = match.end() if match else len(self.data)
                marks += self.data.count(mark, self.position, end)
                self.position = end if match else self.position
                return match is not None, marks
            # A mark or a candidate may begin in what is there: white space at the end, and what stands before it.
            end = min(len(self.data.rstrip()) - 1, len(self.data) - len(mark) + 1)
            end = max(end, self.position)
            whole = end + len(mark) - 1
            marks += self.data.count(mark, self.position, whole)
            last = self.data.rfind(mark, self.position, whole)
            self.position = max(end, last + len(mark)) if last >= 0 else end
            self.trim(keep=HELD_BEHIND)
            self.require(len(self.data) - self.position + PIECE)
