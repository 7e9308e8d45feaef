"""Where the time between two published steps went, phase by phase (docs/findings.md, Bubbles and the critical path).

The oldest step that is not yet published owns the clock: step N is charged with the time from the publication of step
N-1 to its own. Every instant is charged once, to one step and one phase of it, so that the phases and the remainder add
up to the wall time exactly. What a step did before that, behind the step ahead of it, is hidden: shown, not charged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

import msgspec
import numpy as np

from analyzers.ranks.rounds import RankRun, Round, RoundMatching
from analyzers.statistics.summary import Summary, summarize
from analyzers.steps.lifecycle import Lifecycle
from analyzers.steps.pipeline import PipelineResult
from analyzers.steps.step_spans import PREPARE_SPAN, PROCESS_SPAN, RECLAIM_SPAN, SCHEDULE_SPAN, StepSpans
from analyzers.steps.steps import Steps
from analyzers.table.callables import SUBMIT, is_prefill
from analyzers.table.spans import ABSENT, Clock, Int64s, Mask, Source, SpanTable

StepPhase = Literal[
    "schedule", "prepare", "submit", "queue", "bind", "runner", "validate", "wait", "reclaim", "remainder"
]
PublishedBy = Literal["process_step_output", "reclaim_decode", "worker_wait", "last rank"]
LeftOutReason = Literal["no rank records", "prefill between", "published out of order"]

PHASE_ORDER: tuple[StepPhase, ...] = get_args(StepPhase)


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


class PhaseIntervals(NamedTuple):
    """One phase of several steps: [start, end) of each in ns, where the step has it."""

    phase: StepPhase
    start_ns: Int64s
    end_ns: Int64s
    present: Mask


@dataclass(frozen=True)
class Breakdown:
    """Several steps in columns: their own time, and each phase's part of it, in ns.

    What is charged adds up to `wall_ns` exactly, step by step; what is hidden lies before it.
    """

    wall_ns: Int64s
    charged: dict[StepPhase, Int64s]
    hidden: dict[StepPhase, Int64s]


def measure_step_time(
    pipeline: PipelineResult, lifecycle: Lifecycle, matching: RoundMatching
) -> StepTime | None:
    """Split the time of every step of a decode callable that follows another one directly; None when there is none.

    The figures cover the steady steps where there are any, else all.
    """
    callable_name = pipeline.figures.callable
    if len(lifecycle.of(callable_name)):
        rounds = matching.of(callable_name)
        return _Serving(callable_name, lifecycle).measure(rounds, pipeline.steady_steps)
    windows, runs, left_out = _windows_of_rounds(callable_name, matching)
    if not runs:
        return None
    edges = np.array(windows, dtype=np.int64)
    breakdown = split_windows(edges[:, 0], edges[:, 1], _run_segments(runs))
    return _step_time(callable_name, "all", "last rank", breakdown, left_out, ranks_known=True)


def split_windows(starts_ns: Int64s, ends_ns: Int64s, segments: Sequence[PhaseIntervals]) -> Breakdown:
    """Charge each window [start, end) to the phases of its step, and say how much of each lies before it.

    `segments` follow each other in time. Where they overlap all the same (two clocks read a little apart, a wait that
    returns before the last rank's record ends), the earlier phase keeps the time. What no segment covers is remainder.
    A phase that a step does not have takes no time of it, which keeps the means additive; one that no step has is left
    out.
    """
    never = np.iinfo(np.int64).max
    reached = np.full(len(starts_ns), never)
    for segment in segments:
        reached = np.minimum(reached, np.where(segment.present, segment.start_ns, never))
    reached = np.where(reached == never, starts_ns, reached)
    nothing = np.zeros(len(starts_ns), dtype=np.int64)
    remainder = ends_ns - starts_ns
    charged: dict[StepPhase, Int64s] = {}
    hidden: dict[StepPhase, Int64s] = {}
    for phase, begins, ends, present in segments:
        if not present.any():
            continue
        start = np.maximum(begins, reached)
        end = np.maximum(start, np.minimum(ends, ends_ns))
        reached = np.where(present, end, reached)
        before = np.where(present, np.maximum(np.minimum(end, starts_ns) - start, 0), 0)
        inside = np.where(present, np.maximum(np.minimum(end, ends_ns) - np.maximum(start, starts_ns), 0), 0)
        hidden[phase] = hidden.get(phase, nothing) + before
        charged[phase] = charged.get(phase, nothing) + inside
        remainder = remainder - inside
    return Breakdown(ends_ns - starts_ns, {**charged, "remainder": remainder}, hidden)


class _Serving:
    """The steps of one callable as the serving trace shows them."""

    def __init__(self, callable_name: str, lifecycle: Lifecycle) -> None:
        self._callable = callable_name
        self._lifecycle = lifecycle
        self._before, self._following = lifecycle.neighbours(callable_name)
        self._published_by, self._publication = _publication(lifecycle, callable_name)

    def measure(self, rounds: Sequence[Round], steady: Steps) -> StepTime | None:
        """The figures of every step that follows another one directly."""
        joined = bool(rounds) and _on_host_clock(self._callable, self._lifecycle.spans)
        starts, ends = self._published(self._before), self._published(self._following)
        runs = _last_runs(self._following, rounds) if joined else [None] * len(starts)
        has_run = np.array([run is not None for run in runs], dtype=np.bool_)
        backwards = ends < starts
        prefilled = ~backwards & self._lifecycle.prefills.overlap(starts, ends)
        unknown = ~backwards & ~prefilled & ~has_run & joined
        good = ~(backwards | prefilled | unknown)
        is_steady = good & np.isin(self._following.submit, steady.submit)
        scope: Literal["all", "steady"] = "steady" if is_steady.any() else "all"
        chosen = np.flatnonzero(is_steady if scope == "steady" else good)
        if not len(chosen):
            return None
        steps, runs = self._following.select(chosen), [runs[index] for index in chosen.tolist()]
        breakdown = split_windows(starts[chosen], ends[chosen], self._segments(steps, runs, ends[chosen]))
        reasons: dict[LeftOutReason, Mask] = {
            "published out of order": backwards,
            "prefill between": prefilled,
            "no rank records": unknown,
        }
        left_out = {reason: int(rows.sum()) for reason, rows in reasons.items() if rows.any()}
        return _step_time(self._callable, scope, self._published_by, breakdown, left_out, ranks_known=joined)

    def _published(self, steps: Steps) -> Int64s:
        """When each of `steps` was published, in ns."""
        if self._publication is None:
            return steps.end_ns
        return self._publication.end_ns[self._publication.of(steps)]

    def _segments(
        self, steps: Steps, runs: Sequence[RankRun | None], published_ns: Int64s
    ) -> list[PhaseIntervals]:
        always = np.ones(len(steps), dtype=np.bool_)
        segments = [
            self._of_step("schedule", SCHEDULE_SPAN, steps),
            self._of_step("prepare", PREPARE_SPAN, steps),
            PhaseIntervals("submit", steps.start_ns, steps.submit_end_ns, always),
        ]
        bind, *others = _run_segments(runs)
        segments += [PhaseIntervals("queue", steps.submit_end_ns, bind.start_ns, bind.present), bind, *others]
        completed = np.where(bind.present, others[-1].end_ns, steps.submit_end_ns)
        segments.append(PhaseIntervals("wait", completed, steps.end_ns, always))
        segments.append(PhaseIntervals("reclaim", steps.end_ns, published_ns, always))
        return segments

    def _of_step(self, phase: StepPhase, suffix: str, steps: Steps) -> PhaseIntervals:
        found = self._lifecycle.step_spans(suffix)
        positions = found.of(steps)
        if not len(found):
            return PhaseIntervals(phase, steps.start_ns, steps.start_ns, positions != ABSENT)
        return PhaseIntervals(phase, found.start_ns[positions], found.end_ns[positions], positions != ABSENT)


def _publication(lifecycle: Lifecycle, callable_name: str) -> tuple[PublishedBy, StepSpans | None]:
    """What ends a step, and its spans where they are not the waits themselves."""
    sources: list[tuple[PublishedBy, str]] = [
        ("process_step_output", PROCESS_SPAN),
        ("reclaim_decode", RECLAIM_SPAN),
    ]
    for published_by, suffix in sources:
        found = lifecycle.step_spans(suffix)
        if bool((found.of(lifecycle.of(callable_name)) != ABSENT).all()):
            return published_by, found
    return "worker_wait", None


def _last_runs(steps: Steps, rounds: Iterable[Round]) -> list[RankRun | None]:
    """The run that each step's completion waited for; None where not every rank has a record of it."""
    by_dispatch = {run.dispatch_id: item for item in rounds for run in item.runs.values()}
    by_dispatch.pop(ABSENT, None)
    last = {key: _last_to_complete(item) for key, item in by_dispatch.items() if item.complete}
    return [last.get(dispatch_id) for dispatch_id in steps.joining_dispatch_id.tolist()]


def _windows_of_rounds(
    callable_name: str, matching: RoundMatching
) -> tuple[list[tuple[int, int]], list[RankRun], dict[LeftOutReason, int]]:
    """Rounds alone: a step is published when its last rank completes, and what lies before its run is remainder."""
    windows: list[tuple[int, int]] = []
    runs = []
    left_out: dict[LeftOutReason, int] = {}
    for before, item in pairwise(matching.rounds):
        if item.callable != callable_name or before.callable != callable_name:
            continue
        if not (before.complete and item.complete):
            left_out["no rank records"] = left_out.get("no rank records", 0) + 1
            continue
        run = _last_to_complete(item)
        start, end = _completed_ns(_last_to_complete(before)), _completed_ns(run)
        if end < start:
            left_out["published out of order"] = left_out.get("published out of order", 0) + 1
            continue
        windows.append((start, end))
        runs.append(run)
    return windows, runs, left_out


def _run_segments(runs: Sequence[RankRun | None]) -> list[PhaseIntervals]:
    """The phases of a run; bind lasts until the runner starts, the wait for the other ranks included."""
    present = np.array([run is not None for run in runs], dtype=np.bool_)
    edges = np.array([(0, 0, 0, 0) if run is None else _edges_ns(run) for run in runs], dtype=np.int64)
    phases: tuple[StepPhase, ...] = ("bind", "runner", "validate")
    return [
        PhaseIntervals(phase, edges[:, number], edges[:, number + 1], present)
        for number, phase in enumerate(phases)
    ]


def _edges_ns(run: RankRun) -> tuple[int, int, int, int]:
    runner = run.phases.get("runner_run", run.root)
    return run.root.start_ns, runner.start_ns, runner.end_ns, _completed_ns(run)


def _completed_ns(run: RankRun) -> int:
    """When a rank had done its part: after it, it only gives back its claim."""
    validated = run.phases.get("validate")
    return validated.end_ns if validated is not None else run.root.end_ns


def _last_to_complete(item: Round) -> RankRun:
    return max(item.runs.values(), key=lambda run: (_completed_ns(run), -run.rank))


def _step_time(
    callable_name: str,
    scope: Literal["all", "steady"],
    published_by: PublishedBy,
    breakdown: Breakdown,
    left_out: dict[LeftOutReason, int],
    *,
    ranks_known: bool,
) -> StepTime:
    nothing = np.zeros(len(breakdown.wall_ns), dtype=np.int64)
    return StepTime(
        callable=callable_name,
        scope=scope,
        published_by=published_by,
        ranks_known=ranks_known,
        wall=summarize(breakdown.wall_ns),
        phases=[
            PhaseTime(
                phase=phase,
                charged=summarize(breakdown.charged[phase]),
                hidden=summarize(breakdown.hidden.get(phase, nothing)),
            )
            for phase in PHASE_ORDER
            if phase in breakdown.charged
        ],
        left_out=left_out,
    )


def _on_host_clock(callable_name: str, spans: SpanTable) -> bool:
    """Whether the serving trace shares the ranks' clock."""
    rows = (spans.source == Source.SERVING) & spans.named(callable_name + SUBMIT)
    return bool((spans.clock[rows] == Clock.HOST).all())


def decode_callables(lifecycle: Lifecycle, matching: RoundMatching) -> list[str]:
    """Every callable with steps or rounds that is no prefill: those of the serving trace, then by their rounds."""
    rounds = Counter(item.callable for item in matching.rounds)
    names = [*lifecycle.steps.callables, *(name for name, _ in rounds.most_common())]
    return [name for name in dict.fromkeys(names) if not is_prefill(name)]
