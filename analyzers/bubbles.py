"""Where the time between two published steps went, phase by phase (docs/findings.md, Bubbles and the critical path).

The oldest step that is not yet published owns the clock: step N is charged with the time from the publication of step
N-1 to its own. Every instant is charged once, to one step and one phase of it, so that the phases and the remainder add
up to the wall time exactly. What a step did before that, behind the step ahead of it, is hidden: shown, not charged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

import msgspec

from analyzers.callables import SUBMIT, is_prefill
from analyzers.lifecycle import Lifecycle, Step
from analyzers.pipeline import PREPARE_SPAN, RECLAIM_SPAN, PipelineResult, by_step, prefill_intervals
from analyzers.rounds import Interval, RankRun, Round, RoundMatching
from analyzers.spans import ABSENT, Clock, Source, SpanTable
from analyzers.statistics import Summary, summarize

StepPhase = Literal[
    "schedule", "prepare", "submit", "queue", "bind", "runner", "validate", "wait", "reclaim", "remainder"
]
PublishedBy = Literal["process_step_output", "reclaim_decode", "worker_wait", "last rank"]
LeftOutReason = Literal["no rank records", "prefill between", "published out of order"]

PHASE_ORDER: tuple[StepPhase, ...] = get_args(StepPhase)

SCHEDULE_SPAN = "scheduler.schedule"
_PROCESS_SPAN = "scheduler.process_step_output"


class PhaseTime(msgspec.Struct, frozen=True):
    """One phase over the steps, in ns."""

    phase: StepPhase
    charged: Summary
    """Inside the step's own time, [publication of the step before, its publication)."""
    hidden: Summary
    """Before it, behind the step ahead."""


class StepTime(msgspec.Struct, frozen=True):
    """Where the time of the steps of one decode callable went, in ns; means of the charged phases add up to `wall`'s."""

    callable: str
    scope: Literal["all", "steady"]
    published_by: PublishedBy
    """What ends a step: the last of these that the recording has for every step."""
    ranks_known: bool
    """Whether the ranks' records say what lies between submit and wait; else all of it is `wait`."""
    wall: Summary
    phases: list[PhaseTime]
    left_out: dict[LeftOutReason, int]


@dataclass(frozen=True, slots=True)
class StepBreakdown:
    """One step: its own time, and each phase's part of it. `phases` sums to `window.duration_ns` exactly."""

    step: Step | None
    """None where no serving trace tells of it."""
    last_run: RankRun | None
    """The run that the completion waited for: the one that ended last."""
    window: Interval
    phases: Mapping[StepPhase, int]
    hidden: Mapping[StepPhase, int]


@dataclass(frozen=True)
class StepTimeResult:
    """The figures, and the steps they are made of."""

    figures: StepTime
    steps: list[StepBreakdown]


Segment = tuple[StepPhase, int, int]
"""A phase and its [start, end) in ns."""


def measure_step_time(
    pipeline: PipelineResult, spans: SpanTable, lifecycle: Lifecycle, matching: RoundMatching
) -> StepTimeResult | None:
    """Split the time of every step of a decode callable that follows another one directly; None when there is none.

    The figures cover the steady steps where there are any, else all.
    """
    callable_name = pipeline.figures.callable
    rounds = [item for item in matching.rounds if item.callable == callable_name]
    serving = _Serving(callable_name, spans, lifecycle)
    if serving.steps:
        is_steady = {id(step) for step in pipeline.steady_steps}
        breakdowns, left_out = serving.split(rounds)
        chosen = [item for item in breakdowns if id(item.step) in is_steady]
        published_by, ranks_known = serving.published_by, serving.on_host_clock and bool(rounds)
    else:
        breakdowns, left_out = _split_rounds(callable_name, matching)
        chosen, published_by, ranks_known = [], "last rank", True
    if not breakdowns:
        return None
    scope: Literal["all", "steady"] = "steady" if chosen else "all"
    chosen = chosen or breakdowns
    figures = StepTime(
        callable=callable_name,
        scope=scope,
        published_by=published_by,
        ranks_known=ranks_known,
        wall=summarize([item.window.duration_ns for item in chosen]),
        phases=_phase_times(chosen),
        left_out=dict(left_out),
    )
    return StepTimeResult(figures, chosen)


def split_window(
    window: Interval, segments: Sequence[Segment]
) -> tuple[dict[StepPhase, int], dict[StepPhase, int]]:
    """Charge `window` to the phases of one step, and say how much of each lies before it.

    `segments` follow each other in time. Where they overlap all the same (two clocks read a little apart, a wait that
    returns before the last rank's record ends), the earlier phase keeps the time. What no segment covers is remainder.
    """
    charged: dict[StepPhase, int] = {}
    hidden: dict[StepPhase, int] = {}
    reached = min((begins for _, begins, _ in segments), default=window.start_ns)
    for phase, begins, ends in segments:
        start_ns = max(begins, reached)
        reached = max(start_ns, min(ends, window.end_ns))
        before = max(0, min(reached, window.start_ns) - start_ns)
        inside = max(0, min(reached, window.end_ns) - max(start_ns, window.start_ns))
        hidden[phase] = hidden.get(phase, 0) + before
        charged[phase] = charged.get(phase, 0) + inside
    charged["remainder"] = window.duration_ns - sum(charged.values())
    return charged, hidden


class _Serving:
    """The steps of one callable as the serving trace shows them."""

    def __init__(self, callable_name: str, spans: SpanTable, lifecycle: Lifecycle) -> None:
        self.steps = lifecycle.of(callable_name)
        self.on_host_clock = _on_host_clock(callable_name, spans)
        self._neighbours = lifecycle.neighbours(callable_name)
        self._prefills = prefill_intervals(spans, lifecycle)
        self._schedule = intervals(spans, SCHEDULE_SPAN)
        self._prepare = intervals(spans, PREPARE_SPAN)
        processed = {key: item.end_ns for key, item in intervals(spans, _PROCESS_SPAN).items()}
        reclaimed = {key: item.end_ns for key, item in intervals(spans, RECLAIM_SPAN).items()}
        self.published_by: PublishedBy = "worker_wait"
        self._published: dict[int, int] = {id(step): step.interval.end_ns for step in self.steps}
        sources: list[tuple[PublishedBy, dict[tuple[Hashable, int], int]]] = [
            ("process_step_output", processed),
            ("reclaim_decode", reclaimed),
        ]
        for source, ends in sources:
            if self.steps and all(step_key(step) in ends for step in self.steps):
                self.published_by = source
                self._published = {id(step): ends[step_key(step)] for step in self.steps}
                break

    def split(self, rounds: Sequence[Round]) -> tuple[list[StepBreakdown], Counter[LeftOutReason]]:
        """Every step that follows another one directly, and how many could not be split."""
        left_out: Counter[LeftOutReason] = Counter()
        by_dispatch = {run.dispatch_id: item for item in rounds for run in item.runs.values()}
        by_dispatch.pop(ABSENT, None)
        joined = self.on_host_clock and bool(rounds)
        breakdowns = []
        for previous, step in self._neighbours:
            window = Interval(self._published[id(previous)], self._published[id(step)])
            item = by_dispatch.get(step.dispatch_id) if joined else None
            if window.duration_ns < 0:
                left_out["published out of order"] += 1
            elif any(window.overlaps(prefill) for prefill in self._prefills):
                left_out["prefill between"] += 1
            elif joined and (item is None or not item.complete):
                left_out["no rank records"] += 1
            else:
                last_run = _last_to_complete(item) if item is not None else None
                charged, before = split_window(window, self._segments(step, last_run))
                hidden = {phase: time_ns for phase, time_ns in before.items() if time_ns}
                breakdowns.append(StepBreakdown(step, last_run, window, charged, hidden))
        return breakdowns, left_out

    def _segments(self, step: Step, run: RankRun | None) -> list[Segment]:
        segments: list[Segment] = []
        scheduled, prepared = self._schedule.get(step_key(step)), self._prepare.get(step_key(step))
        if scheduled is not None:
            segments.append(("schedule", scheduled.start_ns, scheduled.end_ns))
        if prepared is not None:
            segments.append(("prepare", prepared.start_ns, prepared.end_ns))
        submit, returned_ns = step.submit.interval, step.interval.end_ns
        segments.append(("submit", submit.start_ns, submit.end_ns))
        completed_ns = submit.end_ns
        if run is not None:
            segments.append(("queue", submit.end_ns, run.root.start_ns))
            segments += _run_segments(run)
            completed_ns = _completed_ns(run)
        segments.append(("wait", completed_ns, returned_ns))
        segments.append(("reclaim", returned_ns, self._published[id(step)]))
        return segments


def _split_rounds(
    callable_name: str, matching: RoundMatching
) -> tuple[list[StepBreakdown], Counter[LeftOutReason]]:
    """Rounds alone: a step is published when its last rank completes, and what lies before its run is remainder."""
    left_out: Counter[LeftOutReason] = Counter()
    breakdowns = []
    for before, item in pairwise(matching.rounds):
        if item.callable != callable_name or before.callable != callable_name:
            continue
        if not (before.complete and item.complete):
            left_out["no rank records"] += 1
            continue
        run = _last_to_complete(item)
        window = Interval(_completed_ns(_last_to_complete(before)), _completed_ns(run))
        if window.duration_ns < 0:
            left_out["published out of order"] += 1
            continue
        charged, hidden = split_window(window, _run_segments(run))
        breakdowns.append(StepBreakdown(None, run, window, charged, hidden))
    return breakdowns, left_out


def _run_segments(run: RankRun) -> list[Segment]:
    """The phases of a run; bind lasts until the runner starts, the wait for the other ranks included."""
    runner = run.phases.get("runner_run", run.root)
    return [
        ("bind", run.root.start_ns, runner.start_ns),
        ("runner", runner.start_ns, runner.end_ns),
        ("validate", runner.end_ns, _completed_ns(run)),
    ]


def _completed_ns(run: RankRun) -> int:
    """When a rank had done its part: after it, it only gives back its claim."""
    validated = run.phases.get("validate")
    return validated.end_ns if validated is not None else run.root.end_ns


def _last_to_complete(item: Round) -> RankRun:
    return max(item.runs.values(), key=lambda run: (_completed_ns(run), -run.rank))


def _phase_times(breakdowns: Sequence[StepBreakdown]) -> list[PhaseTime]:
    """Every phase that any step has; one that a step lacks took no time of it, which keeps the means additive."""
    present = {phase for item in breakdowns for phase in item.phases}
    return [
        PhaseTime(
            phase=phase,
            charged=summarize([item.phases.get(phase, 0) for item in breakdowns]),
            hidden=summarize([item.hidden.get(phase, 0) for item in breakdowns]),
        )
        for phase in PHASE_ORDER
        if phase in present
    ]


def _on_host_clock(callable_name: str, spans: SpanTable) -> bool:
    """Whether the serving trace shares the ranks' clock."""
    rows = (spans.source == Source.SERVING) & spans.named(callable_name + SUBMIT)
    return bool((spans.clock[rows] == Clock.HOST).all())


def intervals(spans: SpanTable, suffix: str) -> dict[tuple[Hashable, int], Interval]:
    """(process, step id) -> the outermost span of the step whose name ends in `suffix`."""
    starts, ends = spans.start_ns, spans.end_ns
    return {key: Interval(int(starts[row]), int(ends[row])) for key, row in by_step(spans, suffix).items()}


def step_key(step: Step) -> tuple[Hashable, int]:
    """The step as `intervals` names it."""
    return step.submit.process, step.step_id


def decode_callables(lifecycle: Lifecycle, matching: RoundMatching) -> list[str]:
    """Every callable with steps or rounds that is no prefill, those of the serving trace first."""
    names = [step.callable for step in lifecycle.steps] + [item.callable for item in matching.rounds]
    return [name for name in dict.fromkeys(names) if not is_prefill(name)]
