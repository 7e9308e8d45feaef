"""A few consecutive steps as bars on lanes: what was prepared, submitted, in flight, run by each rank and waited for.

At most three windows of `STEPS_SHOWN` steps and `RANKS_SHOWN` ranks are drawn: the first steps, those around the slowest
one and the last ones; of each lane at most `BARS_SHOWN` bars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from analyzers.measurement import Measured
from analyzers.ranks.rounds import Round as RankRound
from analyzers.ranks.rounds import RoundMatching
from analyzers.ranks.scheduler import NEVER, read_schedule
from analyzers.steps.lifecycle import Lifecycle
from analyzers.steps.step_spans import PREPARE_SPAN, StepSpans
from analyzers.steps.steps import Steps
from analyzers.table.callables import is_prefill
from analyzers.table.grouping import number_groups, split_groups
from analyzers.table.intervals import Interval
from analyzers.table.spans import ABSENT, Clock, Int64s, Mask, Source, SpanTable, is_number

STEPS_SHOWN = 12
RANKS_SHOWN = 64
BARS_SHOWN = 256
_ROWS = 8
"""Bars that overlap stand on rows of their own, up to the most dispatches that a lane can show in flight."""

Which = Literal["all steps", "first steps", "around the slowest step", "last steps"]
LaneKind = Literal["prepare", "submit", "in flight", "wait", "runner_run"]


class WindowLane(msgspec.Struct, frozen=True):
    """Bars of one kind in columns of equal length; bars that overlap have different rows."""

    kind: LaneKind
    rank: int | None
    rows: int
    number: list[int | None]
    """The step, or the round, that a bar belongs to; null for other work."""
    row: list[int]
    start_ns: list[int]
    """From the timeline's origin; cut at its edges, like the ends."""
    end_ns: list[int]


class StepWindow(msgspec.Struct, frozen=True):
    """Consecutive steps of one callable."""

    callable: str
    which: Which
    first: int
    """Index of the first step, among all `of` steps."""
    shown: int
    of: int
    origin_ns: int
    duration_ns: int
    lanes: list[WindowLane]
    notes: list[str]


@dataclass(frozen=True)
class _Bars:
    """The bars of one lane in columns; a number counts only where it is known."""

    kind: LaneKind
    rank: int | None
    start_ns: Int64s
    end_ns: Int64s
    number: Int64s
    numbered: Mask


@dataclass(frozen=True)
class _Work:
    """Everything that can be drawn of one recording: the steps to choose from, and the bars of each lane."""

    callable: str
    start_ns: Int64s
    end_ns: Int64s
    """Of the steps."""
    lanes: list[_Bars]
    notes: list[str]


def draw_step_windows(measured: Measured) -> list[StepWindow]:
    """Timelines of the decode callable with the most steps; of its rounds where no lifecycle tells of steps."""
    spans, matching = measured.recording.spans, measured.matching
    steps = _main_steps(measured.lifecycle)
    work = _serving(measured, steps) if len(steps) else _runtime(spans, matching)
    return [] if work is None else [_draw(work, which, first) for which, first in _windows(work)]


def _windows(work: _Work) -> list[tuple[Which, int]]:
    durations = work.end_ns - work.start_ns
    last = len(durations) - STEPS_SHOWN
    if last <= 0:
        return [("all steps", 0)]
    around = min(max(0, int(durations.argmax()) - STEPS_SHOWN // 2), last)
    windows: list[tuple[Which, int]] = [
        ("first steps", 0),
        ("around the slowest step", around),
        ("last steps", last),
    ]
    return [window for window in windows if window[0] != "around the slowest step" or around not in (0, last)]


def _main_steps(lifecycle: Lifecycle) -> Steps:
    """The steps of one decode callable in one process: only those surely share a clock and an order."""
    steps = lifecycle.steps
    groups = list(split_groups(number_groups(steps.process, steps.callable)))
    names = steps.endpoints.callables
    decode = [rows for rows in groups if not is_prefill(names[steps.callable[rows[0]]])]
    return steps.select(max(decode, key=len, default=np.empty(0, dtype=np.intp)))


def _serving(measured: Measured, steps: Steps) -> _Work:
    spans, matching = measured.recording.spans, measured.matching
    numbers, basis = _numbers(steps)
    always = np.ones(len(steps), dtype=np.bool_)
    lanes = [
        _prepared(measured.lifecycle.step_spans(PREPARE_SPAN), steps, numbers),
        _Bars("submit", None, steps.start_ns, steps.submit_end_ns, numbers, always),
        _Bars("in flight", None, steps.start_ns, steps.end_ns, numbers, always),
        _Bars("wait", None, steps.wait_start_ns, steps.end_ns, numbers, always),
    ]
    notes = [f"numbers are {basis}"]
    serving = spans.clock[spans.source == Source.SERVING]
    if matching.ranks and not bool((serving == Clock.HOST).all()):
        notes.append("ranks are left out: their clock and that of the serving trace cannot be compared")
    elif matching.ranks:
        by_dispatch = dict(zip(steps.joining_dispatch_id.tolist(), numbers.tolist(), strict=True))
        by_dispatch.pop(ABSENT, None)
        lanes += _ranks(matching.rounds, lambda _, item: by_dispatch.get(item.dispatch_id))
        if matching.rounds and not any(item.dispatch_id in by_dispatch for item in matching.rounds):
            notes.append("ranks are drawn without numbers: no id joins their runs to steps")
    name = steps.endpoints.callables[steps.callable[0]]
    return _Work(name, steps.start_ns, steps.end_ns, lanes, notes)


def _runtime(spans: SpanTable, matching: RoundMatching) -> _Work | None:
    """Rounds of the decode callable that has the most, and what the scheduler had in flight meanwhile."""
    by_callable: dict[str, list[int]] = {}
    for index, item in enumerate(matching.rounds):
        if not is_prefill(item.callable):
            by_callable.setdefault(item.callable, []).append(index)
    if not by_callable:
        return None
    name, indices = max(by_callable.items(), key=lambda entry: len(entry[1]))
    numbers = {round_index: number for number, round_index in enumerate(indices)}
    intervals = [_around(run.root for run in matching.rounds[index].runs.values()) for index in indices]
    last_ns = max(interval.end_ns for interval in intervals)
    flights = sorted(
        Interval(flight.start_ns, max(flight.start_ns, last_ns) if flight.end_ns == NEVER else flight.end_ns)
        for own in read_schedule(spans).flights()
        for flight in own
    )
    lanes = []
    notes = ["numbers are rounds in order, from 0: this recording has no submit and wait spans"]
    if flights:
        # A run of the scheduler is a round only where roots carry its id, which is not needed to see them overlap.
        known = len(flights) == len(indices)
        lanes.append(
            _bars("in flight", None, flights, [index if known else None for index in range(len(flights))])
        )
        notes.append("in flight: from the first node.submit to the last node.complete of a run")
    lanes += _ranks(matching.rounds, lambda index, _: numbers.get(index))
    starts, ends = np.array(intervals, dtype=np.int64).T
    return _Work(name, starts, ends, lanes, notes)


def _numbers(steps: Steps) -> tuple[Int64s, str]:
    """What to call the steps, and what that is."""
    for ids, basis in ((steps.joining_step_id, "step ids"), (steps.joining_dispatch_id, "dispatch ids")):
        if is_number(ids).all():
            return ids, basis
    return np.arange(len(steps)), "steps in order of submission, from 0"


def _bars(
    kind: LaneKind, rank: int | None, intervals: Sequence[Interval], numbers: Sequence[int | None]
) -> _Bars:
    starts, ends = np.array(intervals, dtype=np.int64).T
    known = np.array([number is not None for number in numbers], dtype=np.bool_)
    return _Bars(
        kind, rank, starts, ends, np.array([number or 0 for number in numbers], dtype=np.int64), known
    )


def _prepared(prepared: StepSpans, steps: Steps, numbers: Int64s) -> _Bars:
    """The outermost prepare span of each step, in the process that submits."""
    process = steps.endpoints.processes[steps.process[0]]
    own = np.array([other == process for other in (*prepared.processes, None)], dtype=np.bool_)[
        prepared.process
    ]
    ids = prepared.step_id[own]
    of_step = steps.joining_step_id
    order = np.argsort(of_step, kind="stable")
    position = np.searchsorted(of_step[order], ids, side="right") - 1
    step = order[np.maximum(position, 0)]
    known = (position >= 0) & (of_step[step] == ids)
    return _Bars("prepare", None, prepared.start_ns[own], prepared.end_ns[own], numbers[step], known)


def _ranks(rounds: Sequence[RankRound], number: Callable[[int, RankRound], int | None]) -> list[_Bars]:
    by_rank: dict[int, list[tuple[Interval, int | None]]] = {}
    for index, item in enumerate(rounds):
        for rank, run in item.runs.items():
            bar = (run.phases.get("runner_run", run.root), number(index, item))
            by_rank.setdefault(rank, []).append(bar)
    return [
        _bars("runner_run", rank, [interval for interval, _ in bars], [number for _, number in bars])
        for rank, bars in sorted(by_rank.items())[:RANKS_SHOWN]
    ]


def _around(intervals: Iterable[Interval]) -> Interval:
    parts = list(intervals)
    return Interval(min(part.start_ns for part in parts), max(part.end_ns for part in parts))


def _draw(work: _Work, which: Which, first: int) -> StepWindow:
    chosen = slice(first, first + STEPS_SHOWN)
    window = Interval(int(work.start_ns[chosen].min()), int(work.end_ns[chosen].max()))
    lanes = [_lane(bars, window) for bars in work.lanes]
    ranks = sum(bars.rank is not None for bars in work.lanes)
    notes = list(work.notes)
    if ranks == RANKS_SHOWN:
        notes.append(f"at most {RANKS_SHOWN} ranks are drawn")
    if any(len(lane.start_ns) == BARS_SHOWN for lane in lanes):
        notes.append(f"at most {BARS_SHOWN} bars of a lane are drawn")
    return StepWindow(
        callable=work.callable,
        which=which,
        first=first,
        shown=len(work.start_ns[chosen]),
        of=len(work.start_ns),
        origin_ns=window.start_ns,
        duration_ns=window.duration_ns,
        lanes=[lane for lane in lanes if lane.start_ns],
        notes=notes,
    )


def _lane(bars: _Bars, window: Interval) -> WindowLane:
    """The bars inside the window; each on the first row that is free by then."""
    inside = np.flatnonzero((bars.start_ns < window.end_ns) & (bars.end_ns > window.start_ns))
    inside = inside[np.lexsort((bars.end_ns[inside], bars.start_ns[inside]))][:BARS_SHOWN]
    starts, ends = bars.start_ns[inside], bars.end_ns[inside]
    free_from: list[int] = []
    rows = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        row = next((row for row, time in enumerate(free_from) if time <= start), len(free_from))
        row = min(row, _ROWS - 1)
        free_from[row:] = [end, *free_from[row + 1 :]]
        rows.append(row)
    numbers = zip(bars.number[inside].tolist(), bars.numbered[inside].tolist(), strict=True)
    return WindowLane(
        kind=bars.kind,
        rank=bars.rank,
        rows=len(free_from),
        number=[number if known else None for number, known in numbers],
        row=rows,
        start_ns=(np.maximum(starts, window.start_ns) - window.start_ns).tolist(),
        end_ns=(np.minimum(ends, window.end_ns) - window.start_ns).tolist(),
    )
