"""How far steps overlap: in flight together, prepared and bound while the device runs (metrics.md, Ranks; Steps)."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import msgspec
import numpy as np

from analyzers.callables import RUN, callable_of, is_prefill
from analyzers.endpoints import SpanReference
from analyzers.lifecycle import Fault, Lifecycle, Step
from analyzers.readers.strace import family
from analyzers.rounds import Interval, RankRun, RoundMatching
from analyzers.rounds import Round as RankRound
from analyzers.spans import ABSENT, Source, SpanTable
from analyzers.statistics import Summary, summarize

NEARLY_ALL = 0.9
"""The share of steps that counts as "nearly all"."""

PREPARE_SPAN = ".prepare_decode"
RECLAIM_SPAN = "WorkerProcess.reclaim_decode"
_NODE_SUBMIT = ".submit"
_NODE_COMPLETE = ".complete"

PipelineState = Literal["in flight", "partly overlapped", "collapsed", "depth one", "unavailable"]


class LeftOut(msgspec.Struct, frozen=True):
    """Steps that are not steady state, by the first reason that applies."""

    reason: Literal["first decode step", "batch not full", "prefill in flight"]
    count: int


class SteadyState(msgspec.Struct, frozen=True):
    """Which steps are steady state (metrics.md, Steps)."""

    steps: int
    left_out: list[LeftOut]
    batch_known: bool
    """Whether request records told when the full batch was active; else that rule was not applied."""


class Overlap(msgspec.Struct, frozen=True):
    """Consecutive steps of which the later one's phase intersects the earlier one's runner_run."""

    pairs: int
    overlapping: int

    @property
    def share(self) -> float | None:
        """overlapping / pairs; None without pairs."""
        return self.overlapping / self.pairs if self.pairs else None


class Pipeline(msgspec.Struct, frozen=True):
    """The pipeline of one decode callable."""

    callable: str
    state: PipelineState
    declared_depth: int | None
    most_in_flight: int
    in_flight: Overlap
    """Consecutive steps with submit(N+1).start < wait(N).end."""
    returned: Overlap
    """The same with submit(N+1).end: a submit that blocks until the step before it completes puts nothing in flight."""
    scheduled: Overlap
    """The same by the runtime's scheduler: node.submit(N+1) starts before the last node.complete(N) ends."""
    prepare: Overlap
    """prepare(N+1) intersects runner_run(N) of any rank."""
    bind: Overlap
    """bind(N+1), ahead of its root or in it, intersects runner_run(N) on the same rank, for any rank."""
    cadence: Summary
    """submit(N+1).start - submit(N).start, ns."""
    steady: SteadyState

    @property
    def has_figures(self) -> bool:
        """Whether any two consecutive steps could be compared."""
        return bool(self.in_flight.pairs or self.scheduled.pairs or self.bind.pairs)

    @property
    def blocks_in_submit(self) -> bool:
        """Whether submits begin before the step ahead completed and return only after it."""
        return 2 * self.returned.overlapping < self.in_flight.overlapping

    @property
    def statement(self) -> str:
        """What the pipeline did, in words."""
        overlapped = "submitted before the previous one completed"
        if self.blocks_in_submit:
            overlapped = "back from their submit before the previous one completed"
        told_by = self.in_flight if self.in_flight.pairs else self.scheduled
        if self.blocks_in_submit:
            told_by = self.returned
        pairs = f"{told_by.overlapping} of {told_by.pairs} steps"
        if told_by is self.scheduled:
            pairs = f"by the scheduler's records {pairs}"
        match self.state:
            case "in flight":
                count = {2: "two", 3: "three", 4: "four"}.get(self.most_in_flight, str(self.most_in_flight))
                return f"{count} in flight: {pairs} {overlapped}"
            case "partly overlapped":
                return f"partly overlapped: {pairs} {overlapped}"
            case "collapsed":
                return (
                    f"pipeline collapsed to depth one: depth {self.declared_depth} declared, "
                    f"but only {pairs} {overlapped}"
                )
            case "depth one":
                declared = "depth one declared" if self.declared_depth == 1 else "no depth declared"
                return f"one in flight ({declared}): {pairs} {overlapped}"
            case "unavailable":
                return (
                    "neither submit and wait spans nor scheduler records: bind overlaps runner_run in "
                    f"{self.bind.overlapping} of {self.bind.pairs} steps"
                )


@dataclass(frozen=True)
class PipelineResult:
    """The figures, and the steps they call steady."""

    figures: Pipeline
    steady_steps: list[Step]


def measure_pipeline(
    callable_name: str,
    spans: SpanTable,
    lifecycle: Lifecycle,
    matching: RoundMatching,
    *,
    full_batch: Interval | None,
) -> PipelineResult:
    """Overlap figures of one decode callable.

    `full_batch` is the time in which every request of the batch was decoding; None when no records tell.
    """
    steps = lifecycle.of(callable_name)
    rounds = [item for item in matching.rounds if item.callable == callable_name]
    neighbours = lifecycle.neighbours(callable_name)
    in_flight = Overlap(
        pairs=len(neighbours),
        overlapping=sum(following.interval.start_ns < step.interval.end_ns for step, following in neighbours),
    )
    returned = Overlap(
        pairs=len(neighbours),
        overlapping=sum(
            following.submit.interval.end_ns < step.interval.end_ns for step, following in neighbours
        ),
    )
    flights = _scheduler_flights(spans, matching, callable_name)
    scheduled = Overlap(
        pairs=max(0, len(flights) - 1),
        overlapping=sum(after.start_ns < flight.end_ns for flight, after in pairwise(flights)),
    )
    steady_steps, steady = _steady_state(steps, prefill_intervals(spans, lifecycle), full_batch)
    figures = Pipeline(
        callable=callable_name,
        state=_state(returned if returned.pairs else scheduled, lifecycle.depth),
        declared_depth=lifecycle.depth,
        most_in_flight=_most_in_flight(steps) if steps else _most_at_once(flights),
        in_flight=in_flight,
        returned=returned,
        scheduled=scheduled,
        prepare=_prepare_overlap(neighbours, spans, rounds),
        bind=_bind_overlap(matching, callable_name),
        cadence=summarize(
            [following.interval.start_ns - step.interval.start_ns for step, following in neighbours]
        ),
        steady=steady,
    )
    return PipelineResult(figures, steady_steps)


def check_preparation(spans: SpanTable, depth: int) -> list[Fault]:
    """Steps prepared before the step `depth` ahead of them, which holds their slot, was reclaimed."""
    prepared = by_step(spans, PREPARE_SPAN)
    reclaimed = by_step(spans, RECLAIM_SPAN)
    faults = []
    for (process, step_id), row in prepared.items():
        holder = reclaimed.get((process, step_id - depth))
        if holder is None:
            continue
        early = int(spans.end_ns[holder] - spans.start_ns[row])
        if early > 0:
            detail = f"step {step_id} is prepared {early} ns before step {step_id - depth} is reclaimed"
            references = [span_reference(spans, row), span_reference(spans, holder)]
            faults.append(Fault("prepared_before_reclaim", "", detail, references))
    return faults


def _state(in_flight: Overlap, declared_depth: int | None) -> PipelineState:
    share = in_flight.share
    if share is None:
        return "unavailable"
    if share >= NEARLY_ALL:
        return "in flight"
    if share > 1 - NEARLY_ALL:
        return "partly overlapped"
    return "collapsed" if declared_depth is not None and declared_depth > 1 else "depth one"


def _most_in_flight(steps: Sequence[Step]) -> int:
    """The most dispatches in flight at any submit's return."""
    most = 0
    flying: list[Step] = []
    for step in steps:
        returned = step.submit.interval.end_ns
        flying = [other for other in flying if other.interval.end_ns > returned]
        flying.append(step)
        most = max(most, len(flying))
    return most


def _scheduler_flights(spans: SpanTable, matching: RoundMatching, callable_name: str) -> list[Interval]:
    """From the first node.submit to the last node.complete of each run of the callable, by start.

    Runs whose roots carry no run_id are of the callable only if there is no other.
    """
    of_callable = {
        run.run_id for item in matching.rounds if item.callable == callable_name for run in item.runs.values()
    } - {ABSENT}
    if not of_callable and any(item.callable != callable_name for item in matching.rounds):
        return []
    edges: dict[int, tuple[list[int], list[int]]] = {}
    rows = np.flatnonzero(
        (spans.source == Source.STRACE) & (spans.run_id != ABSENT) & spans.where_name(_is_flight_edge)
    )
    for row in rows.tolist():
        run_id = int(spans.run_id[row])
        if not of_callable or run_id in of_callable:
            submits, completions = edges.setdefault(run_id, ([], []))
            if spans.name_of(row).endswith(_NODE_SUBMIT):
                submits.append(int(spans.start_ns[row]))
            else:
                completions.append(int(spans.end_ns[row]))
    return sorted(
        Interval(min(submits), max(completions))
        for submits, completions in edges.values()
        if submits and completions
    )


def _is_flight_edge(name: str) -> bool:
    return family(name) == "node" and name.endswith((_NODE_SUBMIT, _NODE_COMPLETE))


def _most_at_once(flights: Sequence[Interval]) -> int:
    """The most runs between submission and completion at any submission."""
    most = 0
    flying: list[Interval] = []
    for flight in flights:
        flying = [other for other in flying if other.end_ns > flight.start_ns]
        flying.append(flight)
        most = max(most, len(flying))
    return most


def prefill_intervals(spans: SpanTable, lifecycle: Lifecycle) -> list[Interval]:
    """When a prefill was in flight: blocking runs and submitted ones."""
    rows = np.flatnonzero((spans.source == Source.SERVING) & spans.where_name(_is_prefill_run)).tolist()
    blocking = [
        Interval(int(spans.start_ns[row]), int(spans.start_ns[row] + spans.duration_ns[row])) for row in rows
    ]
    return blocking + [step.interval for step in lifecycle.steps if is_prefill(step.callable)]


def _is_prefill_run(name: str) -> bool:
    found = callable_of(name)
    return found is not None and name.endswith(RUN) and is_prefill(found)


def _steady_state(
    steps: Sequence[Step], prefills: Collection[Interval], full_batch: Interval | None
) -> tuple[list[Step], SteadyState]:
    steady = []
    first = partial = during_prefill = 0
    processes: set[Hashable] = set()
    for step in steps:
        if step.submit.process not in processes:
            processes.add(step.submit.process)
            first += 1
        elif full_batch is not None and not (
            full_batch.start_ns <= step.interval.start_ns and step.interval.end_ns <= full_batch.end_ns
        ):
            partial += 1
        elif any(step.interval.overlaps(prefill) for prefill in prefills):
            during_prefill += 1
        else:
            steady.append(step)
    left_out = [
        LeftOut("first decode step", first),
        LeftOut("batch not full", partial),
        LeftOut("prefill in flight", during_prefill),
    ]
    return steady, SteadyState(
        steps=len(steady),
        left_out=[entry for entry in left_out if entry.count],
        batch_known=full_batch is not None,
    )


def by_step(spans: SpanTable, suffix: str) -> dict[tuple[Hashable, int], int]:
    """(process, step_id) -> row of the outermost span with that name ending."""
    rows = np.flatnonzero(spans.where_name(lambda name: name.endswith(suffix)) & (spans.step_id != ABSENT))
    rows = rows[np.argsort(-spans.duration_ns[rows], kind="stable")]
    processes = [lane.process for lane in spans.lanes]
    columns = (spans.lane[rows].tolist(), spans.step_id[rows].tolist(), rows.tolist())
    found: dict[tuple[Hashable, int], int] = {}
    for lane, step_id, row in zip(*columns, strict=True):
        found.setdefault((processes[lane], step_id), row)
    return found


def _prepare_overlap(
    neighbours: Sequence[tuple[Step, Step]], spans: SpanTable, rounds: Sequence[RankRound]
) -> Overlap:
    prepared = by_step(spans, PREPARE_SPAN)
    runners = {
        run.dispatch_id: [
            other.phases["runner_run"] for other in item.runs.values() if "runner_run" in other.phases
        ]
        for item in rounds
        for run in item.runs.values()
        if run.dispatch_id != ABSENT
    }
    pairs = overlapping = 0
    for step, following in neighbours:
        row = prepared.get((following.submit.process, following.step_id))
        running = runners.get(step.dispatch_id)
        if row is None or not running:
            continue
        pairs += 1
        preparation = Interval(int(spans.start_ns[row]), int(spans.end_ns[row]))
        overlapping += any(preparation.overlaps(interval) for interval in running)
    return Overlap(pairs, overlapping)


def _bind_overlap(matching: RoundMatching, callable_name: str) -> Overlap:
    """Neighbouring rounds of the callable in which bind(N+1) intersects runner_run(N) on any rank."""
    pairs = overlapping = 0
    for item, following in pairwise(matching.rounds):
        if item.callable != callable_name or following.callable != callable_name:
            continue
        both = [(item.runs[rank], following.runs[rank]) for rank in item.runs.keys() & following.runs.keys()]
        bound = [(run, after) for run, after in both if "runner_run" in run.phases and "bind" in after.phases]
        if not bound:
            continue
        pairs += 1
        overlapping += any(_binds_during(run, after) for run, after in bound)
    return Overlap(pairs, overlapping)


def _binds_during(run: RankRun, following: RankRun) -> bool:
    bind = following.bound_ahead or following.phases["bind"]
    return bind.overlaps(run.phases["runner_run"])


def span_reference(spans: SpanTable, row: int) -> SpanReference:
    """One row as a finding names it."""
    lane = spans.lane_of(row)
    step, dispatch = int(spans.step_id[row]), int(spans.dispatch_id[row])
    return SpanReference(
        name=spans.name_of(row),
        start_ns=int(spans.start_ns[row]),
        end_ns=int(spans.end_ns[row]),
        pid=str(lane.pid),
        tid=str(lane.tid),
        dispatch_id=dispatch if dispatch != ABSENT else None,
        step_id=step if step != ABSENT else None,
    )
