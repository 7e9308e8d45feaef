"""One measurement of a recording: its steps paired, its rounds matched, once, for everybody.

Report, timeline, findings, comparison and gate are made of the same `Measured`: nothing else pairs steps or matches rounds.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from analyzers.clients.goodput import Slos
from analyzers.clients.requests import full_batch_window
from analyzers.ranks.clock_limits import calibrate_skew
from analyzers.ranks.failures import RankFailure, find_failures
from analyzers.ranks.rounds import LostRun, RoundMatching, lost_runs, match_rounds, rank_runs, renamed
from analyzers.ranks.scheduler import Schedule, read_schedule
from analyzers.ranks.skew import LATE_NS, RankSkew, measure_skew
from analyzers.recording.filters import EVERYTHING, Filters, apply_filters
from analyzers.recording.recording import Recording
from analyzers.steps.bubbles import decode_callables
from analyzers.steps.joins import Join, join_by_time, with_dispatch_ids, with_scheduled_ids
from analyzers.steps.lifecycle import Lifecycle, check_lifecycles
from analyzers.steps.pipeline import PipelineResult, measure_pipeline
from analyzers.steps.request_lives import JoinedRequests, join_requests
from analyzers.table.callables import DispatchNames
from analyzers.table.spans import ABSENT


@dataclass(frozen=True)
class AnalysisOptions:
    """What a user can choose about the figures."""

    late_ns: int = LATE_NS
    """How far after its round's median a rank is late."""
    filters: Filters = EVERYTHING
    """What of the recording is measured."""
    include_warmup: bool = False
    """Count warm-up requests among the measured ones."""
    slos: Slos | None = None
    """Latencies that requests are held against."""


@dataclass(frozen=True)
class Measured:
    """A recording of which the steps are paired and the rounds matched."""

    recording: Recording
    """The part that was measured: what the filters keep; with warm-up requests among the measured ones if asked for."""
    options: AnalysisOptions
    lifecycle: Lifecycle
    """Every submit and wait, the pairs among them and what is wrong with the others."""
    names: DispatchNames
    """What the serving trace calls the callable of each dispatch."""
    matching: RoundMatching
    """The runs of each dispatch on every rank."""
    joins: list[Join]
    """What joined rounds to dispatches by time, and what could not be joined."""
    lost_runs: list[LostRun]
    """Runs that a rank did and of which no record is left."""
    schedule: Schedule
    """What the runtime's scheduler says of its runs."""
    failures: list[RankFailure]
    """Ranks that died, hung or failed, by the scheduler's records and what the log says of it."""
    pipelines: list[PipelineResult]
    """Overlap and steady steps of every decode callable, the one with the most steps first."""
    steady_dispatches: frozenset[int]
    """The dispatch ids of their steady steps."""
    joined_requests: JoinedRequests
    """Measured requests, joined to what the engine recorded of them."""
    skew: list[RankSkew]
    """How far apart the ranks are, as far as their clocks can tell: decode first, steady rounds before all of them."""


def measure(recording: Recording, options: AnalysisOptions | None = None) -> Measured:
    """Pair the steps of `recording` and match its rounds; of the part that `options` keep.

    Raises:
        FilterError: the recording has nothing of what a filter asks for.
    """
    options = options or AnalysisOptions()
    if options.include_warmup:
        requests = [dataclasses.replace(timing, phase="measured") for timing in recording.requests]
        recording = dataclasses.replace(recording, requests=requests)
    # The batch is that of the whole recording: a part of the requests would seem to be full for longer.
    window = full_batch_window([timing for timing in recording.requests if timing.phase == "measured"])
    recording = apply_filters(recording, options.filters)
    spans, manifest = recording.spans, recording.manifest
    depth = manifest.depth if manifest is not None else None
    schedule = read_schedule(spans)
    spans = with_dispatch_ids(with_scheduled_ids(spans, schedule), schedule)
    recording = dataclasses.replace(recording, spans=spans)
    lifecycle = check_lifecycles(spans, recording.invalid, depth=depth)
    names = DispatchNames(spans)
    assigned = recording.ranks
    silent = {(assigned.lives[process], assigned.ranks[process]) for process in assigned.silent}
    matching = match_rounds(*rank_runs(spans, names), silent=silent)
    timed = join_by_time(spans, lifecycle, matching, names)
    lifecycle, matching = timed.lifecycle, renamed(matching, timed.callables)
    pipelines = [
        measure_pipeline(name, schedule, lifecycle, matching, full_batch=window)
        for name in decode_callables(lifecycle, matching)
    ]
    steady = frozenset(
        key for result in pipelines for key in result.steady_steps.joining_dispatch_id.tolist()
    ) - {ABSENT}
    skew = measure_skew(matching, late_ns=options.late_ns, steady_dispatches=steady or None)
    return Measured(
        recording=recording,
        options=options,
        lifecycle=lifecycle,
        names=names,
        matching=matching,
        joins=timed.joins,
        lost_runs=lost_runs(matching, _completed(recording, lifecycle)),
        schedule=schedule,
        failures=find_failures(
            schedule,
            recording.ranks,
            recording.exits,
            timed_out_ns=recording.timed_out_ns,
            lost=sum(report.lost for report in recording.reports if report.format == "strace_log"),
        ),
        pipelines=pipelines,
        steady_dispatches=steady,
        joined_requests=join_requests(recording.requests, spans, manifest),
        skew=[calibrate_skew(figures, recording.clocks) for figures in skew],
    )


def _completed(recording: Recording, lifecycle: Lifecycle) -> set[int]:
    """Dispatches that every rank is known to have done; in a run that failed, a wait may have ended in the failure."""
    if recording.manifest is not None and recording.manifest.status != "complete":
        return set()
    return set(lifecycle.steps.joining_dispatch_id.tolist()) - {ABSENT}
