"""Tables of what only some inputs have: traces of one rank each, busy threads, small files of figures."""

from __future__ import annotations

from collections.abc import Iterable

from analyzers.lanes import LaneFigures
from analyzers.report.model import Report
from analyzers.report.text import UNAVAILABLE, Table, number

LANES_SHOWN = 20


def input_tables(report: Report, *, full: bool) -> Iterable[Table]:
    """The tables that this report has figures for; threads only in full, or where their spans overlap."""
    if report.rank_starts or report.clocks.method != "one host clock":
        yield _rank_starts(report)
    overlapping = [lane for lane in report.lanes if lane.overlaps]
    if overlapping or (full and report.lanes):
        yield _lanes(report, overlapping)
    for item in report.observations:
        rows = [
            [name, UNAVAILABLE if value is None else f"{value:g}"] for name, value in item.figures.items()
        ]
        yield Table(
            f"{item.kind.capitalize()}: {item.path}", ["figure", "value"], rows, [f"n={item.n}", *item.notes]
        )


def _rank_starts(report: Report) -> Table:
    rows = [
        [
            entry.name,
            str(entry.skew.n),
            number(entry.skew.mean),
            number(entry.skew.p50),
            number(entry.skew.max),
        ]
        for entry in report.rank_starts
    ]
    clocks = report.clocks
    if clocks.method == "not aligned":
        note = "the files name no time base: figures across ranks are withheld"
    else:
        wall = "how well the hosts' wall clocks agree is unknown"
        uncertainty = wall if clocks.uncertainty_ns is None else f"uncertainty {clocks.uncertainty_ns} ns"
        note = f"clocks aligned by {clocks.method}; {uncertainty}"
    return Table("Start skew across ranks (ms)", ["span", "n", "mean", "p50", "max"], rows, [note])


def _lanes(report: Report, overlapping: list[LaneFigures]) -> Table:
    shown = [lane for lane in report.lanes if lane.overlaps or not overlapping][:LANES_SHOWN]
    rows = [
        [f"{lane.pid} / {lane.tid}", str(lane.spans), number(lane.busy_ns), str(lane.overlaps)]
        for lane in shown
    ]
    notes = [
        f"overlap: {first} and {second} on {lane.pid} / {lane.tid}"
        for lane in shown
        if len(lane.first_overlap) == 2
        for first, second in [lane.first_overlap]
    ]
    return Table(
        "Threads: busy time by union (ms)", ["pid / tid", "spans", "busy", "overlaps"], rows, notes[:5]
    )
