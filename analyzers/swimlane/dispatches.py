"""What ties lanes together: flows from a submit over each rank's run to the wait, and what is in flight."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count

import numpy as np

from analyzers.callables import SUBMIT, WAIT
from analyzers.spans import ABSENT, Source, SpanTable
from analyzers.swimlane.model import CounterTrack, FlowPhase, FlowPoint, Slice
from analyzers.swimlane.runs import Run

IN_FLIGHT = "dispatches in flight"


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One submit and the wait that completed it."""

    process: tuple[str, int | str | None]
    dispatch_id: int
    step_id: int
    submit: Slice
    wait: Slice


def pair_dispatches(spans: SpanTable, slices: Mapping[int, Slice]) -> list[Dispatch]:
    """Pair submits with waits by explicit id, dispatch_id before step_id, within one process and callable.

    An id that is not on exactly one of each pairs nothing.
    """
    submits = _by_identity(spans, slices, SUBMIT)
    waits = _by_identity(spans, slices, WAIT)
    return [
        Dispatch(
            process=spans.lane_of(rows[0]).process,
            dispatch_id=int(spans.dispatch_id[rows[0]]),
            step_id=int(spans.step_id[rows[0]]),
            submit=slices[rows[0]],
            wait=slices[waits[identity][0]],
        )
        for identity, rows in submits.items()
        if len(rows) == 1 and len(waits.get(identity, ())) == 1
    ]


def connect(dispatches: Iterable[Dispatch], runs: Iterable[Run]) -> int:
    """Add a flow from each submit over the runner_run of each rank to the wait; return how many there are.

    Joined by dispatch_id; a dispatch without runs flows straight to its wait. The runs learn the step they
    belong to.
    """
    runs_of: dict[int, list[Run]] = {}
    for run in runs:
        if run.dispatch_id not in (ABSENT, 0):
            runs_of.setdefault(run.dispatch_id, []).append(run)
    known = list(dispatches)
    owners = _unambiguous(known)
    flow_ids = count(1)
    for dispatch in known:
        own = owners.get(dispatch.dispatch_id) is dispatch
        joined = runs_of.get(dispatch.dispatch_id, []) if own else []
        for run in joined:
            _label(run, dispatch)
        steps: list[Slice | None] = [run.runner_run for run in joined if run.runner_run is not None]
        for step in steps or [None]:
            flow = next(flow_ids)
            dispatch.submit.flows.append(FlowPoint(flow, FlowPhase.BEGIN))
            if step is not None:
                step.flows.append(FlowPoint(flow, FlowPhase.STEP))
            dispatch.wait.flows.append(FlowPoint(flow, FlowPhase.END))
    return next(flow_ids) - 1


def in_flight(dispatches: Iterable[Dispatch]) -> CounterTrack:
    """Count the dispatches in flight over time: from the submit's start to the wait's end."""
    changes: dict[int, int] = {}
    for dispatch in dispatches:
        changes[dispatch.submit.start_ns] = changes.get(dispatch.submit.start_ns, 0) + 1
        changes[dispatch.wait.end_ns] = changes.get(dispatch.wait.end_ns, 0) - 1
    value = 0
    points = []
    for at_ns, change in sorted(changes.items()):
        value += change
        points.append((at_ns, value))
    return CounterTrack(IN_FLIGHT, points)


def _by_identity(spans: SpanTable, slices: Mapping[int, Slice], suffix: str) -> dict[Hashable, list[int]]:
    rows_of: dict[Hashable, list[int]] = {}
    wanted = (spans.source == Source.SERVING) & spans.where_name(lambda name: name.endswith(suffix))
    for row in np.flatnonzero(wanted).tolist():
        if row not in slices:
            continue
        callable_name = spans.name_of(row).removesuffix(suffix)
        for column in (spans.dispatch_id, spans.step_id):
            if column[row] != ABSENT:
                kind = "dispatch" if column is spans.dispatch_id else "step"
                identity = (spans.lane_of(row).process, callable_name, kind, int(column[row]))
                rows_of.setdefault(identity, []).append(row)
                break
    return rows_of


def _unambiguous(dispatches: Iterable[Dispatch]) -> dict[int, Dispatch]:
    """dispatch_id -> the only dispatch that carries it; two serving processes may count alike."""
    owners: dict[int, Dispatch] = {}
    ambiguous: set[int] = set()
    for dispatch in dispatches:
        if dispatch.dispatch_id == ABSENT:
            continue
        if owners.setdefault(dispatch.dispatch_id, dispatch) is not dispatch:
            ambiguous.add(dispatch.dispatch_id)
    return {key: dispatch for key, dispatch in owners.items() if key not in ambiguous}


def _label(run: Run, dispatch: Dispatch) -> None:
    for item in (*run.host, *run.device):
        item.args.setdefault("dispatch_id", dispatch.dispatch_id)
        if dispatch.step_id != ABSENT:
            item.args.setdefault("step_id", dispatch.step_id)
