"""Tables of what only some inputs have: traces of one rank each, busy threads, small files of figures."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from analyzers.report.model import Report
from analyzers.steps.thread_load import LaneFigures
from analyzers.text.tables import CellKind, Column, Row, Table

LANES_SHOWN = 20
PIDS_SHOWN = 4
_LONGEST_NAME = 60
"""Characters of a name in a note; the tables have the rest."""


def input_tables(report: Report, *, full: bool) -> Iterable[Table]:
    """The tables that this report has figures for; threads only in full, or where their spans overlap.

    Ranks are drawn in full, or where their numbers say more than counting them would.
    """
    if report.ranks.devices and (full or _is_worth_a_table(report)):
        yield _ranks(report)
    if full or len(report.clocks.hosts) > 1:
        yield from _hosts(report)
    if report.rank_starts:
        yield _rank_starts(report)
    overlapping = [lane for lane in report.lanes if lane.overlaps]
    if overlapping or (full and report.lanes):
        yield _lanes(report, overlapping)
    for item in report.observations:
        columns = [Column("figure"), Column("value", CellKind.NUMBER, "{:g}".format)]
        yield Table(
            f"{item.kind.capitalize()}: {item.path}",
            columns,
            list(item.figures.items()),
            [f"n={item.n}", *item.notes],
        )


def _rank_starts(report: Report) -> Table:
    rows: list[Row] = [
        [entry.name, entry.skew.n, entry.skew.mean, entry.skew.p50, entry.skew.max]
        for entry in report.rank_starts
    ]
    columns = [
        Column("span"),
        Column("n", CellKind.COUNT, dispensable=3),
        Column("mean", CellKind.TIME, dispensable=2),
        Column("p50", CellKind.TIME, dispensable=1),
        Column("max", CellKind.TIME),
    ]
    return Table("Start skew across ranks (ms)", columns, rows, [report.clocks.statement])


def _is_worth_a_table(report: Report) -> bool:
    """Whether a device has another number than its rank, a rank is in several places, or its clock is not known."""
    devices = report.ranks.devices
    return (
        any(entry.logical_device not in (None, entry.rank) for entry in devices)
        or any(entry.physical_device is not None for entry in devices)
        or len({entry.rank for entry in devices}) < len(devices)
        or report.clocks.method not in ("one host clock", "one file")
    )


def _ranks(report: Report) -> Table:
    rows: list[Row] = [
        [
            entry.rank,
            entry.logical_device,
            entry.physical_device,
            ", ".join(entry.pids[:PIDS_SHOWN]) + (", ..." if len(entry.pids) > PIDS_SHOWN else ""),
            PurePath(entry.file).name,
            entry.named_by,
        ]
        for entry in report.ranks.devices
    ]
    columns = [
        Column("rank", CellKind.COUNT),
        Column("logical device", CellKind.COUNT),
        Column("physical device", CellKind.COUNT),
        Column("pid"),
        Column("file"),
        Column("rank from"),
    ]
    return Table("Devices of the ranks", columns, rows, [report.clocks.statement])


def _hosts(report: Report) -> Iterable[Table]:
    """The clocks of the hosts, where there are anchors."""
    hosts = report.clocks.hosts
    if not any(host.anchors for host in hosts):
        return
    rows: list[Row] = [
        [
            index,
            len(host.processes),
            host.anchors,
            host.disagreement_ns,
            host.drift_ppm,
            host.shift_ns,
        ]
        for index, host in enumerate(hosts)
    ]
    notes = [f"host {index}: {', '.join(host.processes[:PIDS_SHOWN])}" for index, host in enumerate(hosts)]
    columns = [
        Column("host", CellKind.COUNT),
        Column("processes", CellKind.COUNT),
        Column("anchors", CellKind.COUNT),
        Column("disagreement", CellKind.TIME),
        Column("drift (ppm)", CellKind.NUMBER),
        Column("shift", CellKind.TIME),
    ]
    yield Table("Clocks (ms)", columns, rows, [report.clocks.statement, *notes])


def _lanes(report: Report, overlapping: list[LaneFigures]) -> Table:
    shown = [lane for lane in report.lanes if lane.overlaps or not overlapping][:LANES_SHOWN]
    rows: list[Row] = [
        [f"{lane.pid} / {lane.tid}", lane.spans, lane.busy_ns, lane.overlaps] for lane in shown
    ]
    notes = [
        f"overlap: {_cut(first)} and {_cut(second)} on {lane.pid} / {lane.tid}"
        for lane in shown
        if len(lane.first_overlap) == 2
        for first, second in [lane.first_overlap]
    ]
    columns = [
        Column("pid / tid"),
        Column("spans", CellKind.COUNT),
        Column("busy", CellKind.TIME),
        Column("overlaps", CellKind.COUNT),
    ]
    return Table("Threads: busy time by union (ms)", columns, rows, notes[:5])


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 3] + "..."
