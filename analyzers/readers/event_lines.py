"""The fast path: traces whose events each begin a line, read and decoded in pieces.

Nothing is repaired here but a torn end. Whatever else is not as it should be raises `NotStreamableError`; the
trace is then read as a whole (`analyzers.readers.chrome_events`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np

from analyzers.readers.chrome_events import ARRAY_START, Envelope, Event, decode_envelope, events_of
from analyzers.readers.json_objects import iterate_lines, skip_space, value_at
from analyzers.readers.load import IssueCounter
from analyzers.spans import Int64s

_LONGEST_EVENT = 1 << 26
_FIRST_EVENT = re.compile(rb"\s*?\n?([ \t]*)(?=\{)")

_array = msgspec.json.Decoder(list[Event])
_event = msgspec.json.Decoder(Event)


class NotStreamableError(Exception):
    """The file is not what the fast path reads."""


class Batch(NamedTuple):
    """Events that follow each other, and the byte offset of each in the content."""

    events: list[Event]
    offsets: Int64s


@dataclass(frozen=True)
class Layout:
    """Where the events of a trace begin, and what stands before each."""

    header: bytes
    """Everything before the first event."""
    indent: bytes
    lines: bool
    """JSON lines: no bracket around the events, no comma between them."""


def layout_of(head: bytes) -> Layout | None:
    """The layout of a trace by its first bytes; None when no line of it begins with an event."""
    start = len(head) - len(head.removeprefix(b"\xef\xbb\xbf").lstrip())
    if head.startswith(b"{", start):
        array = ARRAY_START.search(head)
        if array is None:
            first = value_at(head.partition(b"\n")[0].decode(errors="replace"), start)
            is_event = first is not None and isinstance(first[0], dict) and "ph" in first[0]
            return Layout(head[:start], b"", lines=True) if is_event else None
        start = array.end()
    elif head.startswith(b"[", start):
        start += 1
    else:
        return None
    first_event = _FIRST_EVENT.match(head, start)
    if first_event is None:
        return None
    return Layout(head[: first_event.start(1)], first_event[1], lines=False)


class EventLines:
    """Iterates over the batches of one trace; `envelope` and the issues are complete after the last one."""

    def __init__(self, pieces: Iterable[bytes], layout: Layout, issues: IssueCounter) -> None:
        self.envelope = Envelope()
        self._pieces = pieces
        self._layout = layout
        self._issues = issues
        self._newline = b"\n" + layout.indent + b"{"
        self._starts = re.compile(re.escape(self._newline))

    def __iter__(self) -> Iterator[Batch]:
        buffer = b""
        skip = offset = len(self._layout.header)
        line = 1 + self._layout.header.count(b"\n")
        for piece in self._pieces:
            buffer += piece
            if skip:
                if len(buffer) < skip:
                    continue
                buffer, skip = buffer[skip:], 0
            cut = buffer.rfind(self._newline)
            if cut > 0:
                yield self._decode(buffer[:cut], offset)
                line += buffer.count(b"\n", 0, cut + 1)
                buffer, offset = buffer[cut + 1 :], offset + cut + 1
            elif len(buffer) > _LONGEST_EVENT:
                raise NotStreamableError
        yield self._decode_tail(buffer, offset, line)

    def _decode(self, text: bytes, offset: int) -> Batch:
        _check_utf8(text)
        body = text.rstrip()
        try:
            if self._layout.lines:
                events = _event.decode_lines(body)
            else:
                if not body.endswith(b","):
                    raise NotStreamableError
                events = _array.decode(b"[" + body[:-1] + b"]")
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            raise NotStreamableError from error
        starts = [match.start() for match in self._starts.finditer(b"\n" + text)]
        if len(starts) != len(events):
            raise NotStreamableError
        return Batch(events, np.array(starts, dtype=np.int64) + (offset + len(self._layout.indent)))

    def _decode_tail(self, content: bytes, offset: int, line: int) -> Batch:
        """The last event, and what follows the array."""
        _check_utf8(content)
        text = content.decode()
        if self._layout.lines:
            events = list(events_of(text for _, text in iterate_lines(text, self._issues, first_line=line)))
            return Batch(events, np.full(len(events), offset, dtype=np.int64))
        start = skip_space(text, 0)
        found = value_at(text, start)
        if found is None and "]" in text[start:]:
            raise NotStreamableError
        if found is None:
            self._issues.add("torn_tail", f"line {line}", lost=1)
            self._issues.add("unterminated", f"line {line}")
            return Batch([], np.empty(0, dtype=np.int64))
        end = skip_space(text, found[1])
        if end == len(text):
            self._issues.add("unterminated", f"line {line}")
        elif text[end] == "]":
            self._close(text[end + 1 :])
        else:
            raise NotStreamableError
        events = list(events_of([text[start : found[1]]]))
        if len(events) != 1:
            raise NotStreamableError
        return Batch(events, np.array([offset + len(text[:start].encode())], dtype=np.int64))

    def _close(self, trailer: str) -> None:
        header = self._layout.header.removeprefix(b"\xef\xbb\xbf").strip().removesuffix(b"[")
        envelope = decode_envelope(header + b"[]" + trailer.encode())
        if envelope is None:
            raise NotStreamableError
        self.envelope = envelope


def _check_utf8(text: bytes) -> None:
    if text.isascii():
        return
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise NotStreamableError from error
