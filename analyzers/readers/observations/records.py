"""Observations of one JSON record a line: how such a file is told, and how its records are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from analyzers.readers.files import OpenedFile
from analyzers.readers.json_objects import decode_text, first_objects, iterate_lines
from analyzers.table.arguments import LENIENT_JSON

Record = dict[str, Any]
Parsed = TypeVar("Parsed")


class BadRecordError(ValueError):
    """A record that cannot be what the others are."""


def first_record(opened: OpenedFile) -> Record:
    """The first whole record of a file that begins with one; {} for any other."""
    text = opened.first_text
    return next(first_objects(text.split("\n")), {}) if text.startswith("{") else {}


def read_records(
    opened: OpenedFile, accepts: Callable[[Record], bool], parse: Callable[[Record], Parsed]
) -> list[Parsed]:
    """Every record as `parse` has it; one that `parse` refuses, by any ValueError, is counted as lost."""
    issues = opened.issues
    found = []
    for number, line in iterate_lines(decode_text(opened.whole(), issues), issues, accepts):
        try:
            found.append(parse(LENIENT_JSON.decode(line)))
        except (TypeError, ValueError, OverflowError) as error:
            issues.add("bad_line", f"line {number}: {error}", lost=1)
    return found


def number(value: Any) -> float:
    """`value` as a figure. Raises BadRecordError for anything but a number from 0 to 2**62."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**62:
        raise BadRecordError(f"{str(value)[:40]!r} is no figure")
    return value


def count(value: Any) -> int:
    """`value` as a count. Raises BadRecordError for anything but a whole number from 0 to 2**62."""
    figure = number(value)
    if figure != int(figure):
        raise BadRecordError(f"{figure} is no count")
    return int(figure)
