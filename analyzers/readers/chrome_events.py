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
from analyzers.readers.load import IssueCounter, ReadAs

_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d{1,3})?", re.ASCII)
ARRAY_START = re.compile(rb'"traceEvents"\s*:\s*\[')
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
    args: msgspec.Raw = msgspec.Raw()


class _Document(msgspec.Struct):
    trace_events: list[Event] = msgspec.field(name="traceEvents")
    distributed_info: Any = msgspec.field(name="distributedInfo", default=None)
    base_time: Any = msgspec.field(name="baseTimeNanoseconds", default=None)


class _Array(msgspec.Struct):
    """What stands around the events of a document."""

    trace_events: list[msgspec.Raw] = msgspec.field(name="traceEvents")
    distributed_info: Any = msgspec.field(name="distributedInfo", default=None)
    base_time: Any = msgspec.field(name="baseTimeNanoseconds", default=None)


_document = msgspec.json.Decoder(_Document)
_around = msgspec.json.Decoder(_Array)
_array = msgspec.json.Decoder(list[Event])
_event = msgspec.json.Decoder(Event)


class Envelope(msgspec.Struct, frozen=True):
    """What a document says about all its events; None is what it does not say."""

    rank: int | None = None
    world_size: int | None = None
    base_ns: int | None = None
    """`baseTimeNanoseconds`: the wall time, in ns since 1970, that the events' times count from."""


class Events(msgspec.Struct):
    """Every event of a file, and what the file says about them."""

    events: list[Event]
    read_as: ReadAs
    envelope: Envelope = Envelope()


def read_events(data: bytes, path: str, issues: IssueCounter) -> Events:
    """The events of `data`; repairs and losses go to `issues`.

    Raises:
        UnusableInputError: the content is no trace in any of the three shapes.
    """
    content = data.removeprefix(b"\xef\xbb\xbf").strip()
    if not content:
        return Events([], "whole")
    if not content.startswith((b"[", b"{")):
        raise UnusableInputError(f"{path}: not a trace: neither JSON nor a log with [STRACE] records")
    try:
        if not content.isascii():
            content.decode()  # arguments stay raw: their bytes are checked here or nowhere
        if content.startswith(b"["):
            return Events(_array.decode(content), "whole")
        document = _document.decode(content)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return _read_damaged(content, path, issues)
    envelope = _envelope(document.distributed_info, document.base_time)
    return Events(document.trace_events, "whole", envelope)


def decode_envelope(content: bytes) -> Envelope | None:
    """What stands around the events of a trace: an array or a document with an empty one; None when it is neither."""
    if content.strip() == b"[]":
        return Envelope()
    try:
        content.decode()  # what is skipped is not checked by the decoder
        around = _around.decode(content)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    return None if around.trace_events else _envelope(around.distributed_info, around.base_time)


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


def _read_damaged(content: bytes, path: str, issues: IssueCounter) -> Events:
    text = decode_text(content, issues)
    array = re.compile(ARRAY_START.pattern.decode()).search(text)
    if text.startswith("["):
        return Events(list(events_of(iterate_array(text, 1, issues))), "repaired")
    if array is not None:
        events = list(events_of(iterate_array(text, array.end(), issues, in_object=True)))
        document = value_at(text, 0)
        if not issues.repaired and (document is None or text[document[1] :].strip()):
            issues.add("damaged_document", "line 1", lost=1)
        return Events(events, "repaired", _envelope_in_text(text))
    first = value_at(text, 0)
    if first is not None and not (isinstance(first[0], dict) and "ph" in first[0]):
        raise UnusableInputError(f"{path}: not a trace: no traceEvents")
    events = list(events_of(line for _, line in iterate_lines(text, issues)))
    if not events:
        raise UnusableInputError(f"{path}: not a trace: no traceEvents and no line that is an event")
    return Events(events, "repaired" if issues.issues() else "whole")


def events_of(texts: Iterable[str]) -> Iterator[Event]:
    """The event in each text, a JSON object by Python's reading."""
    for text in texts:
        try:
            yield _event.decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError, ValueError):
            yield _lenient_event(json.loads(text))


def _lenient_event(value: dict[str, Any]) -> Event:
    """An event of JSON that only Python reads (NaN, lone surrogates): strings become valid UTF-8."""
    fields = {
        key: value[key] for key in ("ph", "name", "cat", "pid", "tid", "id", "id2", "scope") if key in value
    }
    event = Event(**{key: _valid_text(field) for key, field in fields.items()})
    for key in ("ts", "dur", "args"):
        if key in value:
            setattr(event, key, msgspec.Raw(json.dumps(_valid_text(value[key])).encode()))
    return event


def _valid_text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, list):
        return [_valid_text(item) for item in value]
    if isinstance(value, dict):
        return {_valid_text(key): _valid_text(item) for key, item in value.items()}
    return value


def _envelope(distributed_info: Any, base_time: Any) -> Envelope:
    information = distributed_info if isinstance(distributed_info, dict) else {}
    return Envelope(
        rank=_count(information.get("rank"), 2**31),
        world_size=_count(information.get("world_size"), 2**31),
        base_ns=_count(base_time, _LARGEST_NS),
    )


def _count(value: Any, limit: int) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit else None


def _envelope_in_text(text: str) -> Envelope:
    """What a damaged document says: its `distributedInfo` and `baseTimeNanoseconds`, wherever they stand."""
    found = []
    for pattern in (r'"distributedInfo"\s*:\s*(?=\{)', r'"baseTimeNanoseconds"\s*:\s*(?=\d)'):
        match = re.search(pattern, text)
        value = value_at(text, match.end()) if match else None
        found.append(value[0] if value else None)
    return _envelope(*found)
