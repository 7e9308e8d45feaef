"""Ranks that failed: what the scheduler's outcomes and the runtime's messages say, and nothing that they do not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
import numpy as np

from analyzers.ranks.scheduler import ENDPOINT_FAILURE, NEVER, SKIPPED, SUCCESS, Schedule
from analyzers.recording.rank_naming import RankAssignment
from analyzers.table.spans import Mask, Process


class RankFailure(msgspec.Struct, frozen=True):
    """A rank that did not do its part of some runs."""

    kind: Literal["died", "hung", "failed"]
    """Its process is gone; it never completed what it was given; its task ended with an error."""
    rank: int
    pid: str | None
    """Of its process, where the recording names it."""
    runs: list[int]
    """The ids of the runs, in the order of their submission; [] where nothing tells."""
    evidence: str
    """The records and messages that say so."""


def find_failures(
    schedule: Schedule,
    assigned: RankAssignment,
    exits: Mapping[int, str],
    *,
    timed_out_ns: int | None,
    lost: int = 0,
) -> list[RankFailure]:
    """Every rank that failed, by rank: died before hung before failed.

    A run that a worker has not completed when the recording ends is a hang only where others completed it and the
    log says behind that that a wait timed out, at `timed_out_ns` or later: a recording may end anywhere. Of `lost`
    records one may be the completion that is missing.
    """
    failures = _dead(schedule, assigned, exits)
    gone = {failure.rank for failure in failures}
    by_rank: dict[int, list[int]] = {}
    for part in _parts(schedule, _is_task_failure(schedule)):
        by_rank.setdefault(int(schedule.part_worker[part]), []).append(part)
    for rank, parts in sorted(by_rank.items()):
        outcomes = sorted({int(schedule.part_outcome[part]) for part in parts})
        failures.append(
            RankFailure(
                "failed",
                rank,
                _pid_of(assigned, rank),
                _run_ids(schedule, parts),
                f"node.complete with outcome={', '.join(map(str, outcomes))}",
            )
        )
    if timed_out_ns is not None:
        hung = _hung(schedule, assigned, timed_out_ns, lost)
        failures += [failure for failure in hung if failure.rank not in gone]
    return sorted(failures, key=lambda failure: (failure.rank, failure.kind))


def _dead(schedule: Schedule, assigned: RankAssignment, exits: Mapping[int, str]) -> list[RankFailure]:
    of_rank: dict[int, list[int]] = {}
    for part in _parts(schedule, schedule.part_outcome == ENDPOINT_FAILURE):
        of_rank.setdefault(int(schedule.part_worker[part]), []).append(part)
    said: dict[int, tuple[int, str]] = {}
    for process, rank in assigned.ranks.items():
        pid = _number(process)
        if pid is not None and pid in exits:
            said[rank] = pid, exits[pid]
    failures = []
    for rank in sorted({*of_rank, *said}):
        parts, evidence = of_rank.get(rank, []), []
        if parts:
            evidence.append("node.complete with outcome=2, the endpoint failed")
        if rank in said:
            pid, how = said[rank]
            evidence.append(
                f"the log says that pid {pid} exited before it had completed{f' ({how})' if how else ''}"
            )
        pid_text = str(said[rank][0]) if rank in said else _pid_of(assigned, rank)
        failures.append(RankFailure("died", rank, pid_text, _run_ids(schedule, parts), "; ".join(evidence)))
    return failures


def _hung(schedule: Schedule, assigned: RankAssignment, timed_out_ns: int, lost: int) -> list[RankFailure]:
    never = open_parts(schedule)
    first_done = np.full(len(schedule), NEVER, dtype=np.int64)
    done = schedule.part_complete_ns != NEVER
    np.minimum.at(first_done, schedule.part_run[done], schedule.part_complete_ns[done])
    never &= first_done[schedule.part_run] <= timed_out_ns
    by_rank: dict[int, list[int]] = {}
    for part in _parts(schedule, never):
        by_rank.setdefault(int(schedule.part_worker[part]), []).append(part)
    failures = []
    for rank, parts in sorted(by_rank.items()):
        runs = _run_ids(schedule, parts)
        others = sorted(
            schedule.part_worker[
                (schedule.part_run == schedule.part_run[parts[0]]) & (schedule.part_complete_ns != NEVER)
            ].tolist()
        )
        waiting = _never_dispatched(schedule)
        evidence = (
            f"run {runs[0]} was dispatched to it and completed by {'rank' if len(others) == 1 else 'ranks'} "
            f"{', '.join(map(str, others))} alone; a wait timed out"
        )
        if lost:
            evidence += "; or its completion is one of the records that were lost"
        if waiting:
            are = (
                f"run {waiting[0]} was" if len(waiting) == 1 else f"runs {', '.join(map(str, waiting))} were"
            )
            evidence += f"; {are} submitted and never dispatched"
        failures.append(RankFailure("hung", rank, _pid_of(assigned, rank), runs, evidence))
    return failures


def open_parts(schedule: Schedule) -> Mask:
    """The parts of runs that a worker was given and others completed, but not this one, nor any run after it.

    A completion that names no worker may be that of any part of its run: none of those is open.
    """
    never: Mask = (schedule.part_complete_ns == NEVER) & (schedule.part_dispatch_ns != NEVER)
    completed = np.bincount(schedule.part_run[schedule.part_complete_ns != NEVER], minlength=len(schedule))
    # A run that is complete although this part of it has no record lost that record.
    never &= (schedule.complete_ns[schedule.part_run] == NEVER) & (completed[schedule.part_run] > 0)
    never &= ~schedule.has_unnamed_completion[schedule.part_run]
    return never


def _never_dispatched(schedule: Schedule) -> list[int]:
    given = np.bincount(schedule.part_run, minlength=len(schedule)) > 0
    waiting = np.flatnonzero((schedule.submit_ns != NEVER) & ~given)
    return [int(run) for run in schedule.run_id[waiting]]


def _is_task_failure(schedule: Schedule) -> Mask:
    outcome = schedule.part_outcome
    failed: Mask = (outcome != SUCCESS) & (outcome != ENDPOINT_FAILURE) & (outcome != SKIPPED)
    return failed


def _parts(schedule: Schedule, chosen: Mask) -> list[int]:
    """The parts of a mask, in the order in which their runs were submitted."""
    parts = np.flatnonzero(chosen)
    order = np.argsort(schedule.submit_ns[schedule.part_run[parts]], kind="stable")
    return [int(part) for part in parts[order]]


def _run_ids(schedule: Schedule, parts: list[int]) -> list[int]:
    return [int(schedule.run_id[schedule.part_run[part]]) for part in parts]


def _pid_of(assigned: RankAssignment, rank: int) -> str | None:
    """The pid of the only process of the rank."""
    pids = {str(pid) for (_, pid), of_process in assigned.ranks.items() if of_process == rank}
    return pids.pop() if len(pids) == 1 else None


def _number(process: Process) -> int | None:
    pid = process[1]
    return pid if isinstance(pid, int) else None
