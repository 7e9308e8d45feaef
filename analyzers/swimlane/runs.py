"""The rank side: every run (a `chip.run` root and its spans) on the lane of its slot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from analyzers.readers.strace import ROOT
from analyzers.swimlane.model import Slice, Track
from analyzers.swimlane.packing import nest_each, pack
from analyzers.table.spans import ABSENT, Clock, Lane, SpanTable

RUNNER_RUN = f"{ROOT}.runner_run"

DEVICE_WITHOUT_RUN = "device spans without a runner_run of their own"
DEVICE_TOO_LONG = "device spans longer than their runner_run"

RunKey = tuple[tuple[str, int | str | None], int]


@dataclass(slots=True)
class DrawnRun:
    """One rank's run. `host` holds the root and every host span of the same invocation."""

    rank: int
    slot: int
    dispatch_id: int
    lane: Lane
    root: Slice
    host: list[Slice] = field(default_factory=list)
    device: list[Slice] = field(default_factory=list)

    @property
    def runner_run(self) -> Slice | None:
        """The span in which the rank's program ran."""
        return next((item for item in self.host if item.name == RUNNER_RUN), None)


def collect_runs(
    spans: SpanTable, slices: Mapping[int, Slice], left_out: Counter[str]
) -> tuple[list[DrawnRun], set[int]]:
    """Gather the runs, and the rows that belong to them.

    A span belongs to the root of the same (process, invocation); where roots share one, to the root that
    holds its start. Device spans are laid at the start of their run's runner_run, for their clock has an
    origin of its own; those that cannot be are counted in `left_out`.
    """
    runs: dict[RunKey, list[DrawnRun]] = {}
    used: set[int] = set()
    for row in np.flatnonzero(spans.named(ROOT)).tolist():
        if row in slices:
            run = DrawnRun(
                rank=int(spans.rank[row]),
                slot=int(spans.slot[row]),
                dispatch_id=int(spans.dispatch_id[row]),
                lane=spans.lane_of(row),
                root=slices[row],
                host=[slices[row]],
            )
            runs.setdefault(_key(spans, row), []).append(run)
            used.add(row)
    device_rows: dict[RunKey, list[int]] = {}
    for row in np.flatnonzero(spans.where_name(_is_chip) & (spans.invocation != ABSENT)).tolist():
        key = _key(spans, row)
        if spans.clock[row] == Clock.DEVICE:
            device_rows.setdefault(key, []).append(row)
        elif row in slices and row not in used:
            owner = _holding(runs.get(key, ()), slices[row])
            if owner is not None:
                owner.host.append(slices[row])
                used.add(row)
    for key, rows in device_rows.items():
        _lay_device_spans(spans, rows, runs.get(key, []), left_out)
    return [run for group in runs.values() for run in group], used


def run_tracks(runs: list[DrawnRun]) -> list[Track]:
    """Lay the runs of one rank out: a lane a slot, device spans below it, more lanes where runs overlap."""
    by_slot: dict[int, list[DrawnRun]] = {}
    for run in runs:
        by_slot.setdefault(run.slot, []).append(run)
    tracks: list[Track] = []
    for slot, slot_runs in sorted(by_slot.items()):
        label = "run" if slot == ABSENT else f"slot {slot_runs[0].root.args.get('slot', slot)}"
        run_of = {id(run.host): run for run in slot_runs}
        for index, lane in enumerate(pack([run.host for run in slot_runs])):
            name = label if index == 0 else f"{label}, overlapping {index}"
            tracks += _named(name, nest_each(lane))
            device = [run_of[id(unit)].device for unit in lane]
            tracks += _named(f"{name}, device", nest_each(device))
    return tracks


def _named(name: str, lanes: list[list[Slice]]) -> list[Track]:
    return [
        Track(name if index == 0 else f"{name} ({index + 1})", slices=lane)
        for index, lane in enumerate(lanes)
    ]


def _is_chip(name: str) -> bool:
    return name.startswith(ROOT + ".")


def _key(spans: SpanTable, row: int) -> RunKey:
    return spans.lane_of(row).process, int(spans.invocation[row])


def _holding(runs: list[DrawnRun] | tuple[()], item: Slice) -> DrawnRun | None:
    if len(runs) == 1:
        return runs[0]
    return next((run for run in runs if run.root.start_ns <= item.start_ns <= run.root.end_ns), None)


def _lay_device_spans(
    spans: SpanTable, rows: list[int], runs: list[DrawnRun], left_out: Counter[str]
) -> None:
    runner = runs[0].runner_run if len(runs) == 1 else None
    if runner is None:
        left_out[DEVICE_WITHOUT_RUN] += len(rows)
        return
    first_ns = min(int(spans.start_ns[row]) for row in rows)
    last_ns = max(int(spans.end_ns[row]) for row in rows)
    if last_ns - first_ns > runner.end_ns - runner.start_ns:
        left_out[DEVICE_TOO_LONG] += len(rows)
        return
    shift_ns = runner.start_ns - first_ns
    for row in rows:
        start_ns = int(spans.start_ns[row])
        runs[0].device.append(
            Slice(
                name=spans.name_of(row),
                category="device",
                start_ns=start_ns + shift_ns,
                end_ns=start_ns + int(spans.duration_ns[row]) + shift_ns,
                args={
                    **spans.args(row),
                    "placed": "at the start of runner_run",
                    "device_ts_ns": start_ns,
                },
                order=int(spans.depth[row]),
                orig_pid=spans.lane_of(row).pid,
            )
        )
