"""How a Chrome trace is laid out, by its first bytes: object, array or JSON lines."""

from __future__ import annotations

import re
from dataclasses import dataclass

from analyzers.readers.event_scan import depths_at
from analyzers.readers.json_objects import value_at
from analyzers.table.json_escapes import double_stray_backslashes

_ARRAY_START = re.compile(rb'"traceEvents"\s*:\s*\[')
_BARE_ARRAY = re.compile(rb"\[\s*([{\],]|$)")


@dataclass(frozen=True)
class Layout:
    """How a trace is laid out."""

    header: bytes
    """Everything before the first event."""
    is_lines: bool = False
    """JSON lines: no bracket around the events, no comma between them."""
    is_document: bool = False
    """The events are the member `traceEvents` of an object."""


def layout_of(head: bytes) -> Layout | None:
    """The layout of a trace by its first bytes; None when they are of something else."""
    start = len(head) - len(head.removeprefix(b"\xef\xbb\xbf").lstrip())
    if start == len(head):
        return Layout(head, is_lines=True)
    if _BARE_ARRAY.match(head, start):
        return Layout(head[: start + 1])
    if not head.startswith(b"{", start):
        return None
    array = _own_array(head, start) or _ARRAY_START.search(head, start)
    document = Layout(head[: array.end()], is_document=True) if array is not None else None
    lines = Layout(head[:start], is_lines=True)
    first = _first_line(head[start:])
    if first is None:
        return document or (lines if b'"ph"' in head else None)
    record = first[0]
    if not isinstance(record, dict):
        return None
    if document is not None and isinstance(record.get("traceEvents"), list):
        return document
    # One damaged line at the top makes the others no less events.
    return lines if "ph" in record or _second_is_an_event(head[start:]) else None


def _second_is_an_event(content: bytes) -> bool:
    second = content.partition(b"\n")[2].partition(b"\n")
    found = _first_line(second[0]) if second[1] else None
    return found is not None and isinstance(found[0], dict) and {"ph", "name"} <= found[0].keys()


def _own_array(head: bytes, start: int) -> re.Match[bytes] | None:
    """Where the events of the object at `start` begin; None when none of its own is in sight."""
    arrays = list(_ARRAY_START.finditer(head, start))
    depths = depths_at(head[start:], [array.start() - start for array in arrays])
    return arrays[depths.index(1)] if 1 in depths else None


def is_undecided(head: bytes) -> bool:
    """Whether `head` starts an object of several lines, or a long one, of whose own `traceEvents` nothing was met yet."""
    content = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not content.startswith(b"{"):
        return not content
    if _own_array(content, 0) is not None:
        return False
    return _first_line(content) is None


def _first_line(content: bytes) -> tuple[object, int] | None:
    """The JSON value that the first line begins with, and its end; None when there is none."""
    text = content.partition(b"\n")[0].decode(errors="replace")
    return value_at(double_stray_backslashes(text).text, 0)
