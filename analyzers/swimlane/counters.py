"""Counters beside the lanes: how far apart the ranks are in each round, and how many drafts each step has accepted."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence

from analyzers.ranks.rounds import match_rounds, rank_runs
from analyzers.readers.requests import RequestTiming
from analyzers.swimlane.dispatches import Dispatch
from analyzers.swimlane.model import CounterTrack
from analyzers.table.callables import DispatchNames, is_prefill
from analyzers.table.spans import SpanTable

RUNNER_START_SKEW = "runner-start skew (ns)"
RUNNER_END_SKEW = "runner-end skew (ns)"
ACCEPTANCE_LENGTH = "acceptance length"


def skews(spans: SpanTable) -> list[CounterTrack]:
    """Runner-start and runner-end skew of every complete decode round, from the moment its last rank starts or ends."""
    starts, ends = [], []
    for item in match_rounds(*rank_runs(spans, DispatchNames(spans))).rounds:
        runners = [run.phases["runner_run"] for run in item.runs.values() if "runner_run" in run.phases]
        if item.complete and len(runners) == len(item.runs) > 1 and not is_prefill(item.callable):
            first, last = min(runners).start_ns, max(runners).start_ns
            starts.append((last, last - first))
            end_times = sorted(runner.end_ns for runner in runners)
            ends.append((end_times[-1], end_times[-1] - end_times[0]))
    tracks = [CounterTrack(RUNNER_START_SKEW, sorted(starts)), CounterTrack(RUNNER_END_SKEW, sorted(ends))]
    return [track for track in tracks if track.points]


def acceptance(requests: Sequence[RequestTiming], dispatches: Iterable[Dispatch]) -> list[CounterTrack]:
    """Mean tokens that a step gave a request that it carried, bonus token included, from the step's completion on.

    A request's output belongs to the last step that had completed when it arrived. Its first output comes from a prefill
    and its last may be cut at the request's end: neither counts. [] where nothing was speculated.
    """
    completed = sorted(dispatch.wait.end_ns for dispatch in dispatches)
    tokens_of: dict[int, list[int]] = {}
    for timing in requests:
        if timing.error is None and timing.proposed:
            for arrived_ns, tokens in (timing.chunks or ())[1:-1]:
                step = bisect.bisect_right(completed, arrived_ns) - 1
                if step >= 0:
                    tokens_of.setdefault(completed[step], []).append(tokens)
    points = [(at_ns, sum(tokens) / len(tokens)) for at_ns, tokens in sorted(tokens_of.items())]
    return [CounterTrack(ACCEPTANCE_LENGTH, points)] if points else []
