"""Which dispatch a round is of, where its records carry no id that says so (docs/metrics.md, Joining rounds to steps).

The scheduler's records know the hash of every run, and the serving trace may count its dispatches as the scheduler
counts its runs. Where neither says anything, times do: the rounds of one callable lie one by one inside its dispatches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from analyzers.ranks.rounds import Round, RoundMatching
from analyzers.ranks.scheduler import NEVER, Schedule
from analyzers.readers.strace import roots
from analyzers.steps.blocking import blocking_runs
from analyzers.steps.lifecycle import Lifecycle
from analyzers.table.callables import SUBMIT, DispatchNames
from analyzers.table.intervals import Interval
from analyzers.table.spans import ABSENT, Kind, Source, SpanTable

_ROUNDING_NS = 1000
"""Serving traces count whole microseconds: so far a record may seem to lie outside of its span."""


class Join(msgspec.Struct, frozen=True):
    """What joins the rounds of a callable to its dispatches, or why nothing does."""

    callable: str
    """The callable, or the `hid ...` of rounds that nothing joins."""
    rounds: int
    is_joined: bool
    basis: str
    """What joined them, or why nothing did."""


def with_scheduled_ids(spans: SpanTable, schedule: Schedule) -> SpanTable:
    """Give roots without a run id that of the scheduler's run they lie in, and its hash; else `spans` as they are.

    The k-th root of a rank lies inside the k-th of the scheduler's dispatches to that worker that holds it. A rank of
    which a root lies in no dispatch keeps all of its roots as they are.
    """
    rows = roots(spans)
    rows = rows[(spans.run_id[rows] == ABSENT) & (spans.rank[rows] != ABSENT)]
    if not len(rows) or not len(schedule.part_run):
        return spans
    run_of = {}
    of_worker: dict[tuple[int, int], list[int]] = {}
    lives = np.array([spans.lives.get(lane.process, 0) for lane in spans.lanes], dtype=np.int64)
    for row in rows[np.argsort(spans.start_ns[rows], kind="stable")].tolist():
        of_worker.setdefault((int(lives[spans.lane[row]]), int(spans.rank[row])), []).append(row)
    order = np.argsort(schedule.part_dispatch_ns, kind="stable")
    for (_, rank), own in of_worker.items():
        parts = order[(schedule.part_worker[order] == rank) & (schedule.part_dispatch_ns[order] != NEVER)]
        run_of.update(_inside(spans, own, schedule, parts.tolist()))
    if not run_of:
        return spans
    chosen, runs = np.array(list(run_of), dtype=np.intp), np.array(list(run_of.values()), dtype=np.intp)
    run_id, hid = spans.run_id.copy(), spans.hid.copy()
    run_id[chosen] = schedule.run_id[runs]
    labels = list(spans.hids)
    codes = {label: code for code, label in enumerate(labels)}
    for row, run in zip(chosen.tolist(), runs.tolist(), strict=True):
        if schedule.hid[run]:
            if schedule.hid[run] not in codes:
                codes[schedule.hid[run]] = len(labels)
                labels.append(schedule.hid[run])
            hid[row] = codes[schedule.hid[run]]
    return dataclasses.replace(spans, run_id=run_id, hid=hid, hids=tuple(labels))


def _inside(spans: SpanTable, own: Sequence[int], schedule: Schedule, parts: Sequence[int]) -> dict[int, int]:
    """Root -> position of the run whose dispatch it lies in; {} unless every one of `own` has its own."""
    found: dict[int, int] = {}
    position = 0
    for row in own:
        start, end = int(spans.start_ns[row]), int(spans.end_ns[row])
        while position < len(parts) and not (
            schedule.part_dispatch_ns[parts[position]] <= start
            and end <= schedule.part_complete_ns[parts[position]]
        ):
            position += 1
        if position == len(parts):
            return {}
        found[row] = int(schedule.part_run[parts[position]])
        position += 1
    return found


def with_dispatch_ids(spans: SpanTable, schedule: Schedule) -> SpanTable:
    """Give roots without a dispatch id their run id, where the serving trace counts its dispatches as runs are counted.

    It does where every submission that names a dispatch holds the scheduler's submission of the run of that number.
    """
    rows = roots(spans)
    rows = rows[(spans.dispatch_id[rows] == ABSENT) & (spans.run_id[rows] != ABSENT)]
    if not len(rows) or not _counts_alike(spans, schedule):
        return spans
    dispatch_id = spans.dispatch_id.copy()
    dispatch_id[rows] = spans.run_id[rows]
    return dataclasses.replace(spans, dispatch_id=dispatch_id)


def _counts_alike(spans: SpanTable, schedule: Schedule) -> bool:
    submits = np.flatnonzero(
        (spans.source == Source.SERVING)
        & (spans.dispatch_id != ABSENT)
        & spans.where_name(lambda name: name.endswith(SUBMIT))
    )
    pids = {code: process[1] for code, process in enumerate(schedule.processes)}
    runs: dict[tuple[object, int], int] = {}
    for run in np.flatnonzero(schedule.submit_ns != NEVER).tolist():
        key = (pids[int(schedule.process[run])], int(schedule.run_id[run]))
        if key in runs:
            return False
        runs[key] = int(schedule.submit_ns[run])
    told = 0
    for row in submits.tolist():
        submitted = runs.get((spans.lane_of(row).pid, int(spans.dispatch_id[row])))
        if submitted is None:
            continue
        told += 1
        if not spans.start_ns[row] - _ROUNDING_NS <= submitted <= spans.end_ns[row] + _ROUNDING_NS:
            return False
    return told > 0


def completions(spans: SpanTable, schedule: Schedule) -> Mapping[tuple[object, int], int]:
    """(pid, dispatch id) -> when the scheduler's records call it complete, in ns; {} where ids do not tell."""
    if not len(schedule) or not _counts_alike(spans, schedule):
        return {}
    columns = schedule.process.tolist(), schedule.run_id.tolist(), schedule.complete_ns.tolist()
    return {
        (schedule.processes[process][1], run): at
        for process, run, at in zip(*columns, strict=True)
        if at != NEVER
    }


@dataclass(frozen=True)
class TimedJoins:
    """What times joined."""

    lifecycle: Lifecycle
    """With the dispatch ids of the rounds on the steps that they are of."""
    callables: Mapping[str, str] = field(default_factory=dict)
    """Label of rounds, `hid ...`, -> the callable that they are of."""
    joins: list[Join] = field(default_factory=list)


def join_by_time(
    spans: SpanTable, lifecycle: Lifecycle, matching: RoundMatching, names: DispatchNames
) -> TimedJoins:
    """Join rounds that no id joins: the k-th round of a hash lies inside the k-th dispatch of one callable, and of no other.

    Dispatches are submit to wait, or blocking spans; counts must be equal. What fits more than one, or none, is not joined.
    """
    known = {
        name for name in (*lifecycle.steps.callables, *blocking_runs(spans)) if name not in names.callables
    }
    rounds: dict[str, list[Round]] = {}
    for item in matching.rounds:
        if item.callable not in names.callables:
            rounds.setdefault(item.callable, []).append(item)
    if not known or not rounds:
        return TimedJoins(lifecycle)
    dispatches = {name: _dispatches(spans, lifecycle, name) for name in sorted(known)}
    fitting = {
        label: [name for name, spans_ in dispatches.items() if _fit(own, spans_)]
        for label, own in rounds.items()
    }
    joined: dict[str, str] = {}
    joins = []
    for label, candidates in fitting.items():
        alone = len(candidates) == 1 and sum(candidates[0] in others for others in fitting.values()) == 1
        if alone:
            joined[label] = candidates[0]
            basis = f"round k of {label} lies inside dispatch k, for every one of {len(rounds[label])}"
            joins.append(Join(candidates[0], len(rounds[label]), True, basis))
        else:
            joins.append(
                Join(label, len(rounds[label]), False, _why_not(len(rounds[label]), candidates, dispatches))
            )
    return TimedJoins(_with_ids(lifecycle, joined, rounds), joined, joins)


def _dispatches(spans: SpanTable, lifecycle: Lifecycle, name: str) -> list[Interval]:
    """From submission to completion, or the blocking spans, in order of time."""
    steps = lifecycle.of(name)
    if len(steps):
        return [*map(Interval, steps.start_ns.tolist(), steps.end_ns.tolist())]
    label = blocking_runs(spans).get(name, "")
    rows = np.flatnonzero(spans.named(label) & (spans.source == Source.SERVING) & (spans.kind == Kind.SPAN))
    return sorted(map(Interval, spans.start_ns[rows].tolist(), spans.end_ns[rows].tolist()))


def _fit(rounds: Sequence[Round], dispatches: Sequence[Interval]) -> bool:
    return len(rounds) == len(dispatches) and all(
        dispatch.start_ns - _ROUNDING_NS <= root.start_ns and root.end_ns <= dispatch.end_ns + _ROUNDING_NS
        for item, dispatch in zip(rounds, dispatches, strict=True)
        for root in (run.root for run in item.runs.values())
    )


def _why_not(count: int, candidates: Sequence[str], dispatches: Mapping[str, Sequence[Interval]]) -> str:
    if candidates:
        return (
            f"its rounds lie inside the dispatches of {' and of '.join(candidates)}, or others fit them too"
        )
    counts = ", ".join(f"{len(found)} of {name}" for name, found in dispatches.items())
    return f"no id, and no callable has {count} dispatches that hold these rounds one by one ({counts})"


def _with_ids(
    lifecycle: Lifecycle, joined: Mapping[str, str], rounds: Mapping[str, Sequence[Round]]
) -> Lifecycle:
    """Give the steps of joined rounds their dispatch ids, where rounds have ids that no two of them share."""
    dispatch_id = lifecycle.endpoints.dispatch_id.copy()
    for label, name in joined.items():
        ids = [item.dispatch_id for item in rounds[label]]
        steps = lifecycle.of(name)
        if len(steps) and _are_ids(ids):
            dispatch_id[steps.submit] = ids
            dispatch_id[steps.wait] = ids
    endpoints = dataclasses.replace(lifecycle.endpoints, dispatch_id=dispatch_id)
    return dataclasses.replace(
        lifecycle, endpoints=endpoints, steps=dataclasses.replace(lifecycle.steps, endpoints=endpoints)
    )


def _are_ids(ids: Sequence[int]) -> bool:
    return len(set(ids)) == len(ids) and not {ABSENT, 0} & set(ids)
