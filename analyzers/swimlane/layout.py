"""From a span table to a timeline: who is a group, what is drawn, and in which order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from analyzers.measurement import Measured
from analyzers.recording.membership import NO_UNIT, steps_of_units, units_of
from analyzers.swimlane.counters import acceptance, skews
from analyzers.swimlane.dispatches import DrawnDispatch, connect, drawn_dispatches, in_flight, name_callables
from analyzers.swimlane.model import Group, Slice, Timeline
from analyzers.swimlane.requests import request_group
from analyzers.swimlane.runs import DrawnRun, collect_runs, run_tracks
from analyzers.swimlane.threads import thread_tracks
from analyzers.table.processes import lane_ranks
from analyzers.table.spans import ABSENT, ID_COLUMNS, Clock, DeviceIds, Kind, Mask, Source, SpanTable

OWN_CLOCK = "spans on a clock of their own file"
OWN_CLOCK_MARK = ", clock not aligned"

GroupKey = tuple[int, int | str]
"""(0, pid) is a process of the engine, (1, rank) a rank: in this order they are drawn."""


def timeline_of(measured: Measured) -> Timeline:
    """Lay out a measured recording: its spans, and the dispatches, rounds and requests that the report counts.

    Times stay int64 ns of the host clock. Spans without host times keep the clocks of their files. Where those of
    different ranks are not comparable, the names of the ranks say so, and nothing is drawn that compares them.
    """
    recording = measured.recording
    spans, comparable = recording.spans, recording.clocks.comparable
    left_out: Counter[str] = Counter()
    drawable = _drawable(spans, left_out)
    slices = {
        row: _slice(spans, row) for row in np.flatnonzero(drawable & (spans.kind != Kind.INSTANT)).tolist()
    }
    runs, in_runs = collect_runs(spans, slices, left_out)
    name_callables(measured.names, runs)
    dispatches = drawn_dispatches(spans, measured.lifecycle.steps, slices)
    connect(dispatches, runs)
    _name_steps(spans, slices)

    key_of = _GroupKeys(spans)
    runs_of: dict[GroupKey, list[DrawnRun]] = {}
    for run in runs:
        runs_of.setdefault(key_of.of_run(run), []).append(run)
    rows_of: dict[GroupKey, list[int]] = {}
    for row in np.flatnonzero(drawable).tolist():
        if row not in in_runs:
            rows_of.setdefault(key_of.of_row(row), []).append(row)
    dispatches_of: dict[GroupKey, list[DrawnDispatch]] = {}
    for dispatch in dispatches:
        dispatches_of.setdefault(key_of.of_process(dispatch.step.submit.process), []).append(dispatch)
    groups = [
        Group(
            name=key_of.name(key) + ("" if comparable else OWN_CLOCK_MARK),
            labels=key_of.labels(key),
            counters=[in_flight(dispatches_of[key])] if key in dispatches_of else [],
            tracks=run_tracks(runs_of.get(key, [])) + thread_tracks(spans, rows_of.get(key, []), slices),
        )
        for key in sorted(runs_of.keys() | rows_of.keys(), key=_drawing_order)
    ]
    if groups:
        # What all ranks are measured by stands at the top.
        groups[0].counters += skews(measured) if comparable else []
        groups[0].counters += acceptance(recording.requests, dispatches)
        requests = request_group(measured.joined_requests.lives, dispatches)
        groups[:0] = [requests] if requests is not None else []
    return Timeline(groups, dict(left_out))


def _name_steps(spans: SpanTable, slices: Mapping[int, Slice]) -> None:
    """Give every slice of a step the step's id, whether its own span carries it or not."""
    units = units_of(spans)
    steps = steps_of_units(spans, units)
    for row, item in slices.items():
        if units[row] != NO_UNIT and steps[units[row]] != ABSENT:
            item.args.setdefault("step_id", spans.id_of(int(steps[units[row]])))


def _drawing_order(key: GroupKey) -> tuple[int, str, str]:
    """By number, and processes that had one pid in their order."""
    number, _, incarnation = str(key[1]).partition("#")
    return key[0], number.zfill(20), incarnation.zfill(20)


def _drawable(spans: SpanTable, left_out: Counter[str]) -> Mask:
    """Rows on the one clock that is drawn. Device spans are placed run by run."""
    on_host: Mask = spans.clock == Clock.HOST
    on_file: Mask = spans.clock == Clock.FILE
    if not on_host.any():
        return on_file
    if on_file.any():
        left_out[OWN_CLOCK] += int(on_file.sum())
    return on_host


def _slice(spans: SpanTable, row: int) -> Slice:
    args = dict(spans.args(row))
    for column in ID_COLUMNS:
        value = int(getattr(spans, column)[row])
        if value != ABSENT and column != "depth":
            args.setdefault(column, spans.id_of(value))
    start_ns = int(spans.start_ns[row])
    return Slice(
        name=spans.name_of(row),
        category=spans.categories[spans.category[row]],
        start_ns=start_ns,
        end_ns=start_ns + int(spans.duration_ns[row]),
        args=args,
        # Of two spans with equal times the shallower encloses; else the later row, for a span is written
        # at its end.
        order=int(spans.depth[row]) * len(spans) - row,
        orig_pid=spans.lane_of(row).pid,
    )


class _GroupKeys:
    """Which group a row belongs to: its rank's, else its process's."""

    def __init__(self, spans: SpanTable) -> None:
        self._spans = spans
        self._rank_of_pid = _ranks_by_pid(spans)
        self._pids_of_rank: dict[int, set[int]] = {}
        for pid, rank in self._rank_of_pid.items():
            self._pids_of_rank.setdefault(rank, set()).add(pid)
        self._devices_of_rank: dict[int, set[DeviceIds]] = {}
        for lane, rank in lane_ranks(spans) if spans.devices else ():
            device = spans.devices.get(spans.lanes[lane].process, DeviceIds())
            self._devices_of_rank.setdefault(rank, set()).add(device)

    def of_row(self, row: int) -> GroupKey:
        rank = int(self._spans.rank[row])
        return (1, rank) if rank != ABSENT else self.of_process(self._spans.lane_of(row).process)

    def of_run(self, run: DrawnRun) -> GroupKey:
        return (1, run.rank) if run.rank != ABSENT else self.of_process(run.lane.process)

    def of_process(self, process: tuple[str, int | str | None]) -> GroupKey:
        pid = process[1]
        if isinstance(pid, int):
            rank = self._rank_of_pid.get(pid)
            return (0, pid) if rank is None else (1, rank)
        return (0, f"{pid}" if pid is not None else f"(unknown) of {process[0]}")

    def name(self, key: GroupKey) -> str:
        kind, number = key
        if kind == 1:
            pids = self._pids_of_rank.get(int(number), set())
            return f"rank {number}" + (f" (pid {next(iter(pids))})" if len(pids) == 1 else "")
        names = [
            name
            for (_, pid), name in self._spans.process_names.items()
            if pid == number or str(pid) == number
        ]
        return f"{names[0]} (pid {number})" if names else f"process {number}"

    def labels(self, key: GroupKey) -> str:
        """The device of a rank, in words; "" where nothing names it."""
        kind, rank = key
        known = self._devices_of_rank.get(int(rank), set()) if kind == 1 else set()
        numbers = []
        for space, found in (
            ("logical", {device.logical for device in known} - {None}),
            ("physical", {device.physical for device in known} - {None}),
        ):
            if len(found) == 1:
                numbers.append(f"{space} device {found.pop()}")
        return ", ".join(numbers)


def _ranks_by_pid(spans: SpanTable) -> Mapping[int, int]:
    """pid -> rank, for pids that one rank alone has: ranks in containers may share a pid."""
    ranks: dict[int, set[int]] = {}
    rows = (spans.source == Source.STRACE) & (spans.rank != ABSENT) & (spans.pid != ABSENT)
    for pid, rank in zip(spans.pid[rows].tolist(), spans.rank[rows].tolist(), strict=True):
        ranks.setdefault(pid, set()).add(rank)
    return {pid: next(iter(found)) for pid, found in ranks.items() if len(found) == 1}
