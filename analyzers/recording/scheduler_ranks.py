"""The ranks of processes by the worker ids of the scheduler's records: every run lies inside a dispatch of its worker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from analyzers.readers.strace import StraceLog, roots
from analyzers.table.families import family
from analyzers.table.spans import ABSENT, Process

_DISPATCH = ".dispatch"
_COMPLETE = ".complete"
_MOST_PROCESSES = 1024

_OPEN = np.iinfo(np.int64).max
"""The end of a dispatch that was never completed."""

Windows = list[tuple[int, int]]


@dataclass
class _Dispatch:
    """What one worker was given in one run of one scheduler."""

    start_ns: int = _OPEN
    end_ns: int = _OPEN


def scheduler_ranks(logs: Sequence[StraceLog], processes: Sequence[Process]) -> dict[Process, int]:
    """Match the `processes` of one life to worker ids; {} unless exactly one assignment of all of them fits.

    A worker whose process was lost may be without one, and a run that failed or was lost is without a root: only
    where equal counts alone do not tell are such gaps allowed.
    """
    if not processes or len(processes) > _MOST_PROCESSES:
        return {}
    intervals = {process: _root_intervals(logs, process) for process in processes}
    first = min((found[0][0] for found in intervals.values() if found), default=0)
    last = max((end for found in intervals.values() for _, end in found), default=0)
    flights = _flights(logs, first, last)
    if len(flights) < len(processes):
        return {}
    return _assign(intervals, flights, whole=True) or _assign(intervals, flights, whole=False)


def _assign(
    intervals: dict[Process, Windows], flights: dict[int, Windows], *, whole: bool
) -> dict[Process, int]:
    """The only assignment that fits; `whole` asks for a root in every dispatch."""
    candidates = {
        process: {worker for worker, windows in flights.items() if _fits(roots_, windows, whole=whole)}
        for process, roots_ in intervals.items()
    }
    matched: dict[Process, int] = {}
    while len(matched) < len(candidates):
        taken = set(matched.values())
        forced = next(
            (
                (process, next(iter(left)))
                for process, workers in candidates.items()
                if process not in matched and len(left := workers - taken) == 1
            ),
            None,
        )
        if forced is None:
            return {}
        matched[forced[0]] = forced[1]
    return matched


def _fits(intervals: Windows, windows: Windows, *, whole: bool) -> bool:
    """Whether every root lies in a dispatch of its own, in order of time."""
    if whole and len(intervals) != len(windows):
        return False
    position = 0
    for start, end in intervals:
        while position < len(windows) and not (windows[position][0] <= start and end <= windows[position][1]):
            if whole:
                return False
            position += 1
        if position == len(windows):
            return False
        position += 1
    return True


def _flights(logs: Iterable[StraceLog], first: int, last: int) -> dict[int, Windows]:
    """worker_id -> [(dispatch start, completion end)] of what was dispatched while roots ran, in time order."""
    dispatches: dict[tuple[Process, int, int, int], _Dispatch] = {}
    for log in logs:
        spans = log.spans
        order = np.argsort(spans.start_ns, kind="stable")
        edges = spans.where_name(_is_flight_edge) & (spans.worker_id != ABSENT)
        turn: dict[tuple[Process, int, int, str], int] = {}
        for row in order[edges[order]].tolist():
            name = spans.name_of(row)
            key = (spans.lane_of(row).process, int(spans.run_id[row]), int(spans.worker_id[row]))
            kind = _DISPATCH if name.endswith(_DISPATCH) else _COMPLETE
            index = turn[(*key, kind)] = turn.get((*key, kind), -1) + 1
            dispatch = dispatches.setdefault((*key, index), _Dispatch())
            if kind == _DISPATCH:
                dispatch.start_ns = int(spans.start_ns[row])
            else:
                dispatch.end_ns = int(spans.end_ns[row])
    flights: dict[int, Windows] = {}
    for (_, _, worker, _), dispatch in dispatches.items():
        if dispatch.start_ns != _OPEN and dispatch.start_ns <= last and dispatch.end_ns >= first:
            flights.setdefault(worker, []).append((dispatch.start_ns, dispatch.end_ns))
    return {worker: sorted(windows) for worker, windows in flights.items()}


def _is_flight_edge(name: str) -> bool:
    return family(name) == "node" and name.endswith((_DISPATCH, _COMPLETE))


def _root_intervals(logs: Iterable[StraceLog], process: Process) -> Windows:
    intervals = []
    for log in logs:
        spans = log.spans
        of_process = np.array([lane.process == process for lane in spans.lanes], dtype=np.bool_)
        if not of_process.any():
            continue
        rows = roots(spans)
        rows = rows[of_process[spans.lane[rows]]]
        intervals += [(int(spans.start_ns[row]), int(spans.end_ns[row])) for row in rows]
    return sorted(intervals)
