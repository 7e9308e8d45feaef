"""What the runtime's scheduler says of its runs: when each was submitted, dispatched to its workers, and completed.

A run's completion is the last `node.complete` of its workers (docs/metrics.md, Completion); the end of a wait is only
when somebody looked.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from analyzers.table.families import family
from analyzers.table.spans import ABSENT, Int64s, Mask, Process, Source, SpanTable

_SUBMIT = ".submit"
_DISPATCHES = (".dispatch", ".frame_submit")
_COMPLETE = ".complete"

SUCCESS, TASK_FAILURE, ENDPOINT_FAILURE, SKIPPED = range(4)
"""`outcome` of node.complete: an endpoint fails when the process of its worker is gone."""

NEVER = int(np.iinfo(np.int64).max)
"""The time of what did not happen."""


class Flight(NamedTuple):
    """A run that the scheduler had in flight, in ns: its submission began and had returned, its last completion likewise."""

    start_ns: int
    returned_ns: int
    completing_ns: int
    """Its frame is free from here on."""
    end_ns: int


@dataclass(frozen=True)
class Schedule:
    """Runs in columns, by scheduler and submission; and the parts of each run, one a worker, in columns of their own."""

    processes: tuple[Process, ...]
    process: Int64s
    """Of each run: which of `processes` scheduled it."""
    run_id: Int64s
    submit_ns: Int64s
    """Start of its first node.submit; NEVER without one."""
    submitted_ns: Int64s
    """End of its last node.submit, the wait for a free frame included; NEVER without one."""
    completing_ns: Int64s
    """Start of its last node.complete; NEVER where `complete_ns` is."""
    complete_ns: Int64s
    """End of its last node.complete; NEVER where a worker has not completed it."""
    hid: tuple[str, ...]
    """Hash of the callable; "" where its records name none, or several."""

    has_unnamed_completion: Mask
    """Whether a completion of the run names no worker, although others do: its record was cut."""

    part_run: Int64s
    """Of each part: the position of its run."""
    part_worker: Int64s
    part_dispatch_ns: Int64s
    """Start of its dispatch; NEVER without one."""
    part_complete_ns: Int64s
    part_outcome: Int64s
    """The worst outcome of its completions; SUCCESS without one."""

    def __len__(self) -> int:
        return len(self.run_id)

    def flights(self, positions: Collection[int] | None = None) -> list[list[Flight]]:
        """The runs of each scheduler from submission to completion, by submission; all, or those at `positions`.

        The end of a run that a worker never completed is NEVER: it was still in flight when the recording ended.
        """
        chosen: Mask = self.submit_ns != NEVER
        if positions is not None:
            chosen &= np.isin(np.arange(len(self)), list(positions))
        flights: list[list[Flight]] = [[] for _ in self.processes]
        for run in np.flatnonzero(chosen).tolist():
            flights[int(self.process[run])].append(
                Flight(
                    int(self.submit_ns[run]),
                    int(self.submitted_ns[run]),
                    int(self.completing_ns[run]),
                    int(self.complete_ns[run]),
                )
            )
        return [sorted(own) for own in flights if own]


def read_schedule(spans: SpanTable) -> Schedule:
    """The schedule in the node records of `spans`."""
    of_runs = (spans.source == Source.STRACE) & (spans.run_id != ABSENT)
    rows = np.flatnonzero(of_runs & spans.where_name(_is_edge)) if of_runs.any() else np.empty(0, np.intp)
    codes: dict[Process, int] = {}
    by_lane = np.array([codes.setdefault(lane.process, len(codes)) for lane in spans.lanes] or [0])
    scheduler = by_lane[spans.lane[rows]] if len(rows) else np.empty(0, np.int64)
    key = np.stack([scheduler, spans.run_id[rows]], axis=1)
    runs, of_run = np.unique(key, axis=0, return_inverse=True)
    of_run = of_run.reshape(-1)
    submitted = spans.where_name(lambda name: name.endswith(_SUBMIT))[rows]
    dispatched = spans.where_name(lambda name: name.endswith(_DISPATCHES))[rows]
    completed = spans.where_name(lambda name: name.endswith(_COMPLETE))[rows]
    starts, ends = spans.start_ns[rows], spans.end_ns[rows]
    workers = spans.worker_id[rows]
    in_part = (dispatched | completed) & (workers != ABSENT)
    parts, of_part = np.unique(
        np.stack([of_run[in_part], workers[in_part]], axis=1), axis=0, return_inverse=True
    )
    of_part = of_part.reshape(-1)
    is_start, is_end = dispatched[in_part], completed[in_part]
    part_complete = _last(len(parts), of_part[is_end], ends[in_part][is_end])
    outcome = np.zeros(len(parts), dtype=np.int64)
    np.maximum.at(outcome, of_part[is_end], spans.failed[rows][in_part][is_end].astype(np.int64))
    complete = _last(len(runs), of_run[completed], ends[completed])
    open_runs = _never_completed(
        parts, part_complete, _first(len(runs), of_run[submitted], starts[submitted])
    )
    complete[open_runs] = NEVER
    completing = _last(len(runs), of_run[completed], starts[completed])
    completing[open_runs] = NEVER
    return Schedule(
        processes=tuple(codes),
        process=runs[:, 0] if len(runs) else np.empty(0, np.int64),
        run_id=runs[:, 1] if len(runs) else np.empty(0, np.int64),
        submit_ns=_first(len(runs), of_run[submitted], starts[submitted]),
        submitted_ns=_last(len(runs), of_run[submitted], ends[submitted]),
        completing_ns=completing,
        complete_ns=complete,
        has_unnamed_completion=_unnamed(len(runs), of_run, completed & (workers == ABSENT), named=in_part),
        hid=_hashes(spans, rows, of_run, len(runs)),
        part_run=parts[:, 0] if len(parts) else np.empty(0, np.int64),
        part_worker=parts[:, 1] if len(parts) else np.empty(0, np.int64),
        part_dispatch_ns=_first(len(parts), of_part[is_start], starts[in_part][is_start]),
        part_complete_ns=part_complete,
        part_outcome=outcome,
    )


def _is_edge(name: str) -> bool:
    return family(name) == "node" and name.endswith((_SUBMIT, *_DISPATCHES, _COMPLETE))


def _first(count: int, groups: npt.NDArray[np.intp], times: Int64s) -> Int64s:
    first = np.full(count, NEVER, dtype=np.int64)
    np.minimum.at(first, groups, times)
    return first


def _last(count: int, groups: npt.NDArray[np.intp], times: Int64s) -> Int64s:
    last = np.full(count, -1, dtype=np.int64)
    np.maximum.at(last, groups, times)
    last[last == -1] = NEVER
    return last


def _never_completed(parts: Int64s, completed: Int64s, submitted: Int64s) -> list[int]:
    """Runs that a worker was given and did not complete, nor any run after it: such a record was not lost."""
    found = set()
    for worker in np.unique(parts[:, 1]).tolist() if len(parts) else ():
        own = np.flatnonzero(parts[:, 1] == worker)
        own = own[np.argsort(submitted[parts[own, 0]], kind="stable")]
        done = np.flatnonzero(completed[own] != NEVER)
        found |= set(parts[own[done[-1] + 1 if len(done) else 0 :], 0].tolist())
    return sorted(found)


def _unnamed(count: int, of_run: npt.NDArray[np.intp], completions: Mask, *, named: Mask) -> Mask:
    found = np.zeros(count, dtype=np.bool_)
    if named.any():
        found[of_run[completions]] = True
    return found


def _hashes(
    spans: SpanTable, rows: npt.NDArray[np.intp], of_run: npt.NDArray[np.intp], count: int
) -> tuple[str, ...]:
    """The one hash that the records of each run name; records of the graph itself have none."""
    found: list[set[str]] = [set() for _ in range(count)]
    pairs = np.unique(np.stack([of_run, spans.hid[rows]], axis=1), axis=0)
    for run, code in pairs.tolist():
        if spans.hids[code]:
            found[run].add(spans.hids[code])
    return tuple(next(iter(hashes)) if len(hashes) == 1 else "" for hashes in found)
