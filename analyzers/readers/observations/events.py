"""Event logs: submissions and completions by id, `{"ev": "submit", "id": 1, "mono_ns": 5, "wall": "..."}` a line."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import msgspec

from analyzers.readers.files import OpenedFile
from analyzers.readers.observations.observation import Figure, Observation, ObservedFile, report_of
from analyzers.readers.observations.records import Record, count, first_record, read_records

_WALL_STEP_NS = 1_000_000
"""The wall clock stepped when it and the monotonic clock disagree by more than this between two events."""


class EventFigure(Figure):
    """From submit to complete, by the monotonic clock."""

    LATENCY = "latency", "ms"
    PAIRS = "pairs"


class _Event(msgspec.Struct, frozen=True):
    name: str
    identity: str
    mono_ns: int | None
    wall_ns: int | None


def looks_like(opened: OpenedFile) -> bool:
    """Whether the first record is an event, and none of a trace."""
    return _is_event(first_record(opened))


def read(opened: OpenedFile) -> ObservedFile:
    """Latency from submit to complete."""
    observation = _measure(opened.name, read_records(opened, _is_event, _event))
    return ObservedFile(observation, report_of(opened.name, observation.n, opened.issues))


def _is_event(record: Record) -> bool:
    return "ev" in record and "ph" not in record


def _event(record: Record) -> _Event:
    mono = record.get("mono_ns")
    return _Event(
        str(record.get("ev")),
        str(record.get("id")),
        None if mono is None else count(mono),
        _wall_ns(record.get("wall_ns"), record.get("wall")),
    )


def _wall_ns(wall_ns: Any, wall: Any) -> int | None:
    """The wall time of an event in ns: a number of ns, an ISO 8601 text, or seconds; None where it is no time.

    It is in no figure, so that a bad one costs nothing.
    """
    if isinstance(wall_ns, int) and not isinstance(wall_ns, bool):
        return wall_ns
    if isinstance(wall, int | float) and not isinstance(wall, bool) and abs(wall) < 2**33:
        return round(wall * 1e9)
    if not isinstance(wall, str):
        return None
    try:
        moment = datetime.fromisoformat(wall)
        return round(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1e6) * 1000
    except (ValueError, OverflowError):
        return None


def _measure(path: str, events: Sequence[_Event]) -> Observation:
    """Latency by the monotonic clock; the wall clock is only looked at for steps."""
    notes = []
    submitted = {event.identity: event for event in events if event.name == "submit"}
    latencies = []
    for event in events:
        begin = submitted.get(event.identity)
        if event.name != "complete" or begin is None or event.mono_ns is None or begin.mono_ns is None:
            continue
        if event.mono_ns >= begin.mono_ns:
            latencies.append(event.mono_ns - begin.mono_ns)
        else:
            notes.append(f"id {event.identity} completes before it is submitted: no latency")
    timed = [event for event in events if event.mono_ns is not None and event.wall_ns is not None]
    for before, after in pairwise(timed):
        step = ((after.wall_ns or 0) - (before.wall_ns or 0)) - ((after.mono_ns or 0) - (before.mono_ns or 0))
        if abs(step) > _WALL_STEP_NS:
            notes.append(f"wall_step={step / 1e9:g} s: the wall clock was set; it is in no figure")
            break
    figures: dict[str, float | None] = {
        EventFigure.LATENCY: sum(latencies) / len(latencies) / 1e6 if latencies else None,
        EventFigure.PAIRS: len(latencies),
    }
    return Observation(path, "events", len(events), figures, notes)
