"""Which rank a process is: from manifest, file names, ready lines or scheduler records; never a guess."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np

from analyzers.readers.strace import StraceLog
from analyzers.recording.clocks import process_windows
from analyzers.recording.devices import ready_devices
from analyzers.recording.lives import find_lives
from analyzers.recording.scheduler_ranks import scheduler_ranks
from analyzers.table.spans import ABSENT, DeviceIds, Process, SpanTable, process_label

RankBasis = Literal["manifest", "file name", "scheduler records", "ready lines", "pid order"]


@dataclass(frozen=True)
class RankAssignment:
    """The rank of every process that ran on a device, and what each was taken from."""

    ranks: dict[Process, int]
    basis: dict[Process, RankBasis]
    devices: dict[Process, DeviceIds] = field(default_factory=dict)
    windows: dict[Process, tuple[int, int]] = field(default_factory=dict)
    """[first start, last end] of each process, on the host clock."""
    lives: dict[Process, int] = field(default_factory=dict)
    """Which of the lives of the recording each process is of, from 0; see `analyzers.recording.lives`."""
    silent: frozenset[Process] = frozenset()
    """Processes of which no run was read: a ready line or the head of a torn record is all that tells of them."""

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
        if len({self.lives.get(process, 0) for process in processes}) == len(processes):
            return True
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
    one_clock: bool = True,
) -> RankAssignment:
    """Name the rank of every process with device runs in `logs`, whose times must be on one clock.

    `manifest_ranks` maps pids, `file_ranks` maps log paths (`strace/rank-<r>.log`). Where neither names a process, the
    scheduler's worker ids do if its records fit in one way alone, else the order of the devices of the ready lines. A
    process that nothing names gets the ranks left over in order of pid, with the basis "pid order". Every life of the
    recording is named by itself; without `one_clock` lives cannot be told apart.
    """
    processes = _device_processes(logs)
    silent = _silent_processes(logs, processes)
    ready = ready_devices(logs, [*processes, *silent])
    own_logs = file_ranks or {}
    lives = find_lives(logs, processes, ready, own_logs) if one_clock else dict.fromkeys(processes, 0)
    if len(set(lives.values())) > 1:
        # In which of the lives a process without a record was, nothing tells.
        silent = []
    lives.update(dict.fromkeys(silent, 0))
    ranks: dict[Process, int] = {}
    basis: dict[Process, RankBasis] = {}
    for life in sorted(set(lives.values())):
        members = [process for process in [*processes, *silent] if lives.get(process, 0) == life]
        named = _name_life(logs, members, silent, ready, manifest_ranks or {}, own_logs)
        for process, (rank, source) in named.items():
            ranks[process] = rank
            basis[process] = source
    windows = process_windows(log.spans for log in logs)
    return RankAssignment(
        ranks,
        basis,
        windows={process: windows[process] for process in ranks if process in windows},
        lives=lives,
        silent=frozenset(silent),
    )


def _name_life(
    logs: Sequence[StraceLog],
    processes: Sequence[Process],
    silent: Sequence[Process],
    ready: Mapping[Process, int],
    manifest_ranks: Mapping[int, int],
    file_ranks: Mapping[str, int],
) -> dict[Process, tuple[int, RankBasis]]:
    """The rank of every process of one life, and what it was taken from."""
    named: dict[Process, tuple[int, RankBasis]] = {}
    for process in processes:
        path, label = process
        pid = _pid(label)
        if pid is not None and pid in manifest_ranks:
            named[process] = manifest_ranks[pid], "manifest"
        elif path in file_ranks:
            named[process] = file_ranks[path], "file name"
    by_device = _device_order({process: ready[process] for process in processes if process in ready})
    workers: set[int] = set()
    if not named:
        by_worker = scheduler_ranks(logs, [process for process in processes if process not in silent])
        if any(by_device.get(process) != worker for process, worker in by_worker.items()):
            named.update((process, (worker, "scheduler records")) for process, worker in by_worker.items())
            workers = set(by_worker.values())
    for process, rank in by_device.items():
        if process not in named and rank not in workers:
            named[process] = rank, "ready lines"
    unnamed = [process for process in processes if process not in named]
    taken = {rank for rank, _ in named.values()}
    free = (rank for rank in range(len(taken) + len(unnamed)) if rank not in taken)
    for process in sorted(unnamed, key=lambda item: (str(type(item[1])), str(item[1]).zfill(20), item[0])):
        named[process] = next(free), "pid order"
    return named


def _device_order(ready: Mapping[Process, int]) -> dict[Process, int]:
    """Ranks by the order of the devices of the ready lines: devices 0, 2, 4 are ranks 0, 1, 2."""
    order = {device: rank for rank, device in enumerate(sorted(set(ready.values())))}
    return {process: order[device] for process, device in ready.items()}


def _silent_processes(logs: Sequence[StraceLog], processes: Collection[Process]) -> list[Process]:
    """Processes that a ready line or a torn record names in a log in which others have runs, and that have none."""
    with_records = {lane.process for log in logs for lane in log.spans.lanes}
    pids = {pid for _, pid in with_records}
    found: dict[Process, None] = {}
    for log in logs:
        path = log.report.path
        if not any(file == path for file, _ in processes):
            continue
        for line in log.processes.ready:
            found.setdefault((path, process_label(line.pid, line.incarnation)))
        for pid in log.torn_pids:
            found.setdefault((path, pid))
    return [process for process in found if process not in with_records and process[1] not in pids]


def _pid(label: int | str | None) -> int | None:
    """The pid of a process, whichever of those that had it."""
    digits = label.partition("#")[0] if isinstance(label, str) else label
    return int(digits) if digits is not None and str(digits).isdecimal() else None


def rank_column(spans: SpanTable, assignment: RankAssignment) -> SpanTable:
    """`spans` with the rank, life and device of each row's process; no rank is ABSENT."""
    by_lane = [assignment.ranks.get(lane.process, ABSENT) for lane in spans.lanes]
    named = spans.with_ranks(np.array(by_lane, dtype=np.int64)[spans.lane] if by_lane else spans.rank)
    return named.with_devices(assignment.devices).with_lives(assignment.lives)


def _device_processes(logs: Iterable[StraceLog]) -> list[Process]:
    processes: dict[Process, None] = {}
    for log in logs:
        chip = log.spans.category == _code_of(log.spans.categories, "chip")
        for code in np.unique(log.spans.lane[chip]).tolist():
            processes.setdefault(log.spans.lanes[code].process)
    return list(processes)


def _code_of(labels: tuple[str, ...], label: str) -> int:
    return labels.index(label) if label in labels else ABSENT
