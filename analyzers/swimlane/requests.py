"""The requests' side of a timeline: a slice a request, its parts inside, and flows to the steps that carried it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analyzers.steps.request_lives import RequestLife
from analyzers.swimlane.dispatches import DrawnDispatch
from analyzers.swimlane.model import FlowPhase, FlowPoint, Group, Slice, Track
from analyzers.swimlane.packing import nest_each, pack

_CATEGORY = "request"
_NAMES = {
    "before": "to the engine",
    "queueing": "queueing",
    "prefill": "prefill",
    "decode": "decode",
    "delivery": "delivery",
}


def request_group(lives: Sequence[RequestLife], dispatches: Iterable[DrawnDispatch]) -> Group | None:
    """The tracks of the joined requests; None without any.

    A flow goes from the decode part of a request to the wait for the first step that carried it, and one to that for the
    last: what was submitted ahead of the request's first token is waited for behind it.
    """
    if not lives:
        return None
    wait_of: dict[object, Slice] = {}
    flow = 0
    for dispatch in dispatches:
        wait_of.setdefault(dispatch.step.named_step_id, dispatch.wait)
        flow = max([flow, *(point.flow for point in dispatch.submit.flows)])
    units = []
    for life in lives:
        unit = _slices(life)
        units.append(unit)
        decode = next((item for item in unit if item.name == _NAMES["decode"]), None)
        for step in dict.fromkeys((life.first_step, life.last_step)):
            wait = wait_of.get(step) if step is not None else None
            if decode is not None and wait is not None:
                flow += 1
                decode.flows.append(FlowPoint(flow, FlowPhase.BEGIN))
                wait.flows.append(FlowPoint(flow, FlowPhase.END))
    tracks = [
        Track(f"requests {number}" if number > 1 else "requests", lane)
        for number, packed in enumerate(pack(units), 1)
        for lane in nest_each(packed)
    ]
    return Group(name="requests", tracks=tracks)


def _slices(life: RequestLife) -> list[Slice]:
    arguments = {
        "request_id": life.request_id,
        "rank": life.rank,
        "output_tokens": life.client_tokens,
        "steps": life.steps,
        "first_step": life.first_step,
        "last_step": life.last_step,
    }
    known = {key: value for key, value in arguments.items() if value is not None}
    found = [Slice(life.request_id, _CATEGORY, life.send_ns, life.last_arrival_ns, known)]
    at = life.send_ns
    for order, (part, duration) in enumerate(life.parts.items(), 1):
        if duration is None:
            break
        if duration > 0:
            end = min(at + duration, life.last_arrival_ns)
            found.append(
                Slice(_NAMES[part], _CATEGORY, at, end, {"request_id": life.request_id}, order=order)
            )
        at += duration
    return found
