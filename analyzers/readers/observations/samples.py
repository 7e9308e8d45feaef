"""Samples: one JSON array of numbers, and their percentiles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from analyzers.readers.files import OpenedFile
from analyzers.readers.json_objects import DamagedError, decode_text, parse_value, skip_space
from analyzers.readers.load_report import IssueCounter
from analyzers.readers.observations.observation import Figure, Observation, ObservedFile, report_of
from analyzers.statistics.summary import P95_NEEDS, P99_NEEDS, percentile

_ARRAY_OF_NUMBERS = re.compile(r"\[\s*-?\d")


class SampleFigure(Figure):
    """Percentiles, in whatever unit the samples have."""

    P50 = "p50"
    P95 = "p95"
    P99 = "p99"


_PERCENTILES = (
    (SampleFigure.P50, 50, 1),
    (SampleFigure.P95, 95, P95_NEEDS),
    (SampleFigure.P99, 99, P99_NEEDS),
)
"""Figure, percent, and how many samples it takes to resolve it."""


def looks_like(opened: OpenedFile) -> bool:
    """Whether a file begins with an array of numbers."""
    return _ARRAY_OF_NUMBERS.match(opened.first_text) is not None


def read(opened: OpenedFile) -> ObservedFile:
    """Read the samples; what is no number, or damaged, is counted as lost."""
    issues = opened.issues
    values = list(_array_items(decode_text(opened.whole(), issues), issues))
    numbers = [
        value
        for value in values
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**62
    ]
    strangers = len(values) - len(numbers)
    issues.add("malformed", "samples that are no numbers", count=strangers, lost=strangers)
    notes = ["percentiles interpolate linearly between order statistics"]
    figures: dict[str, float | None] = {}
    for figure, percent, needs in _PERCENTILES:
        figures[figure] = percentile(numbers, percent) if numbers else None
        if len(numbers) < needs:
            notes.append(f"{figure}: n={len(numbers)} < {needs}: not resolvable")
    observation = Observation(opened.name, "samples", len(numbers), figures, notes)
    return ObservedFile(observation, report_of(opened.name, len(numbers), issues))


def _array_items(text: str, issues: IssueCounter) -> Iterator[Any]:
    """The values of one array; of a damaged one, those before the damage."""
    position = skip_space(text, 0) + 1
    while True:
        position = skip_space(text, position)
        if text[position : position + 1] == "]":
            if text[position + 1 :].strip():
                issues.add("trailing_data", f"byte {len(text[:position].encode())}", lost=1)
            return
        where = f"byte {len(text[:position].encode())}"
        if position >= len(text):
            issues.add("unterminated", where)
            return
        try:
            value, end = parse_value(text, position)
        except DamagedError as error:
            issues.add("torn_tail" if error.is_cut else "malformed", where, lost=1)
            return
        position = skip_space(text, end)
        if position >= len(text):
            # The end of the file may have cut the number.
            issues.add("torn_tail", where, lost=1)
            issues.add("unterminated", where)
            return
        yield value
        if text[position] == ",":
            position += 1
        elif text[position] != "]":
            issues.add("malformed", where, lost=1)
            return
