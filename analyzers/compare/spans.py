"""Spans by name on both sides: what remains to compare where a trace knows neither steps nor requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from analyzers.compare.changes import time_change
from analyzers.compare.model import SpanChange
from analyzers.report.model import SpanFigures

_Key = tuple[str, Literal["serving", "strace"], str]


def compare_span_names(
    a: Sequence[Sequence[SpanFigures]], b: Sequence[Sequence[SpanFigures]]
) -> list[SpanChange]:
    """Every name (of one source and clock) that all runs of both sides have, the largest change of the total first."""
    before, after = [_by_name(run) for run in a], [_by_name(run) for run in b]
    names = [key for key in before[0] if all(key in run for run in [*before, *after])]
    changes = [_compare(key, [run[key] for run in before], [run[key] for run in after]) for key in names]
    return sorted(changes, key=lambda entry: (-abs(entry.total.change), entry.name))


def _by_name(run: Sequence[SpanFigures]) -> Mapping[_Key, SpanFigures]:
    return {(entry.name, entry.source, entry.clock): entry for entry in run}


def _compare(key: _Key, a: Sequence[SpanFigures], b: Sequence[SpanFigures]) -> SpanChange:
    return SpanChange(
        name=key[0],
        source=key[1],
        a_spans=sum(entry.duration.n for entry in a) / len(a),
        b_spans=sum(entry.duration.n for entry in b) / len(b),
        total=time_change([entry.total_ns for entry in a], [entry.total_ns for entry in b]),
        mean=time_change(
            [entry.duration.mean or 0.0 for entry in a], [entry.duration.mean or 0.0 for entry in b]
        ),
    )
