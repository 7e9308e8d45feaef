"""The history as JSON: one document a command, with a schema version."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from analyzers.history.entry import Entry
from analyzers.history.trends import Series, Trend
from analyzers.json_text import json_document

SCHEMA_VERSION = 1


class SeriesSummary(msgspec.Struct, frozen=True):
    """What a series is of, and the span of its runs; the last run is whole."""

    id: str
    profile: str
    backend: str
    model: str
    machine: str
    differs: str
    runs: int
    first_ns: int
    last_ns: int
    last: Entry


class SeriesList(msgspec.Struct, frozen=True):
    """The output of `history list --json`."""

    schema_version: int
    series: list[SeriesSummary]


class TrendDocument(msgspec.Struct, frozen=True):
    """The output of `history show --json`."""

    schema_version: int
    series: SeriesSummary
    trend: Trend


def series_document(series: Sequence[Series]) -> str:
    """Every series as indented JSON."""
    return json_document(SeriesList(SCHEMA_VERSION, [_summary(entry) for entry in series]))


def trend_document(series: Series, trend: Trend) -> str:
    """One trend as indented JSON: its runs, levels and steps."""
    return json_document(TrendDocument(SCHEMA_VERSION, _summary(series), trend))


def _summary(series: Series) -> SeriesSummary:
    return SeriesSummary(
        id=series.id,
        profile=series.profile,
        backend=series.backend,
        model=series.model,
        machine=series.machine,
        differs=series.differs,
        runs=len(series.entries),
        first_ns=series.entries[0].started_ns,
        last_ns=series.entries[-1].started_ns,
        last=series.entries[-1],
    )
