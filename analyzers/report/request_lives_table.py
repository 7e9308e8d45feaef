"""The table of requests on their way through the engine: where the time between sending and the last token went."""

from __future__ import annotations

from analyzers.statistics.summary import Summary
from analyzers.steps.request_lives import RequestLives
from analyzers.text.figures import number, percent
from analyzers.text.tables import CellKind, Column, Row, Table
from analyzers.text.words import counted

_COLUMNS = [
    Column("part of E2E"),
    Column("n", CellKind.COUNT),
    Column("mean", CellKind.TIME),
    Column("p50", CellKind.TIME, dispensable=2),
    Column("p95", CellKind.TIME, dispensable=1, absent="-"),
    Column("max", CellKind.TIME),
]


def request_lives_table(lives: RequestLives) -> Table:
    """Part by part, in order; parts that are not known of any request are left out."""
    parts: list[tuple[str, Summary]] = [
        ("send lag (before it)", lives.send_lag),
        ("before the engine", lives.before),
        ("queueing", lives.queueing),
        ("prefill", lives.prefill),
        ("decode", lives.decode),
        ("delivery of the last", lives.delivery_last),
        ("delivery of the first", lives.delivery_first),
    ]
    rows: list[Row] = [
        [name, summary.n, summary.mean, summary.p50, summary.p95, summary.max]
        for name, summary in parts
        if summary.n
    ]
    notes = [f"{lives.joined} of {counted(lives.requests, 'request')} joined to what the engine recorded"]
    if lives.reason is not None:
        notes[0] += f": {lives.reason}"
    if lives.steps.n:
        notes.append(
            f"decode steps that carried a request: mean {lives.steps.mean:.1f}, from {lives.steps.min:g} to "
            f"{lives.steps.max:g}"
        )
    if lives.outside_share is not None:
        notes.append(f"outside of the engine: {percent(lives.outside_share, 2)} of all E2E")
    if lives.delivery_share_of_tpot is not None:
        notes.append(
            f"tpot {number(lives.client_tpot_ns)} ms at the client, {number(lives.engine_tpot_ns)} ms as published: "
            f"{percent(lives.delivery_share_of_tpot, 2)} of it is delivery"
        )
    return Table("Requests through the engine (ms)", _COLUMNS, rows, notes)
