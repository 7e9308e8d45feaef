"""How a Chrome trace is laid out, by its first bytes: object, array or JSON lines."""

from __future__ import annotations

import re
from dataclasses import dataclass

from analyzers.readers.event_scan import depth_at
from analyzers.readers.json_objects import value_at

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
    arrays = list(_ARRAY_START.finditer(head))
    first = value_at(head[start:].partition(b"\n")[0].decode(errors="replace"), 0)
    if first is None and arrays:
        own = (array for array in arrays if depth_at(head[start:], array.start() - start) == 1)
        return Layout(head[: next(own, arrays[0]).end()], is_document=True)
    if first is None:
        return Layout(head[:start], is_lines=True) if b'"ph"' in head else None
    record = first[0]
    if not isinstance(record, dict):
        return None
    if isinstance(record.get("traceEvents"), list) and arrays:
        own = (array for array in arrays if depth_at(head[start:], array.start() - start) == 1)
        return Layout(head[: next(own, arrays[0]).end()], is_document=True)
    return Layout(head[:start], is_lines=True) if "ph" in record else None


def is_undecided(head: bytes) -> bool:
    """Whether `head` starts an object of several lines, or a long one, in which no `traceEvents` was met yet."""
    content = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not content.startswith(b"{") or _ARRAY_START.search(content):
        return not content
    return value_at(content.partition(b"\n")[0].decode(errors="replace"), 0) is None
