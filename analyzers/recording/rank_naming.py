"""Which rank a process is: from manifest, file names, ready lines or scheduler records; never a guess."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np

from analyzers.readers.strace import StraceLog
from analyzers.recording.clocks import process_windows
from analyzers.recording.devices import ready_devices
from analyzers.table.families import family
from analyzers.table.spans import ABSENT, Clock, DeviceIds, Process, SpanTable

RankBasis = Literal["manifest", "file name", "ready lines", "scheduler records", "pid order"]

_DISPATCH = ".dispatch"
_COMPLETE = ".complete"


@dataclass(frozen=True)
class RankAssignment:
    """The rank of every process that ran on a device, and what each was taken from."""

    ranks: dict[Process, int]
    basis: dict[Process, RankBasis]
    devices: dict[Process, DeviceIds] = field(default_factory=dict)
    windows: dict[Process, tuple[int, int]] = field(default_factory=dict)
    """[first start, last end] of each process, on the host clock."""

    @property
    def bases(self) -> list[RankBasis]:
        """Every basis used, most trustworthy first."""
        order: list[RankBasis] = ["manifest", "file name", "ready lines", "scheduler records", "pid order"]
        return [basis for basis in order if basis in self.basis.values()]

    @property
    def conflicts(self) -> list[tuple[int, list[Process]]]:
        """Ranks that more than one process claims, unless they did so one after the other."""
        claims: dict[int, list[Process]] = {}
        for process, rank in self.ranks.items():
            claims.setdefault(rank, []).append(process)
        return [
            (rank, processes)
            for rank, processes in sorted(claims.items())
            if len(processes) > 1 and not self._follow_each_other(processes)
        ]

    def _follow_each_other(self, processes: Sequence[Process]) -> bool:
        """Whether a rank was started again: in the log of its own, or with the pid it had before."""
        windows = sorted(self.windows[process] for process in processes if process in self.windows)
        apart = all(before[1] <= after[0] for before, after in pairwise(windows))
        one_log = len({file for file, _ in processes}) == 1
        own_log = all(self.basis[process] in ("file name", "manifest") for process in processes)
        one_pid = len({str(pid).partition("#")[0] for _, pid in processes}) == 1
        return apart and one_log and (own_log or one_pid) and len(windows) == len(processes)


def assign_ranks(
    logs: Sequence[StraceLog],
    *,
    manifest_ranks: Mapping[int, int] | None = None,
    file_ranks: Mapping[str, int] | None = None,
) -> RankAssignment:
    """Name the rank of every process with device runs in `logs`, whose times must be on one clock.

    `manifest_ranks` maps pids, `file_ranks` maps log paths (`strace/rank-<r>.log`). Ready lines name devices: where
    nothing else names ranks, those numbers do, unless they leave gaps that the scheduler's worker ids do not have. A
    process that nothing names gets the ranks left over in order of pid, with the basis "pid order".
    """
    processes = _device_processes(logs)
    ready = ready_devices(logs, processes)
    ranks: dict[Process, int] = {}
    basis: dict[Process, RankBasis] = {}

    def name(process: Process, rank: int, source: RankBasis) -> None:
        ranks[process] = rank
        basis[process] = source

    unnamed: list[Process] = []
    for process in processes:
        path, label = process
        pid = _pid(label)
        if pid is not None and manifest_ranks and pid in manifest_ranks:
            name(process, manifest_ranks[pid], "manifest")
        elif file_ranks and path in file_ranks:
            name(process, file_ranks[path], "file name")
        else:
            unnamed.append(process)
    if unnamed and not ranks and not _count_from_zero(ready, unnamed):
        for process, worker in _scheduler_ranks(logs, unnamed).items():
            name(process, worker, "scheduler records")
        unnamed = [process for process in unnamed if process not in ranks]
    for process in unnamed:
        if process in ready:
            name(process, ready[process], "ready lines")
    unnamed = [process for process in unnamed if process not in ranks]
    taken = set(ranks.values())
    free = (rank for rank in range(len(taken) + len(unnamed)) if rank not in taken)
    for process in sorted(unnamed, key=lambda item: (str(type(item[1])), str(item[1]).zfill(20), item[0])):
        name(process, next(free), "pid order")
    windows = process_windows(log.spans for log in logs)
    return RankAssignment(
        ranks, basis, windows={process: windows[process] for process in ranks if process in windows}
    )


def _pid(label: int | str | None) -> int | None:
    """The pid of a process, whichever of those that had it."""
    digits = label.partition("#")[0] if isinstance(label, str) else label
    return int(digits) if digits is not None and str(digits).isdecimal() else None


def _count_from_zero(ready: Mapping[Process, int], processes: Sequence[Process]) -> bool:
    devices = {ready.get(process, ABSENT) for process in processes}
    return devices == set(range(len(devices)))


def rank_column(spans: SpanTable, assignment: RankAssignment) -> SpanTable:
    """`spans` with the rank and device of each row's process; no rank is ABSENT."""
    by_lane = [assignment.ranks.get(lane.process, ABSENT) for lane in spans.lanes]
    named = spans.with_ranks(np.array(by_lane, dtype=np.int64)[spans.lane] if by_lane else spans.rank)
    return named.with_devices(assignment.devices)


def _device_processes(logs: Iterable[StraceLog]) -> list[Process]:
    processes: dict[Process, None] = {}
    for log in logs:
        chip = log.spans.category == _code_of(log.spans.categories, "chip")
        for code in np.unique(log.spans.lane[chip]).tolist():
            processes.setdefault(log.spans.lanes[code].process)
    return list(processes)


def _code_of(labels: tuple[str, ...], label: str) -> int:
    return labels.index(label) if label in labels else ABSENT


def _scheduler_ranks(logs: Sequence[StraceLog], processes: Sequence[Process]) -> dict[Process, int]:
    """Match processes to worker ids: every root lies between its dispatch and its completion.

    Returns a mapping only when exactly one assignment of all processes fits; {} otherwise.
    """
    flights = _flights(logs)
    if len(flights) != len(processes) or len(processes) > 1024:
        return {}
    candidates: dict[Process, set[int]] = {}
    for process in processes:
        intervals = _root_intervals(logs, process)
        candidates[process] = {
            worker
            for worker, windows in flights.items()
            if len(windows) == len(intervals)
            and all(
                dispatched <= start and end <= completed
                for (start, end), (dispatched, completed) in zip(intervals, windows, strict=True)
            )
        }
    matched: dict[Process, int] = {}
    while len(matched) < len(processes):
        taken = set(matched.values())
        forced = [
            (process, next(iter(left)))
            for process, workers in candidates.items()
            if process not in matched and len(left := workers - taken) == 1
        ]
        if not forced:
            return {}
        process, worker = forced[0]
        matched[process] = worker
    return matched


def _flights(logs: Sequence[StraceLog]) -> dict[int, list[tuple[int, int]]]:
    """worker_id -> [(dispatch start, completion end)] of tasks that ran on a device, in time order."""
    dispatched: dict[int, list[int]] = {}
    completed: dict[int, list[int]] = {}
    for log in logs:
        spans = log.spans
        for row in np.flatnonzero(spans.where_name(_is_flight_edge) & (spans.worker_id != ABSENT)).tolist():
            worker = int(spans.worker_id[row])
            if spans.name_of(row).endswith(_DISPATCH):
                dispatched.setdefault(worker, []).append(int(spans.start_ns[row]))
            else:
                completed.setdefault(worker, []).append(int(spans.end_ns[row]))
    return {
        worker: list(zip(sorted(starts), sorted(completed[worker]), strict=True))
        for worker, starts in dispatched.items()
        if len(completed.get(worker, ())) == len(starts)
    }


def _is_flight_edge(name: str) -> bool:
    return family(name) == "node" and name.endswith((_DISPATCH, _COMPLETE))


def _root_intervals(logs: Sequence[StraceLog], process: Process) -> list[tuple[int, int]]:
    intervals = []
    for log in logs:
        spans = log.spans
        lanes = np.array([lane.process == process for lane in spans.lanes], dtype=np.bool_)
        if not lanes.any():
            continue
        rows = np.flatnonzero(spans.named("chip.run") & lanes[spans.lane] & (spans.clock == Clock.HOST))
        intervals += [(int(spans.start_ns[row]), int(spans.end_ns[row])) for row in rows]
    return sorted(intervals)
