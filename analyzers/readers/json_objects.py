"""JSON objects out of text that may be cut, glued or damaged: nothing readable is lost, everything else is counted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from analyzers.readers.load import IssueCounter

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")
_PERHAPS_EVENT = re.compile(r"[,\n][ \t\r\n]*(?=\{)")


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


class LineNumbers:
    """`line <n>` of positions in a text, as issues name places; positions should not decrease."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._line = 1

    def at(self, position: int) -> str:
        """The line of `position`."""
        if position < self._position:
            self._position, self._line = 0, 1
        self._line += self._text.count("\n", self._position, position)
        self._position = position
        return f"line {self._line}"


def iterate_lines(text: str, issues: IssueCounter, *, first_line: int = 1) -> Iterator[tuple[int, str]]:
    """(line number, text of one JSON object) of JSON lines; two objects on one line both count."""
    for number, line in enumerate(text.split("\n"), first_line):
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


def iterate_array(text: str, start: int, issues: IssueCounter, *, in_object: bool = False) -> Iterator[str]:
    """The text of every object in the array whose elements begin at `start` (after its bracket).

    Stray commas are skipped; after a damaged element, reading goes on at the next object that is an event.
    `in_object` tells that more members of an object may follow the array.
    """
    lines = LineNumbers(text)
    position = start
    after_element = False
    while True:
        position = skip_space(text, position)
        if position >= len(text):
            issues.add("unterminated", lines.at(position))
            return
        if text[position] == "]":
            if not _is_end(text, position + 1, in_object=in_object):
                issues.add("trailing_data", lines.at(position), lost=1)
            return
        if text[position] == ",":
            following = skip_space(text, position + 1)
            if not after_element or text[following : following + 1] == "]":
                issues.add("commas_ignored", lines.at(position))
            position, after_element = position + 1, False
            continue
        if after_element:
            issues.add("commas_missing", lines.at(position))
        found = value_at(text, position)
        if found is None:
            resume = _next_event(text, position)
            if resume is None:
                _count_tail(text, position, issues, lines)
                return
            issues.add("malformed", lines.at(position), lost=1)
            position, after_element = resume, False
            continue
        value, end = found
        if isinstance(value, dict):
            yield text[position:end]
        else:
            issues.add("malformed", lines.at(position), lost=1)
        position, after_element = end, True


def _is_end(text: str, position: int, *, in_object: bool) -> bool:
    """Whether nothing but the rest of the object around it follows an array's bracket."""
    rest = text[position:].strip()
    if not in_object or not rest:
        return not rest
    found = value_at('{"": 0' + rest, 0)
    return found is not None and found[1] == len('{"": 0' + rest)


def _next_event(text: str, position: int) -> int | None:
    """Where the next object with a phase starts after a damaged element."""
    for match in _PERHAPS_EVENT.finditer(text, position):
        found = value_at(text, match.end())
        if found is not None and isinstance(found[0], dict) and "ph" in found[0]:
            return match.end()
    return None


def _count_tail(text: str, position: int, issues: IssueCounter, lines: LineNumbers) -> None:
    """Count the last, damaged element: torn off with the end of the file, or malformed before the bracket."""
    if text.find("]", position) < 0:
        issues.add("torn_tail", lines.at(position), lost=1)
        issues.add("unterminated", lines.at(position))
    else:
        issues.add("malformed", lines.at(position), lost=1)
