"""The serving side, and everything that is no run: threads and tasks on lanes named by what they do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from analyzers.swimlane.model import Instant, Slice, Track
from analyzers.swimlane.packing import Unit, nest, pack
from analyzers.table.callables import RUN, SUBMIT, WAIT
from analyzers.table.spans import Kind, Lane, SpanTable

ROLES = ("API", "engine", "prepare", "device", "output", "node scheduler", "other", "ext")
"""What a thread does, in drawing order; docs/formats.md, Serving trace, lists the spans of each."""

_PREFIXES = {"http.": "API", "request.": "API", "scheduler.": "engine"}
_MARKS = {
    "prepare": "prepare",
    "dispatch": "device",
    "execute_step": "device",
    "batch_decode": "device",
    "batch_prefill": "device",
    SUBMIT: "device",
    RUN: "device",
    "reclaim": "output",
    WAIT: "output",
}
# "dispatch_prepared_decode" and "reclaim_prepared_decode" say what they are by their verb, which comes first.
_VERBS = {"dispatch_prepared": "device", "reclaim_prepared": "output"}


def role_of(name: str, category: str) -> str:
    """Return the role of the lane on which a span of this name is expected; "other" when nothing says."""
    if category == "node":
        return "node scheduler"
    if category == "ext":
        return "ext"
    for prefix, role in _PREFIXES.items():
        if name.startswith(prefix):
            return role
    for marks in (_VERBS, _MARKS):
        for mark, role in marks.items():
            if mark in name:
                return role
    return "other"


def thread_tracks(spans: SpanTable, rows: Iterable[int], slices: Mapping[int, Slice]) -> list[Track]:
    """Lay out the rows of one process that belong to no run.

    Each thread has its lane, and so has every kind of `ext.*` span of it: its producer measures beside the runtime, and
    owes it no nesting. Requests come and go on asyncio tasks, so the API's tasks share as few lanes as
    they need. Spans that are free of their thread (async) have lanes of their own.
    """
    by_lane: dict[Lane, list[int]] = {}
    by_producer: dict[tuple[Lane, str], list[int]] = {}
    for row in rows:
        name = spans.name_of(row)
        if role_of(name, spans.categories[spans.category[row]]) == "ext":
            by_producer.setdefault((spans.lane_of(row), name), []).append(row)
        else:
            by_lane.setdefault(spans.lane_of(row), []).append(row)
    roles = {lane: _role(spans, lane_rows) for lane, lane_rows in by_lane.items()}
    tracks: list[Track] = []
    for role in ROLES:
        lanes = [lane for lane in by_lane if roles[lane] == role]
        if role == "API":
            tracks += _shared_tracks(spans, role, [by_lane[lane] for lane in lanes], slices)
            continue
        for lane in lanes:
            label = _label(spans, role, lane, alone=len(lanes) == 1)
            tracks += _lane_tracks(spans, label, by_lane[lane], slices)
    for (_, name), ext_rows in sorted(by_producer.items(), key=lambda entry: entry[0][1]):
        tracks += _lane_tracks(spans, name, ext_rows, slices)
    return _with_unique_names(tracks)


def _role(spans: SpanTable, rows: list[int]) -> str:
    counts = Counter(role_of(spans.name_of(row), spans.categories[spans.category[row]]) for row in rows)
    counts.pop("other", None)
    return max(counts, key=lambda role: (counts[role], -ROLES.index(role)), default="other")


def _label(spans: SpanTable, role: str, lane: Lane, *, alone: bool) -> str:
    thread = spans.thread_names.get(lane, f"thread {'(unknown)' if lane.tid is None else lane.tid}")
    if role == "other":
        return thread
    return role if alone else f"{role}, {thread}"


def _lane_tracks(spans: SpanTable, label: str, rows: list[int], slices: Mapping[int, Slice]) -> list[Track]:
    drawn = [row for row in rows if row in slices]
    nested = nest(slices[row] for row in drawn if spans.kind[row] != Kind.ASYNC)
    free = _flat(pack([slices[row]] for row in drawn if spans.kind[row] == Kind.ASYNC))
    tracks = [
        Track(label if index == 0 else f"{label}, overlapping {index}", slices=lane)
        for index, lane in enumerate(nested)
    ]
    tracks += [
        Track(f"{label}, async" if index == 0 else f"{label}, async {index + 1}", slices=lane)
        for index, lane in enumerate(free)
    ]
    instants = _instants(spans, rows)
    if instants:
        if not tracks:
            tracks.append(Track(label))
        tracks[0].instants += instants
    return tracks


def _shared_tracks(
    spans: SpanTable, label: str, tasks: list[list[int]], slices: Mapping[int, Slice]
) -> list[Track]:
    units: list[Unit] = []
    for rows in tasks:
        for lane in nest(slices[row] for row in rows if row in slices):
            units += _outermost_units(lane)
    lanes = _flat(pack(units))
    tracks = [
        Track(label if index == 0 else f"{label} {index + 1}", slices=lane)
        for index, lane in enumerate(lanes)
    ]
    instants = [instant for rows in tasks for instant in _instants(spans, rows)]
    if instants:
        if not tracks:
            tracks.append(Track(label))
        tracks[0].instants += sorted(instants, key=lambda instant: instant.at_ns)
    return tracks


def _flat(lanes: list[list[Unit]]) -> list[list[Slice]]:
    return [[item for unit in lane for item in unit] for lane in lanes]


def _outermost_units(lane: list[Slice]) -> list[list[Slice]]:
    """Cut a lane of nested slices into its outermost slices, each with everything inside it."""
    units: list[list[Slice]] = []
    end_ns: int | None = None
    for item in lane:
        if end_ns is None or item.start_ns >= end_ns:
            units.append([])
            end_ns = item.end_ns
        units[-1].append(item)
    return units


def _instants(spans: SpanTable, rows: Iterable[int]) -> list[Instant]:
    return [
        Instant(
            name=spans.name_of(row),
            category=spans.categories[spans.category[row]],
            at_ns=int(spans.start_ns[row]),
            args=spans.args(row),
            orig_pid=spans.lane_of(row).pid,
        )
        for row in rows
        if spans.kind[row] == Kind.INSTANT
    ]


def _with_unique_names(tracks: list[Track]) -> list[Track]:
    """Number tracks of equal name: viewers merge them otherwise."""
    seen: Counter[str] = Counter()
    for track in tracks:
        seen[track.name] += 1
        if seen[track.name] > 1:
            track.name = f"{track.name} #{seen[track.name]}"
    return tracks
