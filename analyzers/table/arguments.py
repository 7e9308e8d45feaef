"""Arguments of spans, decoded only when somebody asks for those of one row."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import msgspec

from analyzers.json_text import valid_text
from analyzers.table.json_escapes import double_stray_backslashes

_WINDOW = 4096
_LONGEST_INTEGER = 4000
"""Digits beyond which Python reads no integer."""


def _exact_integer(digits: str) -> int | str:
    return int(digits) if len(digits) <= _LONGEST_INTEGER else digits


LENIENT_JSON = json.JSONDecoder(parse_int=_exact_integer)
"""JSON as Python reads it, NaN included; an integer of thousands of digits stays text."""


class ArgumentSource(Protocol):
    """Where the arguments of spans lie; a span keeps its position in it."""

    def read(self, position: int) -> dict[str, Any]:
        """The arguments at `position`; {} when there are none."""
        ...


class ArgumentList:
    """Arguments kept in memory: decoded, or as the raw JSON they were read from."""

    def __init__(self) -> None:
        self._items: list[dict[str, Any] | bytes] = []

    def add(self, arguments: dict[str, Any] | bytes) -> int:
        """Keep `arguments`; returns their position."""
        self._items.append(arguments)
        return len(self._items) - 1

    def read(self, position: int) -> dict[str, Any]:
        """The arguments at `position`."""
        item = self._items[position]
        return decode_arguments(item) if isinstance(item, bytes) else item


def arguments_of_event(file: BinaryIO) -> dict[str, Any]:
    """The arguments of the Chrome trace event that starts where `file` stands."""
    content = b""
    while more := file.read(max(_WINDOW, len(content))):
        content += more
        try:
            event, _ = _first_value(content.decode(errors="replace"))
            arguments = event.get("args") if isinstance(event, dict) else None
            return valid_text(arguments) if isinstance(arguments, dict) else {}
        except RecursionError:
            return {}
        except ValueError:
            continue
    return {}


def _first_value(text: str) -> tuple[Any, int]:
    """The JSON value that `text` begins with, stray backslashes doubled, and its end.

    Raises:
        ValueError: there is none, or its end is not in `text`.
    """
    try:
        return LENIENT_JSON.raw_decode(text)
    except ValueError:
        return LENIENT_JSON.raw_decode(double_stray_backslashes(text).text)


class ArgumentFile:
    """Arguments left in their file: a position is the byte offset of an event or a record.

    A file that changed since it was read has no arguments: they would be those of another event.
    """

    def __init__(
        self, path: Path, arguments_at: Callable[[BinaryIO], dict[str, Any]] = arguments_of_event
    ) -> None:
        self._path = path
        self._version = _version(path)
        self._arguments_at = arguments_at

    def read(self, position: int) -> dict[str, Any]:
        """The arguments of what starts at byte `position`."""
        try:
            if _version(self._path) != self._version:
                return {}
            with self._path.open("rb") as file:
                file.seek(position)
                return self._arguments_at(file)
        except OSError:
            return {}


def decode_arguments(raw: bytes) -> dict[str, Any]:
    """The JSON object `raw` as it is, {} for anything else; bytes that are not UTF-8 become U+FFFD."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, ValueError):
        try:
            value = valid_text(LENIENT_JSON.decode(raw.decode(errors="replace")))
        except (RecursionError, ValueError):
            return {}
    return value if isinstance(value, dict) else {}


def _version(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns
