"""What ties lanes together: flows from a submit over each rank's run to the wait, and what is in flight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count

import numpy as np

from analyzers.steps.endpoints import Endpoint
from analyzers.steps.steps import Step
from analyzers.swimlane.model import CounterTrack, FlowPhase, FlowPoint, Slice
from analyzers.swimlane.runs import DrawnRun
from analyzers.table.callables import SUBMIT, WAIT, DispatchNames
from analyzers.table.spans import ABSENT, Source, SpanTable

IN_FLIGHT = "dispatches in flight"


@dataclass(frozen=True, slots=True)
class DrawnDispatch:
    """A step and the slices of its two ends. Times are the step's: a slice may be cut to the one that it lies in."""

    step: Step
    submit: Slice
    wait: Slice


def drawn_dispatches(
    spans: SpanTable, steps: Iterable[Step], slices: Mapping[int, Slice]
) -> list[DrawnDispatch]:
    """Those of `steps`, in their order, of which both ends are drawn."""
    is_end = spans.where_name(lambda name: name.endswith((SUBMIT, WAIT))) & (spans.source == Source.SERVING)
    drawn = {
        (spans.lane_of(row), spans.name_of(row), slices[row].start_ns, slices[row].end_ns): slices[row]
        for row in np.flatnonzero(is_end).tolist()
        if row in slices
    }

    def slice_of(end: Endpoint, suffix: str) -> Slice | None:
        return drawn.get((end.lane, end.callable + suffix, end.interval.start_ns, end.interval.end_ns))

    dispatches = []
    for step in steps:
        submit, wait = slice_of(step.submit, SUBMIT), slice_of(step.wait, WAIT)
        if submit is not None and wait is not None:
            dispatches.append(DrawnDispatch(step, submit, wait))
    return dispatches


def name_callables(names: DispatchNames, runs: Iterable[DrawnRun]) -> None:
    """Give every run's root the callable that its dispatch names, as the argument `callable`."""
    for run in runs:
        name = names.get(run.dispatch_id)
        if name is not None:
            run.root.args.setdefault("callable", name)


def connect(dispatches: Iterable[DrawnDispatch], runs: Iterable[DrawnRun]) -> None:
    """Add a flow from each submit over the runner_run of each rank to the wait.

    Joined by dispatch_id; a dispatch without runs flows straight to its wait. The runs learn the step they
    belong to.
    """
    runs_of: dict[int, list[DrawnRun]] = {}
    for run in runs:
        if run.dispatch_id not in (ABSENT, 0):
            runs_of.setdefault(run.dispatch_id, []).append(run)
    known = list(dispatches)
    owners = _unambiguous(known)
    flow_ids = count(1)
    for dispatch in known:
        own = owners.get(dispatch.step.dispatch_id) is dispatch
        joined = runs_of.get(dispatch.step.dispatch_id, []) if own else []
        for run in joined:
            _label(run, dispatch)
        steps: list[Slice | None] = [run.runner_run for run in joined if run.runner_run is not None]
        for step in steps or [None]:
            flow = next(flow_ids)
            dispatch.submit.flows.append(FlowPoint(flow, FlowPhase.BEGIN))
            if step is not None:
                step.flows.append(FlowPoint(flow, FlowPhase.STEP))
            dispatch.wait.flows.append(FlowPoint(flow, FlowPhase.END))


def in_flight(dispatches: Iterable[DrawnDispatch]) -> CounterTrack:
    """Count the dispatches in flight over time, as the report does: from the submit's return to the wait's end."""
    changes: dict[int, int] = {}
    for dispatch in dispatches:
        submitted, completed = dispatch.step.submit.interval.end_ns, dispatch.step.wait.interval.end_ns
        changes[submitted] = changes.get(submitted, 0) + 1
        changes[completed] = changes.get(completed, 0) - 1
    value = 0
    points: list[tuple[int, float]] = []
    for at_ns, change in sorted(changes.items()):
        value += change
        points.append((at_ns, value))
    return CounterTrack(IN_FLIGHT, points)


def _unambiguous(dispatches: Iterable[DrawnDispatch]) -> dict[int, DrawnDispatch]:
    """dispatch_id -> the only dispatch that carries it; two serving processes may count alike."""
    owners: dict[int, DrawnDispatch] = {}
    ambiguous: set[int] = set()
    for dispatch in dispatches:
        key = dispatch.step.dispatch_id
        if key != ABSENT and owners.setdefault(key, dispatch) is not dispatch:
            ambiguous.add(key)
    return {key: dispatch for key, dispatch in owners.items() if key not in ambiguous}


def _label(run: DrawnRun, dispatch: DrawnDispatch) -> None:
    step_id = dispatch.step.named_step_id
    for item in (*run.host, *run.device):
        item.args.setdefault("dispatch_id", dispatch.step.named_dispatch_id)
        if step_id is not None:
            item.args.setdefault("step_id", step_id)
