"""What ties lanes together: flows from a submit over each rank's run to the wait, and what is in flight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count

from analyzers.steps.endpoints import Endpoint
from analyzers.steps.lifecycle import check_lifecycles
from analyzers.swimlane.model import CounterTrack, FlowPhase, FlowPoint, Slice
from analyzers.swimlane.runs import Run
from analyzers.table.callables import SUBMIT, WAIT, DispatchNames
from analyzers.table.spans import ABSENT, Source, SpanTable, empty_table

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
    """Return the dispatches with a valid lifecycle, in order of submission: those that the report counts."""
    drawn = {
        (spans.lane_of(row), spans.name_of(row), item.start_ns, item.end_ns): item
        for row, item in slices.items()
        if spans.source[row] == Source.SERVING
    }

    def slice_of(end: Endpoint, suffix: str) -> Slice | None:
        return drawn.get((end.lane, end.callable + suffix, end.interval.start_ns, end.interval.end_ns))

    dispatches = []
    for step in check_lifecycles(spans, empty_table()).steps:
        submit, wait = slice_of(step.submit, SUBMIT), slice_of(step.wait, WAIT)
        if submit is not None and wait is not None:
            dispatches.append(Dispatch(step.submit.process, step.dispatch_id, step.step_id, submit, wait))
    return dispatches


def name_callables(spans: SpanTable, runs: Iterable[Run]) -> None:
    """Give every run's root the callable that its dispatch names, as the argument `callable`."""
    names = DispatchNames(spans)
    for run in runs:
        name = names.get(run.dispatch_id)
        if name is not None:
            run.root.args.setdefault("callable", name)


def connect(dispatches: Iterable[Dispatch], runs: Iterable[Run]) -> None:
    """Add a flow from each submit over the runner_run of each rank to the wait.

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


def in_flight(dispatches: Iterable[Dispatch]) -> CounterTrack:
    """Count the dispatches in flight over time: from the submit's start to the wait's end."""
    changes: dict[int, int] = {}
    for dispatch in dispatches:
        changes[dispatch.submit.start_ns] = changes.get(dispatch.submit.start_ns, 0) + 1
        changes[dispatch.wait.end_ns] = changes.get(dispatch.wait.end_ns, 0) - 1
    value = 0
    points: list[tuple[int, float]] = []
    for at_ns, change in sorted(changes.items()):
        value += change
        points.append((at_ns, value))
    return CounterTrack(IN_FLIGHT, points)


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
