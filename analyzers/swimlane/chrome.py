"""The timeline as Chrome trace JSON, for chrome://tracing and Perfetto."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from analyzers.swimlane.model import FlowPhase, Group, Slice, Timeline, Track, drawn_args

_FLOW_NAME = "dispatch"
_FLOW_CATEGORY = "flow"


def write_chrome(timeline: Timeline, file: BinaryIO) -> None:
    """Write `timeline` as one Chrome trace object; `ts` and `dur` are microseconds, exact to the ns."""
    encoder = msgspec.json.Encoder(enc_hook=str)
    separator = b"\n"
    file.write(b'{"displayTimeUnit":"ns","traceEvents":[')
    for event in _events(timeline):
        file.write(separator)
        file.write(encoder.encode(event))
        separator = b",\n"
    file.write(b"\n]}\n")


def _events(timeline: Timeline) -> Iterator[dict[str, Any]]:
    """Every event. Processes and threads are the timeline's groups and tracks, numbered from 1."""
    for pid, group in enumerate(timeline.groups, 1):
        yield _metadata("process_name", pid, 0, {"name": group.name})
        if group.labels:
            yield _metadata("process_labels", pid, 0, {"labels": group.labels})
        yield _metadata("process_sort_index", pid, 0, {"sort_index": pid})
        yield from _counters(group, pid)
        for tid, track in enumerate(group.tracks, 1):
            yield _metadata("thread_name", pid, tid, {"name": track.name})
            yield _metadata("thread_sort_index", pid, tid, {"sort_index": tid})
            yield from _track_events(track, pid, tid)


def _track_events(track: Track, pid: int, tid: int) -> Iterator[dict[str, Any]]:
    for item in track.slices:
        yield {
            "name": item.name,
            "cat": item.category,
            "ph": "X",
            "ts": _microseconds(item.start_ns),
            "dur": _microseconds(item.end_ns - item.start_ns),
            "pid": pid,
            "tid": tid,
            "args": drawn_args(item),
        }
        yield from _flow_events(item, pid, tid)
    for instant in track.instants:
        yield {
            "name": instant.name,
            "cat": instant.category,
            "ph": "i",
            "s": "t",
            "ts": _microseconds(instant.at_ns),
            "pid": pid,
            "tid": tid,
            "args": drawn_args(instant),
        }


def _flow_events(item: Slice, pid: int, tid: int) -> Iterator[dict[str, Any]]:
    for flow, phase in item.flows:
        event = {"name": _FLOW_NAME, "cat": _FLOW_CATEGORY, "id": flow, "pid": pid, "tid": tid}
        if phase is FlowPhase.END:
            # A flow event binds to the slice around its time, so the end lies just inside.
            last_ns = max(item.start_ns, item.end_ns - 1)
            yield {**event, "ph": "f", "bp": "e", "ts": _microseconds(last_ns)}
        else:
            code = "s" if phase is FlowPhase.BEGIN else "t"
            yield {**event, "ph": code, "ts": _microseconds(item.start_ns)}


def _counters(group: Group, pid: int) -> Iterator[dict[str, Any]]:
    for counter in group.counters:
        for at_ns, value in counter.points:
            yield {
                "name": counter.name,
                "ph": "C",
                "ts": _microseconds(at_ns),
                "pid": pid,
                "args": {"value": value},
            }


def _metadata(name: str, pid: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": pid, "tid": tid, "args": args}


def _microseconds(time_ns: int) -> msgspec.Raw:
    """Return ns as a decimal number of microseconds; a float could not hold it exactly."""
    sign = "-" if time_ns < 0 else ""
    whole, fraction = divmod(abs(time_ns), 1000)
    digits = f"{sign}{whole}" if fraction == 0 else f"{sign}{whole}.{fraction:03d}".rstrip("0")
    return msgspec.Raw(digits.encode())
