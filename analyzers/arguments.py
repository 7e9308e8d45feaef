"""Arguments of spans, decoded only when somebody asks for those of one row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

import msgspec

_WINDOW = 4096


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


class ArgumentFile:
    """Arguments left in their trace file: a position is the byte offset of an event.

    A file that changed since it was read has no arguments: they would be those of another event.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version = _version(path)

    def read(self, position: int) -> dict[str, Any]:
        """The arguments of the event that starts at byte `position`."""
        try:
            if _version(self._path) != self._version:
                return {}
            with self._path.open("rb") as file:
                return _arguments_of_event(file, position)
        except OSError:
            return {}


def decode_arguments(raw: bytes) -> dict[str, Any]:
    """The JSON object `raw` as it is, {} for anything else; bytes that are not UTF-8 become U+FFFD."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, ValueError):
        try:
            value = json.loads(raw.decode(errors="replace").encode(errors="replace"))
        except (RecursionError, ValueError):
            return {}
    return value if isinstance(value, dict) else {}


def _version(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _arguments_of_event(file: Any, position: int) -> dict[str, Any]:
    file.seek(position)
    content = b""
    while more := file.read(max(_WINDOW, len(content))):
        content += more
        try:
            event, _ = json.JSONDecoder().raw_decode(content.decode(errors="replace"))
        except (RecursionError, ValueError):
            continue
        arguments = event.get("args") if isinstance(event, dict) else None
        return arguments if isinstance(arguments, dict) else {}
    return {}
