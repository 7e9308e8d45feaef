"""Parts of one log that were given as several files: rotation ends a file and goes on in the next."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np

from analyzers.readers.strace import ROOT, StraceLog
from analyzers.table.families import family
from analyzers.table.spans import ABSENT, Clock, SpanTable, concatenate


def join_rotated(logs: Sequence[StraceLog]) -> list[StraceLog]:
    """`logs` with the processes of every file that goes on with those of another put under the name of that one.

    A file goes on with another when they share pids, and of every shared pid runs and times follow on: it has no ready
    line there, and its invocations go on. Which file was named first does not matter. Each keeps its report.
    """
    joined = list(logs)
    runs = [_runs(log) for log in logs]
    in_time = sorted(
        (index for index in range(len(logs)) if runs[index]),
        key=lambda index: min(found.last_end for found in runs[index].values()),
    )
    for position, index in enumerate(in_time):
        started = {line.pid for line in logs[index].processes.ready}
        for earlier in reversed(in_time[:position]):
            if _goes_on(runs[earlier], runs[index], started):
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


def _name(log: StraceLog) -> str:
    return next((lane.file for lane in log.spans.lanes if lane.file is not None), log.report.path)


class _Runs(NamedTuple):
    """The records of the runs of one pid in one file."""

    first_end: int
    last_end: int
    first_invocation: int
    last_invocation: int
    whole: frozenset[int]
    """Invocations with their root."""


def _goes_on(earlier: Mapping[int, _Runs], later: Mapping[int, _Runs], started: Set[int]) -> bool:
    """Whether the runs of a file follow on those of another; `started` are the pids with a ready line in it."""
    shared = earlier.keys() & later.keys()
    return bool(shared) and all(
        pid not in started
        # A record is written when its span ends, and a run may be cut in two.
        and earlier[pid].last_end <= later[pid].first_end
        and earlier[pid].last_invocation <= later[pid].first_invocation
        and earlier[pid].whole.isdisjoint(later[pid].whole)
        for pid in shared
    )


def _runs(log: StraceLog) -> dict[int, _Runs]:
    """The runs of every pid of a log; none of a pid that was used again."""
    spans = log.spans
    again = {lane.pid for lane in spans.lanes if lane.incarnation}
    of_run = spans.where_name(lambda name: family(name) == "chip") & (spans.clock == Clock.HOST)
    of_run &= (spans.invocation != ABSENT) & (spans.invocation != 0)
    is_root = spans.named(ROOT)
    found = {}
    for pid in {lane.pid for lane in spans.lanes if lane.file == log.report.path} - again:
        rows = (
            np.flatnonzero(of_run & (spans.pid == pid))
            if isinstance(pid, int)
            else np.array([], dtype=np.intp)
        )
        if isinstance(pid, int) and len(rows):
            ends, invocations = spans.end_ns[rows], spans.invocation[rows]
            whole = frozenset(invocations[is_root[rows]].tolist())
            found[pid] = _Runs(
                int(ends.min()), int(ends.max()), int(invocations.min()), int(invocations.max()), whole
            )
    return found


def _renamed(log: StraceLog, name: str) -> StraceLog:
    def under_name(spans: SpanTable) -> SpanTable:
        lanes = tuple(lane._replace(file=name) for lane in spans.lanes)
        return concatenate([dataclasses.replace(spans, lanes=lanes)])

    return dataclasses.replace(log, spans=under_name(log.spans), invalid=under_name(log.invalid))
