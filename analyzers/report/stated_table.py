"""The figures that the server and its files state, as a table: each with the files that say it."""

from __future__ import annotations

from analyzers.clients.stated import StatedFigure, StatedFigures, StatedValue
from analyzers.text.figures import UNAVAILABLE, percent
from analyzers.text.tables import Column, Row, Table
from analyzers.text.words import counted, listed

TITLES = {
    "requests": "requests",
    "prompt_tokens": "prompt tokens",
    "output_tokens": "output tokens",
    "ttft": "TTFT, by the server",
    "e2e": "E2E, by the server",
    "mtp_accepted": "MTP drafts accepted",
    "mtp_proposed": "MTP drafts proposed",
    "elapsed": "elapsed",
    "throughput": "throughput",
    "effective_tpot": "effective TPOT",
}
"""What people read for each figure."""


def stated_table(stated: StatedFigures) -> Table:
    """Figure, value and source of whatever is stated, or contradicted."""
    rows: list[Row] = []
    for name, title in TITLES.items():
        figure = getattr(stated, name)
        if name == "mtp_proposed" and not figure.contradictions:
            continue
        if figure.contradictions:
            rows.append([title, f"{UNAVAILABLE}: {disagreement(name, figure.contradictions)}", ""])
        elif figure.value is not None:
            rows.append([title, _value(name, figure, stated), ", ".join(figure.sources)])
    columns = [Column("figure"), Column("value"), Column("source")]
    return Table("Requests, as stated", columns, rows, ["no client measured them"])


def disagreement(name: str, values: list[StatedValue]) -> str:
    """`20 by server.log, 19 by responses.json`; of the first request where it is said of several."""
    first = [value for value in values if value.request_id == values[0].request_id]
    said = listed([f"{_plain(name, value.value)} by {listed(value.sources)}" for value in first])
    of_whom = f"{first[0].request_id}: " if first[0].request_id is not None else ""
    return f"{of_whom}{said}"


def _value(name: str, figure: StatedFigure, stated: StatedFigures) -> str:
    text = _plain(name, figure.value or 0)
    if name == "mtp_accepted" and stated.mtp_proposed.value is not None:
        text = f"{text} of {stated.mtp_proposed.value:.0f} ({percent(stated.acceptance_rate)})"
    elif name == "effective_tpot":
        text += ", prefill included"
    if name in ("ttft", "e2e") and figure.requests is not None:
        text = f"mean {text} over {counted(figure.requests, 'request')}"
    elif figure.requests is not None and figure.requests != stated.requests.value:
        text += f", over {counted(figure.requests, 'request')}"
    return text


def _plain(name: str, value: float) -> str:
    if name in ("ttft", "e2e", "elapsed", "effective_tpot"):
        return f"{value / 1e6:.3f} ms"
    return f"{value:.1f} tokens/s" if name == "throughput" else f"{value:.0f}"
