"""The events of a Chrome trace in any of its shapes (object, array, JSON lines), read in pieces, whole or damaged.

Most of a trace is ordinary: its events are found by their lines or brackets and decoded many at a time. Where that
fails, one element is read by itself, or skipped up to the next event, and the many-at-a-time way is tried again. No
more of the file than a few megabytes is held, unless a single event is longer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from analyzers.readers.chrome_events import (
    EVENT,
    EVENTS,
    Envelope,
    Event,
    damage_of,
    envelope_in_text,
    envelope_of,
    event_of,
)
from analyzers.readers.content import HELD_BEHIND, Content
from analyzers.readers.event_layout import Layout
from analyzers.readers.event_scan import scan_elements
from analyzers.readers.files import PIECE, Lines, whole_lines
from analyzers.readers.json_objects import DamagedError, line_objects, parse_value
from analyzers.readers.load_report import IssueCounter
from analyzers.readers.utf8 import is_utf8
from analyzers.table.arguments import LENIENT_JSON
from analyzers.table.json_escapes import double_stray_backslashes
from analyzers.table.spans import Int64s

_SMALLEST_WINDOW = 1 << 12
_LONGEST_TRAILER = 1 << 26
_BEFORE_FIRST = re.compile(rb"\s*(?=\{)")
_BETWEEN = re.compile(rb"\s*,\s*(?=\{)")
_SEPARATOR = re.compile(rb"\s*,\s*")
_LINE_START = re.compile(rb"\n[ \t]*$")
_STRAY_BRACKET = re.compile(rb"\]\s*,\s*(?=\{)")
_PERHAPS_EVENT = re.compile(rb"[,\n][ \t\r\n]*(?=\{)")
_PHASE = b'"ph"'
"""What every event has: how many were lost in what cannot be read."""

_MOST_SINGLES = 1000
_EMPTY = re.compile(rb"\{\s*\}")


class Batch(NamedTuple):
    """Events that follow each other, and the byte offset of each in the content."""

    events: list[Event]
    offsets: Int64s


class EventStream:
    """Iterates over the batches of one trace; everything else is complete after the last one."""

    def __init__(self, pieces: Iterable[bytes], layout: Layout, issues: IssueCounter) -> None:
        self.envelope = Envelope()
        self._layout = layout
        self._issues = issues
        self._pieces = pieces
        self._content = Content(iter(()))
        self._after_element = False
        self._ended = False
        self._lines = Lines(b"", 0, 1)
        self._newline: bytes | None = None
        """What stands before every event where each begins a line."""

    def __iter__(self) -> Iterator[Batch]:
        if self._layout.is_lines:
            for lines in whole_lines(self._pieces):
                self._lines = lines
                yield self._line_batch(lines)
            return
        content = self._content = Content(iter(self._pieces))
        content.require(len(self._layout.header) + PIECE)
        content.position = len(self._layout.header)
        self._learn_lines()
        window = PIECE
        singles: list[tuple[Event, int]] = []
        while not self._ended:
            # What was read singly may be asked for its line.
            content.trim(keep=HELD_BEHIND if singles else 0)
            content.require(window)
            batch, is_damaged = self._ordinary(window)
            if batch is None and (single := self._single()) is not None:
                singles.append(single)
            if singles and (batch is not None or len(singles) == _MOST_SINGLES):
                yield _joined(singles)
                singles = []
            if batch is not None:
                yield batch
            # Near damage, little is scanned in vain.
            window = max(window // 16, _SMALLEST_WINDOW) if is_damaged else min(window * 2, PIECE)
        if singles:
            yield _joined(singles)

    def where(self, offset: int) -> str:
        """The place of an event of the last batch in words; `offset` is its position in the content."""
        if not self._layout.is_lines:
            return self._content.where_at(offset)
        lines = self._lines
        line = lines.line + lines.content.count(b"\n", 0, offset - lines.offset)
        return f"line {line}, byte {offset}"

    def _learn_lines(self) -> None:
        content = self._content
        match = _BEFORE_FIRST.match(content.data, content.position)
        start = _LINE_START.search(content.data[content.position : match.end()]) if match else None
        self._newline = start[0] + b"{" if start else None

    def _ordinary(self, window: int) -> tuple[Batch | None, bool]:
        """The whole events at the start of the window; None, and whether damage is why, when it has none."""
        content = self._content
        lead = (_BETWEEN if self._after_element else _BEFORE_FIRST).match(content.data, content.position)
        if lead is None:
            return None, False
        start = lead.end() - content.position
        text = content.data[content.position : content.position + window]
        if self._newline is not None and (batch := self._by_lines(text, start)) is not None:
            return batch, False
        elements = scan_elements(text[start:])
        if not len(elements.starts):
            return None, False
        starts, ends = elements.starts + start, elements.ends + start
        found = len(starts)
        body = text[start : int(ends[-1])]
        events = _decode_array(body) if is_utf8(body) else None
        if events is None or len(events) != found:
            events = self._one_by_one(text, starts.tolist(), ends.tolist())
            if not events:
                return None, True
            starts, ends = starts[: len(events)], ends[: len(events)]
        offsets = starts + content.offset()
        content.position += int(ends[-1])
        self._after_element = True
        return self._batch(events, offsets, text, starts.tolist(), ends.tolist()), len(events) < found

    def _one_by_one(self, text: bytes, starts: Sequence[int], ends: Sequence[int]) -> list[Event]:
        """The events up to the first element that is none, by Python's reading: NaN and bad bytes cost nothing."""
        content, events = self._content, list[Event]()
        before = None
        for start, end in zip(starts, ends, strict=True):
            raw = text[start:end]
            if before is not None and not _SEPARATOR.fullmatch(text, before, start):
                break
            try:
                events.append(event_of(raw))
            except (RecursionError, ValueError, TypeError):
                break
            for kind in damage_of(raw):
                self._issues.add(kind, content.where(content.position + start))
            before = end
        return events

    def _by_lines(self, text: bytes, start: int) -> Batch | None:
        """The events that each begin a line, up to the last line that does; None when that is not what they do."""
        newline = self._newline or b""
        cut = text.rfind(newline)
        body = text[start:cut].rstrip() if cut > start else b""
        if not body.endswith(b",") or not is_utf8(body):
            return None
        events = _decode_array(body[:-1])
        begins = re.compile(re.escape(newline))
        starts = [start, *(match.end() - 1 for match in begins.finditer(text, start, cut))]
        if events is None or len(events) != len(starts):
            return None
        content = self._content
        offsets = np.array(starts, dtype=np.int64) + content.offset()
        content.position += cut
        self._after_element = False
        return self._batch(events, offsets, text, starts, [*starts[1:], cut])

    def _batch(
        self, events: list[Event], offsets: Int64s, text: bytes, starts: Sequence[int], ends: Sequence[int]
    ) -> Batch:
        """The batch without `{}`, which some writers put behind the last event."""
        empty = [
            row
            for row, event in enumerate(events)
            if event.ph is None and _EMPTY.match(text, starts[row], ends[row])
        ]
        if empty:
            kept = np.ones(len(events), dtype=np.bool_)
            kept[empty] = False
            return Batch([event for event, keep in zip(events, kept, strict=True) if keep], offsets[kept])
        return Batch(events, offsets)

    def _single(self) -> tuple[Event, int] | None:
        """One element, comma or bracket, whatever its state; what was no event is counted."""
        content, issues = self._content, self._issues
        content.skip_space()
        at = content.position
        mark = content.data[at : at + 1]
        if not mark:
            issues.add("unterminated", content.where(at))
            self._end(b"", is_closed=False)
            return None
        if mark == b"]":
            self._close()
            return None
        if mark == b",":
            content.position += 1
            content.skip_space()
            if not self._after_element or content.data[content.position : content.position + 1] == b"]":
                issues.add("commas_ignored", content.where(at))
            self._after_element = False
            return None
        if self._after_element:
            issues.add("commas_missing", content.where(at))
        try:
            value, end = content.value()
        except DamagedError as error:
            self._skip_damage(at, is_cut=error.is_cut)
            return None
        content.position, self._after_element = end, True
        return self._element(value, content.data[at:end], at)

    def _element(self, value: Any, raw: bytes, at: int) -> tuple[Event, int] | None:
        """The event that a whole element is; an empty object is none, anything else that is none is counted."""
        content, issues = self._content, self._issues
        if value == {}:
            return None
        if isinstance(value, dict):
            try:
                event = event_of(raw)
            except (RecursionError, ValueError):
                pass
            else:
                for kind in damage_of(raw):
                    issues.add(kind, content.where(at))
                return event, content.offset(at)
        issues.add("malformed", content.where(at), lost=1)
        return None

    def _skip_damage(self, at: int, *, is_cut: bool) -> None:
        """Go on at the next event behind a damaged element, or end."""
        content, issues = self._content, self._issues
        where, offset = content.where(at), content.offset(at)
        content.position += 1
        phases, is_more = 0, True
        while is_more:
            is_more, skipped = content.skip_to_candidate(_PERHAPS_EVENT, _PHASE)
            phases += skipped
            if is_more and content.is_event():
                issues.add("malformed", where, lost=max(1, phases))
                self._after_element = False
                return
        rest = content.held_from(offset)
        issues.add("torn_tail" if is_cut else "malformed", where, lost=max(1, phases))
        if is_cut or not rest.rstrip().endswith((b"]", b"}") if self._layout.is_document else b"]"):
            issues.add("unterminated", where)
        self._ended = True
        self.envelope = self._envelope_in_text(rest)

    def _close(self) -> None:
        """The bracket behind the last event, and what follows it."""
        content = self._content
        at = content.position
        content.require(_SMALLEST_WINDOW)
        stray = _STRAY_BRACKET.match(content.data, at)
        if stray is not None:
            content.position = stray.end()
            if content.is_event():
                self._issues.add("malformed", content.where(at), lost=1)
                content.position, self._after_element = at + 1, True
                return
        content.position = at + 1
        content.skip_space()
        following = content.data[content.position : content.position + 1]
        if following and following not in (b"},\0" if self._layout.is_document else b"[{,\0"):
            content.position = at
            self._skip_damage(at, is_cut=False)
            return
        content.position = at + 1
        content.require(_LONGEST_TRAILER)
        self._end(content.data[at + 1 :], is_closed=True)

    def _end(self, trailer: bytes, *, is_closed: bool) -> None:
        """Read what stands around the events: their document's other members."""
        self._ended = True
        issues, where = self._issues, self._content.where(self._content.position)
        if not self._layout.is_document:
            if trailer.strip():
                self._lose_trailer(trailer, where)
            return
        header = self._layout.header.removeprefix(b"\xef\xbb\xbf")
        if not is_utf8(header + trailer):
            issues.add("invalid_utf8", where)
        before, after = header.decode(errors="replace").strip(), trailer.decode(errors="replace")
        document = self._document(before + "]" + (after if is_closed else "}"), where)
        if document is not None and not document.get("traceEvents"):
            self.envelope = envelope_of(document)
            return
        self.envelope = self._envelope_in_text(trailer)
        if is_closed:
            self._check_trailer(trailer, is_whole=document is not None, where=where)

    def _check_trailer(self, trailer: bytes, *, is_whole: bool, where: str) -> None:
        """Count what is wrong behind the events of a document; `is_whole`: it parses, and has other events in there."""
        issues, after = self._issues, _escaped(trailer)
        try:
            _, end = parse_value('{"": 0' + after, 0)
        except DamagedError as error:
            if error.is_cut:
                issues.add("unterminated", where)
            if not error.is_cut:
                self._lose_trailer(trailer, where)
            elif after.strip():
                issues.add("damaged_document", where, lost=1)
            return
        behind = after[end - len('{"": 0') :].strip()
        if behind or is_whole:
            self._lose_trailer(trailer, where)
        else:
            issues.add("damaged_document", where, lost=1)

    def _lose_trailer(self, trailer: bytes, where: str) -> None:
        """Count data behind the end, which may be another trace: nobody knows whether on the same clock."""
        self._issues.add("trailing_data", where, lost=max(1, trailer.count(_PHASE)))

    def _envelope_in_text(self, trailer: bytes) -> Envelope:
        if not self._layout.is_document:
            return Envelope()
        before = self._layout.header.removeprefix(b"\xef\xbb\xbf").decode(errors="replace").strip()
        document = self._document(before + "]}")
        in_header = envelope_of(document) if document is not None else envelope_in_text(before)
        in_trailer = envelope_in_text(_escaped(trailer))
        return Envelope(
            rank=in_trailer.rank if in_header.rank is None else in_header.rank,
            world_size=in_trailer.world_size if in_header.world_size is None else in_header.world_size,
            base_ns=in_trailer.base_ns if in_header.base_ns is None else in_header.base_ns,
            devices=in_header.devices or in_trailer.devices,
            environment=in_header.environment or in_trailer.environment,
        )

    def _document(self, text: str, where: str = "") -> dict[str, Any] | None:
        """The object that the text around the events is; None when it is none. With `where`, repairs are counted."""
        escaped = double_stray_backslashes(text)
        try:
            value = LENIENT_JSON.decode(escaped.text)
        except (RecursionError, ValueError):
            return None
        if escaped.stray and where:
            self._issues.add("invalid_escape", where)
        return value if isinstance(value, dict) else None

    def _line_batch(self, lines: Lines) -> Batch:
        """The events of whole lines: together where each line is an event, else line by line."""
        text = lines.content
        if is_utf8(text):
            starts = [0, *(match.end() for match in re.finditer(rb"\n(?=.)", text))]
            events = _decode_lines(text)
            if events is not None and len(events) == len(starts):
                offsets = np.array(starts, dtype=np.int64) + lines.offset
                return self._batch(events, offsets, text, starts, [*starts[1:], len(text)])
        found, places = [], []
        offset = lines.offset
        for number, line in enumerate(text.split(b"\n"), lines.line):
            where = f"line {number}, byte {offset}"
            content = line.removeprefix(b"\xef\xbb\xbf") if offset == 0 else line
            shift = len(line) - len(content)
            # In Latin-1 a character is a byte: places in the text are places in the line.
            escaped = double_stray_backslashes(content.decode("latin-1"))
            objects = line_objects(escaped.text, where, self._issues, _is_event)
            for start, end in objects:
                raw = escaped.text[start:end].encode("latin-1")
                if _EMPTY.fullmatch(raw):
                    continue
                try:
                    found.append(event_of(raw))
                except (RecursionError, ValueError):
                    self._issues.add("malformed", where, lost=1)
                    continue
                first = escaped.before(start)
                places.append(offset + shift + first)
                if escaped.has_stray(first, escaped.before(end)):
                    self._issues.add("invalid_escape", where)
            if objects and not is_utf8(line):
                self._issues.add("invalid_utf8", where)
            offset += len(line) + 1
        return Batch(found, np.array(places, dtype=np.int64))


def _escaped(text: bytes) -> str:
    return double_stray_backslashes(text.decode(errors="replace")).text


def _joined(singles: Sequence[tuple[Event, int]]) -> Batch:
    return Batch([event for event, _ in singles], np.array([offset for _, offset in singles], dtype=np.int64))


def _is_event(record: dict[str, Any]) -> bool:
    return isinstance(record.get("ph"), str)


def _decode_array(body: bytes) -> list[Event] | None:
    try:
        return EVENTS.decode(b"[" + body + b"]")
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None


def _decode_lines(text: bytes) -> list[Event] | None:
    try:
        return EVENT.decode_lines(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
