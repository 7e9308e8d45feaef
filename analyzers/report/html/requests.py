"""The request table of the page."""

from __future__ import annotations

from analyzers.charts.series import RequestColumns
from analyzers.text.tables import CellKind, Column, Row, Table


def requests_table(columns: RequestColumns) -> Table:
    """One request a row, in order of sending."""
    rows: list[Row] = [
        [
            columns.id[index],
            columns.rank[index],
            columns.output_tokens[index],
            columns.ttft_ns[index],
            columns.tpot_ns[index],
            columns.e2e_ns[index],
            _drafts(columns.accepted[index], columns.proposed[index]),
            columns.error[index],
        ]
        for index in range(len(columns.id))
    ]
    headings = [
        Column("request"),
        Column("rank", CellKind.COUNT),
        Column("output tokens", CellKind.COUNT),
        Column("TTFT", CellKind.TIME),
        Column("tpot", CellKind.TIME),
        Column("E2E", CellKind.TIME),
        Column("drafts accepted", CellKind.FIGURES),
        Column("error", absent=""),
    ]
    if not any(columns.error):
        headings, rows = headings[:-1], [row[:-1] for row in rows]
    notes = []
    if columns.requests > len(rows):
        notes.append(f"the {len(rows)} requests with the longest E2E, of {columns.requests}")
    return Table("Measured requests (ms)", headings, rows, notes)


def _drafts(accepted: int | None, proposed: int | None) -> str | None:
    return None if accepted is None or proposed is None else f"{accepted} of {proposed}"
