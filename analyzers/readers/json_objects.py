"""JSON objects out of text that may be cut, glued or damaged: nothing readable is lost, everything else is counted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from analyzers.readers.load import IssueCounter

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"\s*")
_PERHAPS_EVENT = re.compile(r"[,\n]\s*(?=\{)")


def decode_text(data: bytes, issues: IssueCounter) -> str:
    """`data` as text; bytes that are not UTF-8 become U+FFFD and their lines are counted."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("utf-8-sig", errors="replace")
        bad_lines = [number for number, line in enumerate(text.split("\n"), 1) if "\ufffd" in line]
        issues.add("invalid_utf8", f"line {bad_lines[0]}", count=len(bad_lines))
        return text


def skip_space(text: str, position: int) -> int:
    """The first position at or after `position` that holds no white space."""
    match = _SPACE.match(text, position)
    return match.end() if match else position


def value_at(text: str, position: int) -> tuple[object, int] | None:
    """The JSON value that starts at `position` and its end; None when none does."""
    try:
        return _DECODER.raw_decode(text, position)
    except (ValueError, RecursionError):
        return None


def line_of(text: str, position: int) -> str:
    """`line <n>` of a position, as issues name places."""
    return f"line {text.count(chr(10), 0, position) + 1}"


def iterate_lines(text: str, issues: IssueCounter) -> Iterator[tuple[int, str]]:
    """(line number, text of one JSON object) of JSON lines; two objects on one line both count."""
    for number, line in enumerate(text.split("\n"), 1):
        position = skip_space(line, 0)
        objects = 0
        while position < len(line):
            found = value_at(line, position)
            if found is None or not isinstance(found[0], dict):
                issues.add("bad_line", f"line {number}", lost=1)
                break
            objects += 1
            yield number, line[position : found[1]]
            position = skip_space(line, found[1])
        if objects > 1:
            issues.add("glued_lines", f"line {number}")


def iterate_array(text: str, start: int, issues: IssueCounter) -> Iterator[str]:
    """The text of every object in the array whose elements begin at `start` (after its bracket).

    Stray commas are skipped; after a damaged element, reading goes on at the next object that is an event.
    """
    position = start
    after_element = False
    while True:
        position = skip_space(text, position)
        if position >= len(text):
            issues.add("unterminated", line_of(text, position))
            return
        if text[position] == "]":
            return
        if text[position] == ",":
            following = skip_space(text, position + 1)
            if not after_element or text[following : following + 1] == "]":
                issues.add("commas_ignored", line_of(text, position))
            position, after_element = position + 1, False
            continue
        if after_element:
            issues.add("commas_missing", line_of(text, position))
        found = value_at(text, position)
        if found is None:
            resume = _next_event(text, position)
            if resume is None:
                _count_tail(text, position, issues)
                return
            issues.add("malformed", line_of(text, position), lost=1)
            position, after_element = resume, False
            continue
        value, end = found
        if isinstance(value, dict):
            yield text[position:end]
        else:
            issues.add("malformed", line_of(text, position), lost=1)
        position, after_element = end, True


def _next_event(text: str, position: int) -> int | None:
    """Where the next object with a phase starts after a damaged element."""
    for match in _PERHAPS_EVENT.finditer(text, position):
        found = value_at(text, match.end())
        if found is not None and isinstance(found[0], dict) and "ph" in found[0]:
            return match.end()
    return None


def _count_tail(text: str, position: int, issues: IssueCounter) -> None:
    """Count the last, damaged element: torn off with the end of the file, or malformed before the bracket."""
    if text.find("]", position) < 0:
        issues.add("torn_tail", line_of(text, position), lost=1)
        issues.add("unterminated", line_of(text, position))
    else:
        issues.add("malformed", line_of(text, position), lost=1)
