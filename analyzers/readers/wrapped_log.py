"""Logs that a container runtime or a JSON logger wrapped, line by line: the text that the processes wrote.

Docker's json-file driver and JSON loggers put each line in a string of an object; Kubernetes' runtimes (CRI) put time,
stream and a mark of partial lines before it. Long lines come in parts, which belong together within one stream.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from analyzers.errors import UnusableInputError
from analyzers.readers.files import whole_lines

_CRI = re.compile(
    rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d) (stdout|stderr) ([FP])(?::[^ ]*)? (.*)",
    re.DOTALL,
)
_KEYS = ("log", "message", "msg", "MESSAGE")
"""Where a logger puts the text, when no record in the head of the file shows it."""

_LINES_OF_HEAD = 200
"""Lines without any record that are looked at before a file is taken for plain text."""


class _Part(NamedTuple):
    """A line, or a part of one."""

    stream: str
    text: bytes
    is_last: bool
    """Whether the line ends with it."""


def unwrapped(
    pieces: Iterable[bytes], head: bytes, name: str, markers: tuple[bytes, ...]
) -> Iterator[bytes] | None:
    """The text inside of a wrapped log, in pieces of whole lines; None for a log that is not wrapped.

    `head` is the begin of the content, by which it is decided; `markers` tell a record of the runtime.

    Raises:
        UnusableInputError: the lines are JSON that holds records, but in none of its strings on the first level.
    """
    part_of = _unwrapper(head, name, markers)
    return None if part_of is None else _joined(pieces, part_of)


def _unwrapper(head: bytes, name: str, markers: tuple[bytes, ...]) -> Callable[[bytes], _Part] | None:
    lines = [line for line in head.split(b"\n") if line.strip()]
    telling = next((line for line in lines if any(marker in line for marker in markers)), b"")
    for line in [telling] if telling else lines[:_LINES_OF_HEAD]:
        if _CRI.match(line):
            return _cri_part
        document = _object(line)
        if document is None:
            continue
        key = _key_of_text(document, markers if telling else ())
        if key is not None:
            return _json_part(key, _ends_lines(lines, key))
        if telling:
            raise UnusableInputError(
                f"{name}: each line is a JSON object whose text lies deeper inside: write out the text of the lines "
                "(for example with jq -r) and analyze that"
            )
    return None


def _key_of_text(document: dict[str, Any], markers: tuple[bytes, ...]) -> str | None:
    for key, value in document.items():
        text = value.encode(errors="replace") if isinstance(value, str) else b""
        if any(marker in text for marker in markers):
            return key
    known = next((key for key in _KEYS if isinstance(document.get(key), str)), None)
    return None if markers else known


def _ends_lines(lines: list[bytes], key: str) -> bool:
    """Whether the strings hold line ends, so that one without is a part of a line."""
    texts = (document.get(key) for line in lines if (document := _object(line)) is not None)
    return any(isinstance(text, str) and text.endswith("\n") for text in texts)


def _object(line: bytes) -> dict[str, Any] | None:
    """The JSON object of a line; None when it is none."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        document = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            document = json.loads(line.decode(errors="replace"))
        except (ValueError, RecursionError):
            return None
    return document if isinstance(document, dict) else None


def _cri_part(line: bytes) -> _Part:
    match = _CRI.match(line)
    if match is None:
        return _Part("", line, is_last=True)
    return _Part(match[1].decode(), match[3], is_last=match[2] == b"F")


def _json_part(key: str, ends_lines: bool) -> Callable[[bytes], _Part]:
    def part(line: bytes) -> _Part:
        # Of an object that was cut off, what its string holds up to there.
        document = _object(line) or _object(line + b'"}') or {}
        text = document.get(key)
        if not isinstance(text, str):
            return _Part("", b"" if document else line, is_last=True)
        stream = document.get("stream")
        is_last = not ends_lines or text.endswith("\n")
        content = text.removesuffix("\n").encode(errors="replace")
        return _Part(stream if isinstance(stream, str) else "", content, is_last)

    return part


def _joined(pieces: Iterable[bytes], part_of: Callable[[bytes], _Part]) -> Iterator[bytes]:
    begun: dict[str, list[bytes]] = {}
    for lines in whole_lines(pieces):
        whole: list[bytes] = []
        for line in lines.content.splitlines():
            part = part_of(line)
            if not part.is_last:
                begun.setdefault(part.stream, []).append(part.text)
                continue
            whole.append(b"".join([*begun.pop(part.stream, []), part.text, b"\n"]))
        yield b"".join(whole)
    for rest in begun.values():
        yield b"".join([*rest, b"\n"])
