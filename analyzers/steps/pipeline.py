"""How far steps overlap: in flight together, prepared and bound while the device runs (docs/metrics.md, Pipeline)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import msgspec
import numpy as np

from analyzers.ranks.rounds import RankRun, RoundMatching
from analyzers.ranks.rounds import Round as RankRound
from analyzers.ranks.scheduler import Flight, Schedule
from analyzers.statistics.summary import Summary, summarize
from analyzers.steps.lifecycle import Lifecycle
from analyzers.steps.step_spans import PREPARE_SPAN
from analyzers.steps.steps import Steps
from analyzers.table.intervals import Interval, IntervalSet, most_open
from analyzers.table.spans import ABSENT, Mask

NEARLY_ALL = 0.9
"""The share of steps that counts as "nearly all"."""

PipelineState = Literal["in flight", "partly overlapped", "collapsed", "depth one", "unavailable"]


class LeftOut(msgspec.Struct, frozen=True):
    """Steps that are not steady state, by the first reason that applies."""

    reason: Literal["first decode step", "batch not full", "prefill in flight"]
    count: int


class SteadyState(msgspec.Struct, frozen=True):
    """Which steps are steady state (docs/metrics.md, Steps and lifecycles)."""

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
    scheduled_returned: Overlap
    """The same with the end of node.submit(N+1), which waits for a free frame."""
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
        if self.scheduled.pairs:
            return 2 * self.scheduled_returned.overlapping < self.scheduled.overlapping
        return 2 * self.returned.overlapping < self.in_flight.overlapping

    @property
    def statement(self) -> str:
        """What the pipeline did, in words."""
        overlapped = "submitted before the previous one completed"
        if self.blocks_in_submit:
            overlapped = "back from their submit before the previous one completed"
        told_by = self.scheduled if self.scheduled.pairs else self.in_flight
        if self.blocks_in_submit:
            told_by = self.scheduled_returned if self.scheduled.pairs else self.returned
        pairs = f"{told_by.overlapping} of {told_by.pairs} steps"
        if self.scheduled.pairs:
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
    steady_steps: Steps


def measure_pipeline(
    callable_name: str,
    schedule: Schedule,
    lifecycle: Lifecycle,
    matching: RoundMatching,
    *,
    full_batch: Interval | None,
) -> PipelineResult:
    """Overlap figures of one decode callable.

    `full_batch` is the time in which every request of the batch was decoding; None when no records tell.
    """
    steps = lifecycle.of(callable_name)
    rounds = matching.of(callable_name)
    before, following = lifecycle.neighbours(callable_name)
    in_flight = _overlap(following.start_ns < before.end_ns)
    returned = _overlap(following.submit_end_ns < before.end_ns)
    flights = _flights(schedule, matching, callable_name)
    neighbours = [both for own in flights for both in pairwise(own)]
    scheduled = Overlap(
        pairs=len(neighbours),
        overlapping=sum(after.start_ns < flight.end_ns for flight, after in neighbours),
    )
    scheduled_returned = Overlap(
        pairs=len(neighbours),
        overlapping=sum(after.returned_ns < flight.completing_ns for flight, after in neighbours),
    )
    told_by = returned
    if neighbours:
        is_blocked = 2 * scheduled_returned.overlapping < scheduled.overlapping
        told_by = scheduled_returned if is_blocked else scheduled
    steady_steps, steady = _steady_state(steps, lifecycle.prefills, full_batch)
    figures = Pipeline(
        callable=callable_name,
        state=_state(told_by, lifecycle.depth),
        declared_depth=lifecycle.depth,
        most_in_flight=_most_in_flight(steps, flights),
        in_flight=in_flight,
        returned=returned,
        scheduled=scheduled,
        scheduled_returned=scheduled_returned,
        prepare=_prepare_overlap(before, following, lifecycle, rounds),
        bind=_bind_overlap(matching, callable_name),
        cadence=summarize(following.start_ns - before.start_ns),
        steady=steady,
    )
    return PipelineResult(figures, steady_steps)


def _overlap(overlapping: Mask) -> Overlap:
    return Overlap(pairs=len(overlapping), overlapping=int(np.count_nonzero(overlapping)))


def _state(in_flight: Overlap, declared_depth: int | None) -> PipelineState:
    share = in_flight.share
    if share is None:
        return "unavailable"
    if share >= NEARLY_ALL:
        return "in flight"
    if share > 1 - NEARLY_ALL:
        return "partly overlapped"
    return "collapsed" if declared_depth is not None and declared_depth > 1 else "depth one"


def _most_in_flight(steps: Steps, flights: Sequence[Sequence[Flight]]) -> int:
    """The most dispatches in flight at the return of any submission, by the scheduler's records where there are any."""
    if flights:
        return max(
            most_open([flight.returned_ns for flight in own], [flight.completing_ns for flight in own])
            for own in flights
        )
    return most_open(steps.submit_end_ns.tolist(), steps.end_ns.tolist())


def _flights(schedule: Schedule, matching: RoundMatching, callable_name: str) -> list[list[Flight]]:
    """What each scheduler had in flight of the callable: the runs that its roots lie in, and those of their hash that
    never came to a rank. Where roots carry no run_id, all runs, if there is no other callable.
    """
    callables: dict[int, str] = {}
    started: dict[int, list[tuple[int, str]]] = {}
    for item in matching.rounds:
        for run in item.runs.values():
            started.setdefault(run.run_id, []).append((run.root.start_ns, item.callable))
    without_id = started.pop(ABSENT, None) is not None
    if without_id or not started:
        alone = all(item.callable == callable_name for item in matching.rounds)
        return schedule.flights() if alone else []
    columns = schedule.run_id.tolist(), schedule.submit_ns.tolist(), schedule.complete_ns.tolist()
    for position, (run_id, submitted, completed) in enumerate(zip(*columns, strict=True)):
        for start, name in started.get(run_id, ()):
            if submitted <= start <= completed:
                callables[position] = name
    own = {position for position, name in callables.items() if name == callable_name}
    hashes = {(int(schedule.process[position]), schedule.hid[position]) for position in own}
    for position in range(len(schedule)):
        key = (int(schedule.process[position]), schedule.hid[position])
        if position not in callables and schedule.hid[position] and key in hashes:
            own.add(position)
    return schedule.flights(own)


def _steady_state(
    steps: Steps, prefilled: IntervalSet, full_batch: Interval | None
) -> tuple[Steps, SteadyState]:
    first = np.zeros(len(steps), dtype=np.bool_)
    first[np.unique(steps.process, return_index=True)[1]] = True
    partial = np.zeros(len(steps), dtype=np.bool_)
    if full_batch is not None:
        partial = (steps.start_ns < full_batch.start_ns) | (steps.end_ns > full_batch.end_ns)
    during_prefill = prefilled.overlap(steps.start_ns, steps.end_ns)
    left_out = [
        LeftOut("first decode step", int(first.sum())),
        LeftOut("batch not full", int((~first & partial).sum())),
        LeftOut("prefill in flight", int((~first & ~partial & during_prefill).sum())),
    ]
    steady = steps.select(~(first | partial | during_prefill))
    return steady, SteadyState(
        steps=len(steady),
        left_out=[entry for entry in left_out if entry.count],
        batch_known=full_batch is not None,
    )


def _prepare_overlap(
    before: Steps, following: Steps, lifecycle: Lifecycle, rounds: Sequence[RankRound]
) -> Overlap:
    """Neighbours of which the later step's prepare intersects runner_run of the earlier one, on any rank."""
    runners: dict[int, list[Interval]] = {}
    for item in rounds:
        running = [run.phases["runner_run"] for run in item.runs.values() if "runner_run" in run.phases]
        runners.update({run.dispatch_id: running for run in item.runs.values()})
    runners.pop(ABSENT, None)
    if not runners:
        return Overlap(0, 0)
    prepared = lifecycle.step_spans(PREPARE_SPAN)
    pairs = overlapping = 0
    columns = before.joining_dispatch_id.tolist(), prepared.of(following).tolist()
    for dispatch_id, position in zip(*columns, strict=True):
        running = runners.get(dispatch_id, [])
        if position == ABSENT or not running:
            continue
        pairs += 1
        preparation = Interval(int(prepared.start_ns[position]), int(prepared.end_ns[position]))
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
