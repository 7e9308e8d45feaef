"""Which rank a process is: from manifest, file names, ready lines or scheduler records; never a guess."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from analyzers.readers.strace import StraceLog, family
from analyzers.spans import ABSENT, Clock, SpanTable

RankBasis = Literal["manifest", "file name", "ready lines", "scheduler records", "pid order"]

Process = tuple[str, int | str | None]

_DISPATCH = ".dispatch"
_COMPLETE = ".complete"


@dataclass(frozen=True)
class RankAssignment:
    """The rank of every process that ran on a device, and what each was taken from."""

    ranks: dict[Process, int]
    basis: dict[Process, RankBasis]

    @property
    def bases(self) -> list[RankBasis]:
        """Every basis used, most trustworthy first."""
        order: list[RankBasis] = ["manifest", "file name", "ready lines", "scheduler records", "pid order"]
        return [basis for basis in order if basis in self.basis.values()]

    @property
    def conflicts(self) -> list[tuple[int, list[Process]]]:
        """Ranks that more than one process claims."""
        claims: dict[int, list[Process]] = {}
        for process, rank in self.ranks.items():
            claims.setdefault(rank, []).append(process)
        return [(rank, processes) for rank, processes in sorted(claims.items()) if len(processes) > 1]


def assign_ranks(
    logs: Sequence[StraceLog],
    *,
    manifest_ranks: Mapping[int, int] | None = None,
    file_ranks: Mapping[str, int] | None = None,
) -> RankAssignment:
    """Name the rank of every process with device runs in `logs`.

    `manifest_ranks` maps pids, `file_ranks` maps log paths (`strace/rank-<r>.log`). A process that
    nothing names gets the ranks left over in order of pid, with the basis "pid order".
    """
    ready = {pid: device for log in logs for pid, device in log.ready_devices.items()}
    ranks: dict[Process, int] = {}
    basis: dict[Process, RankBasis] = {}

    def name(process: Process, rank: int, source: RankBasis) -> None:
        ranks[process] = rank
        basis[process] = source

    unnamed: list[Process] = []
    for process in _device_processes(logs):
        path, pid = process
        if isinstance(pid, int) and manifest_ranks and pid in manifest_ranks:
            name(process, manifest_ranks[pid], "manifest")
        elif file_ranks and path in file_ranks:
            name(process, file_ranks[path], "file name")
        elif isinstance(pid, int) and pid in ready:
            name(process, ready[pid], "ready lines")
        else:
            unnamed.append(process)
    if unnamed and not ranks:
        for process, worker in _scheduler_ranks(logs, unnamed).items():
            name(process, worker, "scheduler records")
        unnamed = [process for process in unnamed if process not in ranks]
    taken = set(ranks.values())
    free = (rank for rank in range(len(taken) + len(unnamed)) if rank not in taken)
    for process in sorted(unnamed, key=lambda item: (str(type(item[1])), str(item[1]).zfill(20), item[0])):
        name(process, next(free), "pid order")
    return RankAssignment(ranks=ranks, basis=basis)


def rank_column(spans: SpanTable, assignment: RankAssignment) -> SpanTable:
    """`spans` with the rank of each row's process; ABSENT for processes that are no rank."""
    by_lane = [assignment.ranks.get(lane.process, ABSENT) for lane in spans.lanes]
    return spans.with_ranks(np.array(by_lane, dtype=np.int64)[spans.lane] if by_lane else spans.rank)


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
