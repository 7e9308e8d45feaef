"""How the pipeline overlaps, what serialises it where it does not, and whether host or device sets the pace."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np

from analyzers.measurement import Measured
from analyzers.report.model import Finding, FindingCode, Report, Severity
from analyzers.steps.bubbles import StepTime
from analyzers.steps.endpoints import SpanReference
from analyzers.steps.pipeline import Pipeline
from analyzers.steps.step_spans import PREPARE_SPAN, SCHEDULE_SPAN, StepSpans
from analyzers.steps.steps import Steps
from analyzers.table.callables import RUN, is_prefill
from analyzers.table.grouping import Rows, split_groups
from analyzers.table.spans import ABSENT, Int64s, Mask, SpanTable
from analyzers.text.words import counted, milliseconds

Serialiser = Literal["submit runs", "submit waits", "device lane", "prepare", "slot", "schedule", "unknown"]
"""What made a step begin only after the one ahead had completed."""

RUNS_INSIDE = 0.8
"""A submit that takes this share of submit-to-completion ran the step itself."""

HOST_BOUND = 0.5
"""Share of the steps' time outside of the runners from which on the host sets the pace."""


class _Cause(NamedTuple):
    """A serialiser in words: who waits, how that shows, what to do."""

    who: str
    how: str
    advice: str


_CAUSES: dict[Serialiser, _Cause] = {
    "submit runs": _Cause(
        "submit runs the step itself",
        "submit itself lasts as long as the run",
        "make submit return: a blocking call, or a reset of the windows before every dispatch, runs inside it",
    ),
    "submit waits": _Cause(
        "submit waits for the step ahead",
        "submit begins in time but returns only when the step ahead has completed",
        "keep the windows between dispatches (persistent windows, no reset), and a frame free for the next one",
    ),
    "device lane": _Cause(
        "the device lane waits for the step ahead",
        "the step is prepared in time, but submitted only when the step ahead has completed",
        "look at what the device lane waits for between prepare and submit: a fence, a copy outside of the dispatch",
    ),
    "prepare": _Cause(
        "prepare waits for the step ahead",
        "prepare begins in time but ends only when the step ahead has completed",
        "look at what prepare waits for: metadata or a block table that comes from the device",
    ),
    "slot": _Cause(
        "the slot is not free before the step ahead is done",
        "the step is scheduled in time, but prepared only when the step ahead has completed",
        "look for the slot it waits for: who holds it, and whether there are two",
    ),
    "schedule": _Cause(
        "the scheduler waits for the step ahead",
        "the step is scheduled only when the step ahead has completed",
        "let the scheduler plan a step from what it knows before the tokens of the one ahead arrive",
    ),
    "unknown": _Cause(
        "the trace does not say what waits",
        "the trace does not say what the step waits for before its submit",
        "record the prepare lane and the scheduler with step ids",
    ),
}


def pipelines(measured: Measured, report: Report) -> Iterable[Finding]:
    """The state of each decode pipeline, with the wait that serialises a collapsed one; and who sets the pace."""
    for pipeline in report.pipelines:
        yield from _pipeline(pipeline, measured)
    for step_time in report.step_time:
        yield from _pace(step_time)
    yield from _synchronous_fallback(measured)
    for join in measured.joins:
        rounds = counted(join.rounds, "round")
        if join.is_joined:
            title = f"{join.callable}: {rounds} joined to its dispatches by their times"
            yield Finding("joined_by_time", "info", title, join.basis)
        else:
            title = f"{join.callable}: {rounds} joined to no dispatch of the serving trace"
            yield Finding("not_joined", "warning", title, join.basis, "keep dispatch ids in both recordings")


def _pipeline(pipeline: Pipeline, measured: Measured) -> Iterable[Finding]:
    collapsed = pipeline.state == "collapsed"
    code: FindingCode = "pipeline_collapsed" if collapsed else "pipeline"
    cadence = pipeline.cadence.p50
    title = f"{pipeline.callable}: {pipeline.statement}"
    evidence = f"median cadence {milliseconds(cadence)}" if cadence is not None else "cadence unavailable"
    advice = ""
    figures = {
        "submitted_early": float(pipeline.in_flight.overlapping),
        "pairs": float(pipeline.in_flight.pairs),
    }
    spans = []
    before, following = measured.lifecycle.neighbours(pipeline.callable)
    serialised = serialisers(before, following, measured.recording.spans) if collapsed else {}
    if serialised:
        cause, steps = max(serialised.items(), key=lambda entry: len(entry[1]))
        who, how, advice = _CAUSES[cause]
        title += f"; {who}"
        evidence += f"; in {len(steps)} of {counted(pipeline.in_flight.pairs, 'step')} {how}"
        figures["serialised_by_this"] = len(steps)
        first = int(steps[0])
        spans = [before[first].wait.reference(), following[first].submit.reference()]
    severity: Severity = "warning" if collapsed else "info"
    yield Finding(code, severity, title, evidence, advice, figures=figures, spans=spans)


def serialisers(before: Steps, following: Steps, spans: SpanTable) -> dict[Serialiser, Rows]:
    """What steps waited for that were not in flight before the one ahead had completed: positions in `following`.

    `before` and `following` are neighbours, pair by pair; what the first of them waited for comes first.
    """
    completed = before.end_ns
    late = np.flatnonzero(following.submit_end_ns >= completed)
    before, following, completed = before.select(late), following.select(late), completed[late]
    ran = before.submit_end_ns - before.start_ns >= RUNS_INSIDE * before.submit_to_completion_ns
    has_prepare, prepare_start, prepare_end = _planned(spans, PREPARE_SPAN, following)
    has_schedule, _, schedule_end = _planned(spans, SCHEDULE_SPAN, following)
    causes: list[tuple[Serialiser, Mask]] = [
        ("submit runs", ran),
        ("submit waits", following.start_ns < completed),
        ("device lane", has_prepare & (prepare_end <= completed)),
        ("prepare", has_prepare & (prepare_start < completed)),
        ("unknown", ~has_schedule),
        ("slot", schedule_end <= completed),
    ]
    names: list[Serialiser] = [*(name for name, _ in causes), "schedule"]
    # The first that applies.
    code = np.select([holds for _, holds in causes], range(len(causes)), default=len(causes))
    return {names[code[rows[0]]]: late[rows] for rows in split_groups(code)}


def _planned(spans: SpanTable, suffix: str, steps: Steps) -> tuple[Mask, Int64s, Int64s]:
    """Whether each step has the span named so, and its start and end in ns; 0 where it has none."""
    found = StepSpans(spans, suffix)
    position = found.of(steps)
    has_span = position != ABSENT
    start, end = np.zeros(len(steps), dtype=np.int64), np.zeros(len(steps), dtype=np.int64)
    start[has_span], end[has_span] = found.start_ns[position[has_span]], found.end_ns[position[has_span]]
    return has_span, start, end


def _pace(step_time: StepTime) -> Iterable[Finding]:
    """Host-bound or device-bound: whether the runner of the last rank takes most of the time between two steps."""
    total = step_time.wall.mean
    if not step_time.ranks_known or step_time.published_by == "last rank" or not total:
        return
    means = {entry.phase: entry.charged.mean or 0.0 for entry in step_time.phases}
    share = means.pop("runner", 0.0) / total
    steady = "steady " if step_time.scope == "steady" else ""
    steps = f"{counted(step_time.wall.n, f'{steady}step')} of {milliseconds(total)} on average"
    figures = {"runner_share": share, "steps": float(step_time.wall.n), "mean_wall_ns": total}
    largest = sorted(means, key=lambda phase: -means[phase])[:2]
    rest = ", ".join(f"{phase} {milliseconds(means[phase])}" for phase in largest if means[phase])
    evidence = f"{steps}; outside of the runner: {rest or 'nothing'}"
    if 1 - share > HOST_BOUND:
        title = f"{step_time.callable}: host-bound, {100 * (1 - share):.0f} % of a step's time is not the runner's"
        advice = f"shorten {largest[0]}, or do it behind the step ahead"
        yield Finding("host_bound", "warning", title, evidence, advice, figures=figures)
        return
    title = f"{step_time.callable}: device-bound, the runner takes {100 * share:.0f} % of a step's time"
    yield Finding("device_bound", "info", title, evidence, figures=figures)


def _synchronous_fallback(measured: Measured) -> Iterable[Finding]:
    """Waits that lie inside their submit, and decode steps that ran blocking beside submitted ones."""
    inside = [
        fault
        for fault in measured.lifecycle.faults
        if fault.kind == "wait_before_submit_end" and _nested(fault.spans[0], fault.spans[1])
    ]
    if inside:
        whose = (
            "its wait lies inside its submit" if len(inside) == 1 else "their waits lie inside their submits"
        )
        title = f"{inside[0].callable}: {counted(len(inside), 'step')} fell back to blocking: {whose}"
        yield Finding(
            "synchronous_fallback",
            "warning",
            title,
            inside[0].detail,
            "look at why submit waited itself; such steps are in no latency",
            figures={"steps": float(len(inside))},
            spans=inside[0].spans,
        )
    spans = measured.recording.spans
    for name in measured.lifecycle.steps.callables:
        blocking = int(spans.named(name + RUN).sum())
        if blocking and not is_prefill(name):
            submitted = len(measured.lifecycle.of(name))
            yield Finding(
                "synchronous_fallback",
                "warning",
                f"{name}: {counted(blocking, 'step')} ran blocking beside {submitted} that were submitted",
                f"{counted(blocking, 'span')} {name}{RUN}",
                "look at what makes a step run blocking; such steps are in no submit-to-completion",
                figures={"steps": float(blocking), "submitted": float(submitted)},
            )


def _nested(submit: SpanReference, wait: SpanReference) -> bool:
    same_thread = (submit.pid, submit.tid) == (wait.pid, wait.tid)
    return same_thread and submit.start_ns <= wait.start_ns and wait.end_ns <= submit.end_ns
