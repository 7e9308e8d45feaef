"""The processes of a span table: which ranks they are, and pids that stay apart when files are merged."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from analyzers.table.spans import ABSENT, Clock, Int64s, Lane, Process, SpanTable

_MOST_PAIRS = 1 << 20
"""More (lane, rank) pairs than this are not counted one by one."""


def lane_ranks(spans: SpanTable) -> list[tuple[int, int]]:
    """(lane, rank) of every pair that a row has, without rows of no rank."""
    highest = int(spans.rank.max(initial=ABSENT))
    if highest < 0:
        return []
    width = highest + 2
    if len(spans.lanes) * width > _MOST_PAIRS or int(spans.rank.min()) < ABSENT:
        pairs = np.unique(np.stack([spans.lane, spans.rank], axis=1), axis=0)
        return [(int(lane), int(rank)) for lane, rank in pairs.tolist() if rank >= 0]
    # In 32 bits: for a large trace every temporary column counts.
    keys = spans.lane.astype(np.int32)
    keys *= np.int32(width)
    keys += spans.rank.astype(np.int32)
    keys += np.int32(1)
    found = np.flatnonzero(np.bincount(keys)).tolist()
    return [(key // width, key % width - 1) for key in found if key % width]


def merged_pids(spans: SpanTable) -> Int64s:
    """A pid for every lane of `spans.lanes`, different for different processes; ABSENT where the file has no number.

    A process keeps its own pid where it can. Equal pids of several files are one process only where nothing speaks
    against it: on the host's clock, and of one rank at most. Ranks in containers may all have pid 1.
    """
    ranks: dict[Process, set[int]] = {}
    for lane, rank in lane_ranks(spans):
        ranks.setdefault(spans.lanes[lane].process, set()).add(rank)
    own_clock = {
        spans.lanes[code].process for code in np.unique(spans.lane[spans.clock == Clock.FILE]).tolist()
    }
    ranks_of_pid: dict[int, set[int]] = {}
    for candidate in spans.lanes:
        if isinstance(candidate.pid, int) and candidate.process not in own_clock:
            ranks_of_pid.setdefault(candidate.pid, set()).update(ranks.get(candidate.process, ()))
    taken: dict[int, object] = {}
    numbers: dict[object, int] = {}
    following = max((lane.pid for lane in spans.lanes if isinstance(lane.pid, int)), default=0) + 1
    merged = []
    for candidate in spans.lanes:
        pid, process = candidate.pid, candidate.process
        if not isinstance(pid, int):
            merged.append(ABSENT)
            continue
        identity: object = process
        if process not in own_clock and not candidate.incarnation:
            shared = ranks_of_pid[pid]
            own = ranks.get(process, set())
            identity = (pid, frozenset(own) if len(shared) > 1 else None)
        if identity not in numbers:
            if taken.setdefault(pid, identity) == identity:
                numbers[identity] = pid
            else:
                numbers[identity], following = following, following + 1
        merged.append(numbers[identity])
    return np.array(merged, dtype=np.int64)


def with_incarnations(
    spans: SpanTable, of_process: Callable[[Lane], bool], begins: Sequence[int], at: Int64s | None = None
) -> SpanTable:
    """`spans` with lanes of their own for what another process did that had the pid later.

    `begins` are where such processes begin, by the value of `at` for a row (its start in ns, say), else by the row.
    """
    lanes, codes = list(spans.lanes), spans.lane.copy()
    for code, lane in enumerate(spans.lanes):
        if not of_process(lane):
            continue
        rows = np.flatnonzero(spans.lane == code)
        incarnations = np.searchsorted(begins, rows if at is None else at[rows], side="right")
        for incarnation in np.unique(incarnations[incarnations > 0]).tolist():
            codes[rows[incarnations == incarnation]] = len(lanes)
            lanes.append(lane._replace(incarnation=incarnation))
    return dataclasses.replace(spans, lanes=tuple(lanes), lane=codes)
