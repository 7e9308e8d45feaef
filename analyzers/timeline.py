"""A few consecutive steps as bars on lanes: what was prepared, submitted, in flight, run by each rank and waited for.

At most three windows of `STEPS_SHOWN` steps and `RANKS_SHOWN` ranks are drawn: the first steps, those around the slowest
one and the last ones.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from analyzers.callables import is_prefill
from analyzers.lifecycle import Lifecycle, Step
from analyzers.readers.strace import family
from analyzers.rounds import Interval, RoundMatching
from analyzers.rounds import Round as RankRound
from analyzers.spans import ABSENT, Clock, Source, SpanTable

STEPS_SHOWN = 12
RANKS_SHOWN = 64
_ROWS = 8
"""Bars that overlap stand on rows of their own, up to the most dispatches that a lane can show in flight."""

_PREPARE_SPAN = ".prepare_decode"

Which = Literal["all steps", "first steps", "around the slowest step", "last steps"]
LaneKind = Literal["prepare", "submit", "in flight", "wait", "runner_run"]


class TimelineLane(msgspec.Struct, frozen=True):
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


class Timeline(msgspec.Struct, frozen=True):
    """Consecutive steps of one callable."""

    callable: str
    which: Which
    first: int
    """Index of the first step, among all `of` steps."""
    shown: int
    of: int
    origin_ns: int
    duration_ns: int
    lanes: list[TimelineLane]
    notes: list[str]


@dataclass(frozen=True)
class _Bar:
    interval: Interval
    number: int | None


@dataclass(frozen=True)
class _Work:
    """Everything that can be drawn of one recording: the steps to choose from, and the bars of each lane."""

    callable: str
    steps: list[Interval]
    lanes: list[tuple[LaneKind, int | None, list[_Bar]]]
    notes: list[str]


def draw_timelines(spans: SpanTable, lifecycle: Lifecycle, matching: RoundMatching) -> list[Timeline]:
    """Timelines of the decode callable with the most steps; of its rounds where no lifecycle tells of steps."""
    steps = _main_steps(lifecycle)
    work = _serving(spans, steps, matching) if steps else _runtime(spans, matching)
    return [] if work is None else [_draw(work, which, first) for which, first in _windows(work.steps)]


def _windows(steps: Sequence[Interval]) -> list[tuple[Which, int]]:
    last = len(steps) - STEPS_SHOWN
    if last <= 0:
        return [("all steps", 0)]
    slowest = max(range(len(steps)), key=lambda index: steps[index].duration_ns)
    around = min(max(0, slowest - STEPS_SHOWN // 2), last)
    windows: list[tuple[Which, int]] = [
        ("first steps", 0),
        ("around the slowest step", around),
        ("last steps", last),
    ]
    return [window for window in windows if window[0] != "around the slowest step" or around not in (0, last)]


def _main_steps(lifecycle: Lifecycle) -> list[Step]:
    """The steps of one decode callable in one process: only those surely share a clock and an order."""
    groups: dict[Hashable, list[Step]] = {}
    for step in lifecycle.steps:
        if not is_prefill(step.callable):
            groups.setdefault((step.submit.process, step.callable), []).append(step)
    return max(groups.values(), key=len, default=[])


def _serving(spans: SpanTable, steps: Sequence[Step], matching: RoundMatching) -> _Work:
    numbers, basis = _numbers(steps)
    by_dispatch = {
        step.dispatch_id: number
        for step, number in zip(steps, numbers, strict=True)
        if step.dispatch_id != ABSENT
    }
    lanes: list[tuple[LaneKind, int | None, list[_Bar]]] = [
        ("prepare", None, _prepared(spans, steps, dict(zip(_step_ids(steps), numbers, strict=True)))),
        ("submit", None, _bars(steps, numbers, lambda step: step.submit.interval)),
        ("in flight", None, _bars(steps, numbers, lambda step: step.interval)),
        ("wait", None, _bars(steps, numbers, lambda step: step.wait.interval)),
    ]
    notes = [f"numbers are {basis}"]
    serving = spans.clock[spans.source == Source.SERVING]
    if matching.ranks and not bool((serving == Clock.HOST).all()):
        notes.append("ranks are left out: their clock and that of the serving trace cannot be compared")
    else:
        lanes += _ranks(matching.rounds, lambda _, item: by_dispatch.get(_dispatch(item)))
        if matching.rounds and not any(_dispatch(item) in by_dispatch for item in matching.rounds):
            notes.append("ranks are drawn without numbers: no id joins their runs to steps")
    return _Work(steps[0].callable, [step.interval for step in steps], lanes, notes)


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
    flights = _flights(spans)
    lanes: list[tuple[LaneKind, int | None, list[_Bar]]] = []
    notes = ["numbers are rounds in order, from 0: this recording has no submit and wait spans"]
    if flights:
        # A run of the scheduler is a round only where roots carry its id, which is not needed to see them overlap.
        bars = [
            _Bar(flight, index if len(flights) == len(indices) else None)
            for index, flight in enumerate(flights)
        ]
        lanes.append(("in flight", None, bars))
        notes.append("in flight: from the first node.submit to the last node.complete of a run")
    lanes += _ranks(matching.rounds, lambda index, _: numbers.get(index))
    return _Work(name, intervals, lanes, notes)


def _numbers(steps: Sequence[Step]) -> tuple[list[int], str]:
    """What to call the steps, and what that is."""
    by_step = _step_ids(steps)
    if ABSENT not in by_step:
        return by_step, "step ids"
    by_dispatch = [step.dispatch_id for step in steps]
    if ABSENT not in by_dispatch:
        return by_dispatch, "dispatch ids"
    return list(range(len(steps))), "steps in order of submission, from 0"


def _step_ids(steps: Sequence[Step]) -> list[int]:
    return [step.step_id for step in steps]


def _bars(steps: Sequence[Step], numbers: Sequence[int], part: Callable[[Step], Interval]) -> list[_Bar]:
    return [_Bar(part(step), number) for step, number in zip(steps, numbers, strict=True)]


def _prepared(spans: SpanTable, steps: Sequence[Step], numbers: dict[int, int]) -> list[_Bar]:
    """The outermost prepare span of each step, in the process that submits."""
    named = spans.where_name(lambda name: name.endswith(_PREPARE_SPAN)) & (spans.step_id != ABSENT)
    process = steps[0].submit.process
    longest: dict[int, Interval] = {}
    for row in np.flatnonzero(named).tolist():
        step_id = int(spans.step_id[row])
        interval = Interval(int(spans.start_ns[row]), int(spans.end_ns[row]))
        if spans.lane_of(row).process == process and (
            step_id not in longest or interval.duration_ns > longest[step_id].duration_ns
        ):
            longest[step_id] = interval
    return [_Bar(interval, numbers.get(step_id)) for step_id, interval in longest.items()]


def _ranks(
    rounds: Sequence[RankRound], number: Callable[[int, RankRound], int | None]
) -> list[tuple[LaneKind, int | None, list[_Bar]]]:
    by_rank: dict[int, list[_Bar]] = {}
    for index, item in enumerate(rounds):
        for rank, run in item.runs.items():
            bar = _Bar(run.phases.get("runner_run", run.root), number(index, item))
            by_rank.setdefault(rank, []).append(bar)
    return [("runner_run", rank, bars) for rank, bars in sorted(by_rank.items())[:RANKS_SHOWN]]


def _dispatch(item: RankRound) -> int:
    return next(iter(item.runs.values())).dispatch_id


def _flights(spans: SpanTable) -> list[Interval]:
    """What the runtime's scheduler had in flight, by start."""
    rows = np.flatnonzero(
        (spans.source == Source.STRACE)
        & (spans.run_id != ABSENT)
        & spans.where_name(lambda name: family(name) == "node" and name.endswith((".submit", ".complete")))
    )
    runs: dict[int, list[Interval]] = {}
    for row in rows.tolist():
        interval = Interval(int(spans.start_ns[row]), int(spans.end_ns[row]))
        runs.setdefault(int(spans.run_id[row]), []).append(interval)
    return sorted(_around(parts) for parts in runs.values() if len(parts) > 1)


def _around(intervals: Iterable[Interval]) -> Interval:
    parts = list(intervals)
    return Interval(min(part.start_ns for part in parts), max(part.end_ns for part in parts))


def _draw(work: _Work, which: Which, first: int) -> Timeline:
    chosen = work.steps[first : first + STEPS_SHOWN]
    window = _around(chosen)
    lanes = [_lane(kind, rank, bars, window) for kind, rank, bars in work.lanes]
    ranks = sum(rank is not None for _, rank, _ in work.lanes)
    notes = list(work.notes)
    if ranks == RANKS_SHOWN:
        notes.append(f"at most {RANKS_SHOWN} ranks are drawn")
    return Timeline(
        callable=work.callable,
        which=which,
        first=first,
        shown=len(chosen),
        of=len(work.steps),
        origin_ns=window.start_ns,
        duration_ns=window.duration_ns,
        lanes=[lane for lane in lanes if lane.start_ns],
        notes=notes,
    )


def _lane(kind: LaneKind, rank: int | None, bars: Iterable[_Bar], window: Interval) -> TimelineLane:
    """The bars inside the window; each on the first row that is free by then."""
    inside = sorted((bar for bar in bars if bar.interval.overlaps(window)), key=lambda bar: bar.interval)
    free_from: list[int] = []
    rows = []
    for bar in inside:
        row = next(
            (row for row, time in enumerate(free_from) if time <= bar.interval.start_ns), len(free_from)
        )
        row = min(row, _ROWS - 1)
        free_from[row:] = [bar.interval.end_ns, *free_from[row + 1 :]]
        rows.append(row)
    return TimelineLane(
        kind=kind,
        rank=rank,
        rows=len(free_from),
        number=[bar.number for bar in inside],
        row=rows,
        start_ns=[max(bar.interval.start_ns, window.start_ns) - window.start_ns for bar in inside],
        end_ns=[min(bar.interval.end_ns, window.end_ns) - window.start_ns for bar in inside],
    )
