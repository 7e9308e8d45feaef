"""Recorded timetables: when requests came, and how long they and their answers were.

Read are JSON lines and CSV with the names that public traces have: Mooncake (`timestamp` in ms, `input_length`,
`output_length`, `hash_ids` of blocks of 512 tokens), BurstGPT (`Timestamp` in s, `Request tokens`, `Response tokens`), and
plain ones (`arrival_s`, `prompt_tokens`, `output_tokens`, `prompt`).
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from dsv4bench.errors import UsageError

BLOCK_TOKENS = 512
"""Tokens of a block that a hash of Mooncake's stands for."""
_ARRIVALS = {"arrival_s": 1_000_000_000, "Timestamp": 1_000_000_000, "timestamp": 1_000_000}
"""Name of the time, and ns of its unit."""
_PROMPTS = ("prompt_tokens", "input_length", "Request tokens")
_OUTPUTS = ("output_tokens", "output_length", "Response tokens")


@dataclass(frozen=True)
class Row:
    """One request of a timetable."""

    arrival_ns: int
    """From the first one's."""
    prompt_tokens: int
    output_tokens: int
    prompt: str | None = None
    blocks: tuple[int, ...] = ()
    """Requests whose prompts begin with the same blocks share these tokens."""


def read_timetable(path: Path, speed: float, most: int) -> list[Row]:
    """The first `most` requests by time; at `speed` 2 they come twice as fast.

    Raises:
        UsageError: the file cannot be read, or a row does not say what it must.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"load.timetable {path}: cannot be read: {error}") from error
    # A request without an answer in the recording (BurstGPT writes 0 tokens) has no length to ask for.
    rows = [
        _row(record, f"{path}: {where}")
        for where, record in _records(text, path)
        if not _is_unanswered(record)
    ]
    if not rows:
        raise UsageError(f"load.timetable {path}: no request in it")
    rows.sort(key=lambda row: row.arrival_ns)
    first = rows[0].arrival_ns
    return [
        Row(
            round((row.arrival_ns - first) / speed),
            row.prompt_tokens,
            row.output_tokens,
            row.prompt,
            row.blocks,
        )
        for row in rows[:most]
    ]


def _is_unanswered(record: Mapping[str, Any]) -> bool:
    return str(record.get("Response tokens", "")).strip() == "0"


def _records(text: str, path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not text.lstrip().startswith("{"):
        for number, record in enumerate(csv.DictReader(io.StringIO(text)), 2):
            yield f"line {number}", record
        return
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line, parse_float=Decimal)
        except ValueError as error:
            raise UsageError(f"load.timetable {path}: line {number} is no JSON: {error}") from error
        if not isinstance(record, dict):
            raise UsageError(f"load.timetable {path}: line {number} is no object")
        yield f"line {number}", record


def _row(record: Mapping[str, Any], where: str) -> Row:
    name = next((name for name in _ARRIVALS if record.get(name) not in (None, "")), None)
    if name is None:
        raise UsageError(f"load.timetable {where}: no time of arrival ({', '.join(_ARRIVALS)})")
    arrival = _number(record[name], where, name) * _ARRIVALS[name]
    prompt = record.get("prompt")
    if prompt is not None and not isinstance(prompt, str):
        raise UsageError(f"load.timetable {where}: prompt = {prompt!r}: expected a text")
    blocks = record.get("hash_ids") or []
    if not isinstance(blocks, list) or not all(type(block) is int for block in blocks):
        raise UsageError(f"load.timetable {where}: hash_ids = {blocks!r}: expected a list of whole numbers")
    return Row(
        arrival_ns=round(arrival),
        prompt_tokens=0 if isinstance(prompt, str) and prompt else _count(record, _PROMPTS, where),
        output_tokens=_count(record, _OUTPUTS, where),
        prompt=prompt if isinstance(prompt, str) and prompt else None,
        blocks=tuple(blocks),
    )


def _count(record: Mapping[str, Any], names: tuple[str, ...], where: str) -> int:
    name = next((name for name in names if record.get(name) not in (None, "")), None)
    if name is None:
        raise UsageError(f"load.timetable {where}: no number of tokens ({', '.join(names)})")
    value = _number(record[name], where, name)
    if value != int(value) or value < 1:
        raise UsageError(
            f"load.timetable {where}: {name} = {record[name]!r}: expected a whole number of at least 1"
        )
    return int(value)


def _number(value: Any, where: str, name: str) -> Decimal:
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        number = Decimal("nan")
    if not number.is_finite() or isinstance(value, bool):
        raise UsageError(f"load.timetable {where}: {name} = {value!r}: expected a number")
    return number
