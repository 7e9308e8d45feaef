"""Parts of one log that were given as several files: rotation ends a file and goes on in the next."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from analyzers.readers.strace import StraceLog, roots
from analyzers.recording.clocks import process_windows
from analyzers.table.spans import SpanTable, concatenate


def join_rotated(logs: Sequence[StraceLog]) -> list[StraceLog]:
    """`logs` with the processes of every file that goes on with those of another put under the name of that one.

    A file goes on with another when they share pids, and of every shared pid runs and times follow on: it has no ready
    line there, and its invocations are greater. Which file was named first does not matter. Each keeps its report.
    """
    joined = list(logs)
    in_time = sorted(range(len(logs)), key=lambda index: _first_start(logs[index]))
    for position, index in enumerate(in_time):
        for earlier in reversed(in_time[:position]):
            if _goes_on(joined[earlier], joined[index]):
                joined[index] = _renamed(joined[index], _name(joined[earlier]))
                break
    return joined


def shared_pids(logs: Sequence[StraceLog]) -> list[int]:
    """Pids that processes of several files have: containers may share one, as may a log that was given in parts."""
    files: dict[int, set[str]] = {}
    for log in logs:
        for lane in log.spans.lanes:
            if isinstance(lane.pid, int) and lane.file is not None:
                files.setdefault(lane.pid, set()).add(lane.file)
    return sorted(pid for pid, names in files.items() if len(names) > 1)


def _first_start(log: StraceLog) -> int:
    return int(log.spans.start_ns[roots(log.spans)].min(initial=np.iinfo(np.int64).max))


def _name(log: StraceLog) -> str:
    return next((lane.file for lane in log.spans.lanes if lane.file is not None), log.report.path)


def _goes_on(before: StraceLog, after: StraceLog) -> bool:
    earlier, later = _invocations(before), _invocations(after)
    shared = earlier.keys() & later.keys()
    started = {line.pid for line in after.processes.ready}
    if not shared or not shared.isdisjoint(started):
        return False
    windows, following = process_windows([before.spans]), process_windows([after.spans])
    ends = {process[1]: window[1] for process, window in windows.items()}
    begins = {process[1]: window[0] for process, window in following.items()}
    last_starts = _root_starts(before)
    return all(
        max(earlier[pid]) < min(later[pid])
        # The root of a run is its last record: the run may be cut in two, and then ends in the later file.
        and (begins[pid] >= ends[pid] or begins[pid] >= max(last_starts[pid]))
        for pid in shared
    )


def _invocations(log: StraceLog) -> dict[int, list[int]]:
    """The invocations of the runs of every pid; none of a pid that was used again."""
    again = {lane.pid for lane in log.spans.lanes if lane.incarnation}
    found: dict[int, list[int]] = {}
    for row in roots(log.spans).tolist():
        lane = log.spans.lane_of(row)
        if isinstance(lane.pid, int) and lane.pid not in again and lane.file == log.report.path:
            found.setdefault(lane.pid, []).append(int(log.spans.invocation[row]))
    return found


def _root_starts(log: StraceLog) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    rows = roots(log.spans)
    for pid, start in zip(log.spans.pid[rows].tolist(), log.spans.start_ns[rows].tolist(), strict=True):
        found.setdefault(pid, []).append(start)
    return found


def _renamed(log: StraceLog, name: str) -> StraceLog:
    def under_name(spans: SpanTable) -> SpanTable:
        lanes = tuple(lane._replace(file=name) for lane in spans.lanes)
        return concatenate([dataclasses.replace(spans, lanes=lanes)])

    return dataclasses.replace(log, spans=under_name(log.spans), invalid=under_name(log.invalid))
