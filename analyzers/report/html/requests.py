"""The request table of the page."""

from __future__ import annotations

from analyzers.charts.series import RequestColumns
from analyzers.text.tables import UNAVAILABLE, Table, number


def requests_table(columns: RequestColumns) -> Table:
    """One request a row, in order of sending."""
    rows = [
        [
            columns.id[index],
            _count(columns.rank[index]),
            _count(columns.output_tokens[index]),
            number(columns.ttft_ns[index]),
            number(columns.tpot_ns[index]),
            number(columns.e2e_ns[index]),
            _drafts(columns.accepted[index], columns.proposed[index]),
            columns.error[index] or "",
        ]
        for index in range(len(columns.id))
    ]
    headings = ["request", "rank", "output tokens", "TTFT", "tpot", "E2E", "drafts accepted", "error"]
    if not any(columns.error):
        headings, rows = headings[:-1], [row[:-1] for row in rows]
    notes = []
    if columns.requests > len(rows):
        notes.append(f"the {len(rows)} requests with the longest E2E, of {columns.requests}")
    return Table("Measured requests (ms)", headings, rows, notes)


def _count(value: int | None) -> str:
    return UNAVAILABLE if value is None else str(value)


def _drafts(accepted: int | None, proposed: int | None) -> str:
    return UNAVAILABLE if accepted is None or proposed is None else f"{accepted} of {proposed}"
