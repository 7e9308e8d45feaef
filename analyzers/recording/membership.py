"""Which spans belong to one step: by its ids, by the span around them, by the run that they are part of."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from analyzers.readers.strace import ROOT
from analyzers.table.spans import ABSENT, Int64s, Kind, Source, SpanTable

NO_UNIT = -1


def units_of(spans: SpanTable) -> Int64s:
    """A number for every row, equal for the rows of one step; NO_UNIT for rows of none.

    A row belongs to the step that it or the serving span around it names; a dispatch and its runs to the step of that
    dispatch, else to the dispatch; runs without any id to their invocation number, which ranks count alike.
    """
    steps = spans.step_id.copy()
    dispatches = spans.dispatch_id.copy()
    _inherit_from_around(spans, steps, dispatches)
    _inherit_from_root(spans, steps, dispatches)
    known = _steps_of_dispatches(steps, dispatches)
    unnamed = (steps == ABSENT) & (dispatches != ABSENT)
    steps[unnamed] = [known.get(dispatch, ABSENT) for dispatch in dispatches[unnamed].tolist()]
    invoked = np.where((spans.rank != ABSENT), spans.invocation, ABSENT)
    kinds = np.select([steps != ABSENT, dispatches != ABSENT, invoked != ABSENT], [0, 1, 2], NO_UNIT)
    # Processes that had one pid one after the other, and those of another life, count their invocations from 1 each.
    lives = [lane.incarnation + spans.lives.get(lane.process, 0) for lane in spans.lanes]
    begins = np.array([*lives, 0], dtype=np.int64)[spans.lane]
    ids = np.select([kinds == 0, kinds == 1, kinds == 2], [steps, dispatches, invoked], ABSENT)
    if not len(spans):
        return ids.astype(np.int64)
    kinds = np.where(kinds == 2, kinds + begins, kinds)
    _, units = np.unique(np.stack([kinds, ids], axis=1), axis=0, return_inverse=True)
    return np.where(kinds == NO_UNIT, NO_UNIT, units.reshape(-1)).astype(np.int64)


def steps_of_units(spans: SpanTable, units: Int64s) -> Int64s:
    """unit -> its step id; ABSENT for one whose spans name none."""
    steps = np.full(int(units.max(initial=NO_UNIT)) + 1, ABSENT, dtype=np.int64)
    named = (spans.step_id != ABSENT) & (units != NO_UNIT)
    steps[units[named]] = spans.step_id[named]
    return steps


def _inherit_from_around(spans: SpanTable, steps: Int64s, dispatches: Int64s) -> None:
    """Give serving spans without ids those of the innermost span around them on their lane."""
    serving = (spans.source == Source.SERVING) & (spans.kind != Kind.ASYNC)
    bare = serving & (steps == ABSENT) & (dispatches == ABSENT)
    lanes = np.unique(spans.lane[bare])
    rows = np.flatnonzero(serving & np.isin(spans.lane, lanes))
    order = rows[np.lexsort((-spans.duration_ns[rows], spans.start_ns[rows], spans.lane[rows]))]
    ends = spans.end_ns
    around: list[int] = []
    lane = ABSENT
    for row in order.tolist():
        if spans.lane[row] != lane:
            lane, around = int(spans.lane[row]), []
        while around and ends[around[-1]] < ends[row]:
            around.pop()
        if around and bare[row]:
            steps[row], dispatches[row] = steps[around[-1]], dispatches[around[-1]]
        around.append(row)


def _inherit_from_root(spans: SpanTable, steps: Int64s, dispatches: Int64s) -> None:
    """Give the spans of a run the ids of its root: only the root carries them."""
    processes = [lane.process for lane in spans.lanes]
    roots: dict[tuple[Hashable, int], int] = {}
    invoked = spans.invocation != ABSENT
    for row in np.flatnonzero(spans.named(ROOT) & invoked).tolist():
        roots[processes[spans.lane[row]], int(spans.invocation[row])] = row
    for row in np.flatnonzero(invoked & (steps == ABSENT) & (dispatches == ABSENT)).tolist():
        root = roots.get((processes[spans.lane[row]], int(spans.invocation[row])))
        if root is not None:
            steps[row], dispatches[row] = steps[root], dispatches[root]


def _steps_of_dispatches(steps: Int64s, dispatches: Int64s) -> dict[int, int]:
    """dispatch -> step, where the recording names one step for it."""
    both = (steps != ABSENT) & (dispatches != ABSENT)
    known: dict[int, int] = {}
    ambiguous = set()
    for dispatch, step in zip(dispatches[both].tolist(), steps[both].tolist(), strict=True):
        if known.setdefault(dispatch, step) != step:
            ambiguous.add(dispatch)
    return {dispatch: step for dispatch, step in known.items() if dispatch not in ambiguous}
