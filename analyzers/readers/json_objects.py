"""JSON objects out of text that may be cut, glued or damaged: nothing readable is lost, everything else is counted."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from analyzers.readers.load_report import IssueCounter
from analyzers.readers.utf8 import damaged_lines
from analyzers.table.arguments import LENIENT_JSON
from analyzers.table.json_escapes import double_stray_backslashes

_SPACE = re.compile(r"[ \t\r\n]*")
_OBJECT = re.compile(r'\{(?=\s*")')
_WORD_CUT = re.compile(
    r"|t|tr|tru|f|fa|fal|fals|n|nu|nul|N|Na|-?(I|In|Inf|Infi|Infin|Infini|Infinit)|[-+.eE\d]+"
)
"""What the end of a text leaves unread of a word or a number."""

_FIRST_LINES = 20
"""Lines of which one must be a whole record to tell what a file is."""


def decode_text(data: bytes, issues: IssueCounter) -> str:
    """`data` as text; bytes that are not UTF-8 become U+FFFD and their lines are counted."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("utf-8-sig", errors="replace")
        damaged = damaged_lines(data)
        issues.add("invalid_utf8", f"line {damaged[0]}", count=len(damaged))
        return text


def skip_space(text: str, position: int) -> int:
    """The first position at or after `position` that holds no white space."""
    match = _SPACE.match(text, position)
    return match.end() if match else position


class DamagedError(ValueError):
    """No JSON value starts here; `is_cut` tells that one may, and goes on behind the end of the text."""

    def __init__(self, *, is_cut: bool) -> None:
        super().__init__("no JSON value")
        self.is_cut = is_cut


def parse_value(text: str, position: int) -> tuple[Any, int]:
    """The JSON value that starts at `position` and its end.

    Raises:
        DamagedError: none does.
    """
    try:
        return LENIENT_JSON.raw_decode(text, position)
    except json.JSONDecodeError as error:
        is_open = error.msg.startswith("Unterminated string")
        raise DamagedError(is_cut=is_open or _is_cut(text, error)) from error
    except (ValueError, RecursionError) as error:
        raise DamagedError(is_cut=False) from error


def _is_cut(text: str, error: json.JSONDecodeError) -> bool:
    if error.msg.startswith("Invalid \\"):
        return len(text) - error.pos < len("\\u0000")
    rest = text[error.pos : error.pos + 10]
    return error.pos + len(rest) == len(text) and _WORD_CUT.fullmatch(rest) is not None


def parse_escaped_value(text: str) -> tuple[Any, int]:
    """The JSON value that `text` begins with, stray backslashes in it doubled, and its end in `text` as it is.

    Raises:
        DamagedError: none does.
    """
    try:
        return parse_value(text, 0)
    except DamagedError:
        escaped = double_stray_backslashes(text)
        if not escaped.stray:
            raise
        value, end = parse_value(escaped.text, 0)
        return value, escaped.before(end)


def value_at(text: str, position: int) -> tuple[object, int] | None:
    """The JSON value that starts at `position` and its end; None when none does."""
    try:
        return parse_value(text, position)
    except DamagedError:
        return None


def first_objects(starts: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The objects that the first few of `starts` begin with: lines of which a damaged one hides nothing."""
    for start in itertools.islice(starts, _FIRST_LINES):
        found = value_at(start, 0)
        if found is not None and isinstance(found[0], dict):
            yield found[0]


class LineNumbers:
    """`line <n>` of positions in a text, as issues name places; positions should not decrease."""

    def __init__(self, text: bytes, *, first_line: int = 1) -> None:
        self._text = text
        self._first_line = first_line
        self._position = 0
        self._line = first_line

    def at(self, position: int) -> str:
        """The line of `position`."""
        if position < self._position:
            self._position, self._line = 0, self._first_line
        self._line += self._text.count(b"\n", self._position, position)
        self._position = position
        return f"line {self._line}"


def _any_object(_: dict[str, Any]) -> bool:
    return True


def iterate_lines(
    text: str, issues: IssueCounter, accepts: Callable[[dict[str, Any]], bool] = _any_object
) -> Iterator[tuple[int, str]]:
    """(line number, text of one JSON object) of JSON lines; see `line_objects`."""
    for number, line in enumerate(text.split("\n"), 1):
        for start, end in line_objects(line, f"line {number}", issues, accepts):
            yield number, line[start:end]


def line_objects(
    line: str, where: str, issues: IssueCounter, accepts: Callable[[dict[str, Any]], bool] = _any_object
) -> list[tuple[int, int]]:
    """(start, end) of every JSON object in one line; anything else in it is counted and lost.

    After damage, reading goes on at the next object that `accepts`: objects inside a damaged one are no records.
    """
    found: list[tuple[int, int]] = []
    is_damaged = False
    position = skip_space(line, 0)
    while position < len(line):
        if line[position] == ",":
            issues.add("commas_ignored", where)
            position = skip_space(line, position + 1)
            continue
        value = value_at(line, position)
        if value is None or not isinstance(value[0], dict):
            is_damaged = True
            value = None
            for match in _OBJECT.finditer(line, position + 1):
                candidate = value_at(line, match.start())
                if candidate is not None and isinstance(candidate[0], dict) and accepts(candidate[0]):
                    position, value = match.start(), candidate
                    break
        if value is None:
            break
        found.append((position, value[1]))
        position = skip_space(line, value[1])
    if is_damaged:
        issues.add("bad_line", where, lost=1)
    if len(found) > 1:
        issues.add("glued_lines", where)
    return found
