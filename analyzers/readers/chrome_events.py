"""Chrome trace events and what a document says about all of them, as records of which nothing is believed."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import msgspec

from analyzers.json_text import valid_text
from analyzers.readers.json_objects import value_at
from analyzers.readers.load_report import IssueKind
from analyzers.readers.utf8 import is_utf8
from analyzers.rundir import DEVICE_VARIABLES
from analyzers.table.arguments import LENIENT_JSON
from analyzers.table.json_escapes import double_stray_backslashes

_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d{1,3})?", re.ASCII)
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


EVENT = msgspec.json.Decoder(Event)
EVENTS = msgspec.json.Decoder(list[Event])


class Envelope(msgspec.Struct, frozen=True):
    """What a document says about all its events; None is what it does not say."""

    rank: int | None = None
    world_size: int | None = None
    base_ns: int | None = None
    """`baseTimeNanoseconds`: the wall time, in ns since 1970, that the events' times count from."""
    devices: tuple[int, ...] = ()
    """Numbers of the devices in `deviceProperties`."""
    environment: dict[str, str] = {}
    """Variables that say which devices the process sees."""


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


def text_of(value: Any) -> str:
    """A name or a category as text; "" for a missing one."""
    if isinstance(value, str):
        return value
    return "" if value is None else str(value)


def event_of(raw: bytes) -> Event:
    """The event in `raw`, a JSON object by Python's reading.

    Bytes that are not UTF-8 become U+FFFD, and a backslash that begins no escape stands for itself.

    Raises:
        ValueError, RecursionError: it is none.
    """
    text = raw.decode(errors="replace")
    try:
        return EVENT.decode(text.encode())
    except (msgspec.DecodeError, RecursionError, ValueError):
        text = double_stray_backslashes(text).text
        return _lenient_event(LENIENT_JSON.decode(text))


def damage_of(raw: bytes) -> list[IssueKind]:
    """What was repaired to read the event in `raw`."""
    found: list[IssueKind] = []
    if not is_utf8(raw):
        found.append("invalid_utf8")
    if double_stray_backslashes(raw.decode("latin-1")).stray:
        found.append("invalid_escape")
    return found


def _lenient_event(value: dict[str, Any]) -> Event:
    """An event of JSON that only Python reads (NaN, lone surrogates): strings become valid UTF-8."""
    fields = {
        key: value[key] for key in ("ph", "name", "cat", "pid", "tid", "id", "id2", "scope") if key in value
    }
    event = Event(**{key: valid_text(field) for key, field in fields.items()})
    for key in ("ts", "dur", "args"):
        if key in value:
            setattr(event, key, msgspec.Raw(json.dumps(valid_text(value[key])).encode()))
    return event


def envelope_of(document: dict[str, Any]) -> Envelope:
    """The `Envelope` of a document, whatever stands in its fields."""
    distributed_info = document.get("distributedInfo")
    information = distributed_info if isinstance(distributed_info, dict) else {}
    return Envelope(
        rank=_count(information.get("rank"), 2**31),
        world_size=_count(information.get("world_size"), 2**31),
        base_ns=_count(document.get("baseTimeNanoseconds"), _LARGEST_NS),
        devices=_devices(document.get("deviceProperties")),
        environment=_environment(document),
    )


def _devices(properties: Any) -> tuple[int, ...]:
    entries = properties if isinstance(properties, list) else []
    found = [_count(entry.get("id"), 2**31) for entry in entries if isinstance(entry, dict)]
    return tuple(device for device in found if device is not None)


def _environment(document: dict[str, Any]) -> dict[str, str]:
    """The variables as metadata of the document, or in one of the objects that metadata stands in."""
    places = [document, *(document.get(key) for key in ("environment", "env", "otherData", "metadata"))]
    return {
        name: place[name]
        for place in places
        if isinstance(place, dict)
        for name in DEVICE_VARIABLES
        if isinstance(place.get(name), str)
    }


def envelope_in_text(text: str) -> Envelope:
    """What a damaged document says: its `distributedInfo` and `baseTimeNanoseconds`, wherever they stand."""
    found = {}
    for key, start in (("distributedInfo", r"\{"), ("baseTimeNanoseconds", r"\d")):
        match = re.search(rf'"{key}"\s*:\s*(?={start})', text)
        value = value_at(text, match.end()) if match else None
        found[key] = value[0] if value else None
    return envelope_of(found)


def _count(value: Any, limit: int) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit else None
