"""The events of a Chrome trace in any of its shapes: object, array or JSON lines, whole or damaged."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

import msgspec

from analyzers.errors import UnusableInputError
from analyzers.readers.json_objects import decode_text, iterate_array, iterate_lines, value_at
from analyzers.readers.load import IssueCounter

_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d{1,3})?", re.ASCII)
_ARRAY_START = re.compile(r'"traceEvents"\s*:\s*\[')
_LARGEST_EXPONENT = 17
"""Microseconds of 10**17 are beyond int64 ns; a larger exponent is not worth computing."""

_LARGEST_NS = 2**62
"""146 years: the sum and difference of two such times still fit int64."""


class Event(msgspec.Struct, gc=False):
    """One trace event. Nothing about its types is believed: times stay raw text until they are read exactly."""

    ph: Any = None
    name: Any = None
    cat: Any = None
    ts: msgspec.Raw = msgspec.Raw()
    dur: msgspec.Raw = msgspec.Raw()
    pid: Any = None
    tid: Any = None
    id: Any = None
    id2: Any = None
    scope: Any = None
    args: Any = None


class _Document(msgspec.Struct):
    trace_events: list[Event] = msgspec.field(name="traceEvents")
    distributed_info: Any = msgspec.field(name="distributedInfo", default=None)


_document = msgspec.json.Decoder(_Document)
_array = msgspec.json.Decoder(list[Event])
_event = msgspec.json.Decoder(Event)


class Events(msgspec.Struct):
    """Every event of a file, and the rank the file names for itself."""

    events: list[Event]
    rank: int | None = None


def read_events(data: bytes, path: str, issues: IssueCounter) -> Events:
    """The events of `data`; repairs and losses go to `issues`.

    Raises:
        UnusableInputError: the content is no trace in any of the three shapes.
    """
    content = data.removeprefix(b"\xef\xbb\xbf").strip()
    if not content:
        return Events([])
    if content.startswith(b"["):
        return Events(_read_array(content, issues))
    if not content.startswith(b"{"):
        raise UnusableInputError(f"{path}: not a trace: neither JSON nor a log with [STRACE] records")
    try:
        document = _document.decode(content)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return _read_damaged_object(content, path, issues)
    return Events(document.trace_events, _rank(document.distributed_info))


def nanoseconds(raw: msgspec.Raw) -> int | None:
    """A time in microseconds, number or string, as exact ns; None when it is no number or beyond int64.

    Digits beyond the nanosecond are rounded half to even.
    """
    text = bytes(raw).decode(errors="replace").strip().strip('"').strip()
    if not _NUMBER.fullmatch(text):
        return None
    if len(text) < 16 and text.isdecimal():
        return int(text) * 1000
    number = Decimal(text)
    if number.adjusted() > _LARGEST_EXPONENT:
        return None
    value = int((number * 1000).to_integral_value())
    return value if abs(value) <= _LARGEST_NS else None


def _read_array(content: bytes, issues: IssueCounter) -> list[Event]:
    try:
        return _array.decode(content)
    except (msgspec.DecodeError, RecursionError, ValueError):
        text = decode_text(content, issues)
        return list(_events(iterate_array(text, 1, issues)))


def _read_damaged_object(content: bytes, path: str, issues: IssueCounter) -> Events:
    text = decode_text(content, issues)
    start = _ARRAY_START.search(text)
    if start is not None:
        events = list(_events(iterate_array(text, start.end(), issues)))
        return Events(events, _rank_in_text(text))
    first = value_at(text, 0)
    if first is not None and not (isinstance(first[0], dict) and "ph" in first[0]):
        raise UnusableInputError(f"{path}: not a trace: no traceEvents")
    lines = iterate_lines(text, issues)
    events = list(_events(line for _, line in lines))
    if not events:
        raise UnusableInputError(f"{path}: not a trace: no traceEvents and no line that is an event")
    return Events(events)


def _events(texts: Iterable[str]) -> Iterator[Event]:
    for text in texts:
        try:
            yield _event.decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError, ValueError):
            yield _lenient_event(json.loads(text))


def _lenient_event(value: dict[str, Any]) -> Event:
    """An event of JSON that only Python reads (NaN, lone surrogates): strings become valid UTF-8."""
    fields = {
        key: value[key]
        for key in ("ph", "name", "cat", "pid", "tid", "id", "id2", "scope", "args")
        if key in value
    }
    event = Event(**{key: _valid_text(field) for key, field in fields.items()})
    for key in ("ts", "dur"):
        if key in value:
            setattr(event, key, msgspec.Raw(json.dumps(value[key]).encode()))
    return event


def _valid_text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, list):
        return [_valid_text(item) for item in value]
    if isinstance(value, dict):
        return {_valid_text(key): _valid_text(item) for key, item in value.items()}
    return value


def _rank(distributed_info: Any) -> int | None:
    rank = distributed_info.get("rank") if isinstance(distributed_info, dict) else None
    return rank if isinstance(rank, int) and 0 <= rank < 2**31 else None


def _rank_in_text(text: str) -> int | None:
    """The rank of a damaged document: its `distributedInfo` object, wherever it stands."""
    match = re.search(r'"distributedInfo"\s*:\s*(?=\{)', text)
    found = value_at(text, match.end()) if match else None
    return _rank(found[0]) if found else None
