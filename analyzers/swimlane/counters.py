"""Counters beside the lanes: how far apart the ranks are in each round, and how many drafts each step has accepted."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence

from analyzers.measurement import Measured
from analyzers.ranks.runner_times import Edge, RunnerTimes
from analyzers.readers.request_timing import RequestTiming
from analyzers.swimlane.dispatches import DrawnDispatch
from analyzers.swimlane.model import CounterTrack
from analyzers.table.callables import is_prefill

RUNNER_START_SKEW = "runner-start skew (ns)"
RUNNER_END_SKEW = "runner-end skew (ns)"
ACCEPTANCE_LENGTH = "acceptance length"

_SKEWS: dict[Edge, str] = {"start": RUNNER_START_SKEW, "end": RUNNER_END_SKEW}


def skews(measured: Measured) -> list[CounterTrack]:
    """Runner-start and runner-end skew of every decode round that the report compares, when its last rank is there.

    What the report withholds, because the ranks' clocks do not support it, is not drawn either.
    """
    tracks = []
    for edge, name in _SKEWS.items():
        points: list[tuple[int, float]] = []
        for figures in measured.skew:
            if figures.at(edge).n and figures.scope == "all" and not is_prefill(figures.callable):
                times = RunnerTimes.of(measured.matching.of(figures.callable))
                points += zip(times.last(edge).tolist(), times.spread(edge).tolist(), strict=True)
        tracks.append(CounterTrack(name, sorted(points)))
    return [track for track in tracks if track.points]


def acceptance(requests: Sequence[RequestTiming], dispatches: Iterable[DrawnDispatch]) -> list[CounterTrack]:
    """Mean tokens that a step gave a request that it carried, bonus token included, from the step's completion on.

    A request's output belongs to the last step that had completed when it arrived. Its first output comes from a prefill
    and its last may be cut at the request's end: neither counts. [] where nothing was speculated.
    """
    completed = sorted(dispatch.step.wait.interval.end_ns for dispatch in dispatches)
    tokens_of: dict[int, list[int]] = {}
    for timing in requests:
        if timing.is_whole and timing.proposed:
            for arrived_ns, tokens in (timing.chunks or ())[1:-1]:
                step = bisect.bisect_right(completed, arrived_ns) - 1
                if step >= 0:
                    tokens_of.setdefault(completed[step], []).append(tokens)
    points = [(at_ns, sum(tokens) / len(tokens)) for at_ns, tokens in sorted(tokens_of.items())]
    return [CounterTrack(ACCEPTANCE_LENGTH, points)] if points else []
