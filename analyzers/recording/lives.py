"""Lives: the worker processes that ran together, where several such sets come and go in one recording.

An engine that was started again, or a log that another run was appended to, has processes that never run at the same
time. Ids, rounds and dispatches in flight mean something within one life alone (docs/formats.md, Several lives).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analyzers.readers.strace import StraceLog, roots
from analyzers.recording.clocks import process_windows
from analyzers.table.families import family
from analyzers.table.spans import Process


@dataclass
class _Together:
    """Processes whose windows touch one another, directly or through others."""

    processes: list[Process]
    first_ns: int
    last_ns: int


def find_lives(
    logs: Sequence[StraceLog],
    workers: Collection[Process],
    ready: Mapping[Process, int],
    file_ranks: Mapping[str, int],
) -> dict[Process, int]:
    """The life of every one of `workers`, the processes with device runs, from 0 in order of time.

    Times must be of one clock. A pause parts two lives only where something shows that the processes behind it are new
    ones: a device or a rank's log that another process had, another scheduler, or runs of every process on both sides.
    """
    windows = process_windows(log.spans for log in logs)
    groups = _in_time(workers, windows)
    schedulers = {process: windows[process] for process in _schedulers(logs)} if len(groups) > 1 else {}
    counts = _root_counts(logs) if len(groups) > 1 else {}
    lives: dict[Process, int] = {}
    life: list[_Together] = []
    number = 0
    for group in groups:
        if life:
            before = [process for earlier in life for process in earlier.processes]
            parted = (
                _same_place(before, group.processes, ready, file_ranks)
                or _other_scheduler(life, group, schedulers)
                or all(counts.get(process, 0) > 1 for process in [*before, *group.processes])
            )
            if parted:
                number, life = number + 1, []
        life.append(group)
        lives.update(dict.fromkeys(group.processes, number))
    return lives


def _in_time(workers: Collection[Process], windows: Mapping[Process, tuple[int, int]]) -> list[_Together]:
    """Processes that ran at the same time, in order of time."""
    groups: list[_Together] = []
    timed = sorted((process for process in workers if process in windows), key=lambda item: windows[item])
    for process in timed:
        first, last = windows[process]
        if groups and first <= groups[-1].last_ns:
            groups[-1].processes.append(process)
            groups[-1].last_ns = max(groups[-1].last_ns, last)
        else:
            groups.append(_Together([process], first, last))
    return groups


def _same_place(
    before: Iterable[Process],
    after: Iterable[Process],
    ready: Mapping[Process, int],
    file_ranks: Mapping[str, int],
) -> bool:
    """Whether a process has the device, the log or the pid of one before it."""

    def places(processes: Iterable[Process]) -> set[object]:
        found: set[object] = set()
        for process in processes:
            file, pid = process
            found.add(("pid", file, str(pid).partition("#")[0]))
            if process in ready:
                found.add(("device", ready[process]))
            if file in file_ranks:
                found.add(("rank", file_ranks[file]))
        return found

    return not places(before).isdisjoint(places(after))


def _other_scheduler(
    life: Sequence[_Together], group: _Together, schedulers: Mapping[Process, tuple[int, int]]
) -> bool:
    """Whether the scheduler that was there for `life` is another than the one that is there for `group`."""

    def there(first: int, last: int) -> set[Process]:
        return {process for process, window in schedulers.items() if window[0] <= first and last <= window[1]}

    before = there(life[0].first_ns, life[-1].last_ns)
    after = there(group.first_ns, group.last_ns)
    return bool(before and after) and before.isdisjoint(after)


def _schedulers(logs: Iterable[StraceLog]) -> set[Process]:
    """The processes with records of the runtime's scheduler."""
    found = set()
    for log in logs:
        rows = log.spans.where_name(lambda name: family(name) == "node")
        found |= {log.spans.lanes[code].process for code in np.unique(log.spans.lane[rows]).tolist()}
    return found


def _root_counts(logs: Iterable[StraceLog]) -> dict[Process, int]:
    counts: dict[Process, int] = {}
    for log in logs:
        lanes, number = np.unique(log.spans.lane[roots(log.spans)], return_counts=True)
        for code, count in zip(lanes.tolist(), number.tolist(), strict=True):
            process = log.spans.lanes[code].process
            counts[process] = counts.get(process, 0) + count
    return counts
