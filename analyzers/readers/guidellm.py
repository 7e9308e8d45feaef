"""Requests that guidellm measured, by the meaning of its figures and not by their names.

guidellm calls `inter_token_latency_ms` what is `tpot` here, and `time_per_output_token_ms` what is `tpot_incl_first`
(docs/metrics.md, Requests). Whatever its records leave out follows from what they say.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from analyzers.table.arguments import LENIENT_JSON

KEYS = frozenset({"time_to_first_token_ms", "inter_token_latency_ms", "time_per_output_token_ms"})
_OUTCOMES = {"successful": None, "errored": "errored", "incomplete": "incomplete"}


def requests_of_document(text: str) -> list[dict[str, Any]] | None:
    """The request records of a guidellm report in the shape of one a line; None for any other text."""
    if '"benchmarks"' not in text:
        return None
    try:
        document = LENIENT_JSON.decode(text.strip())
    except (RecursionError, ValueError):
        return None
    benchmarks = document.get("benchmarks") if isinstance(document, dict) else None
    if not isinstance(benchmarks, list):
        return None
    return [record for benchmark in benchmarks for record in _records(benchmark)]


def _records(benchmark: Any) -> Iterator[dict[str, Any]]:
    requests = benchmark.get("requests") if isinstance(benchmark, dict) else None
    if not isinstance(requests, dict):
        return
    for outcome, error in _OUTCOMES.items():
        for record in requests.get(outcome) or ():
            if isinstance(record, dict):
                yield record if error is None else {**record, "error": record.get("error") or error}


def plain_record(record: dict[str, Any]) -> dict[str, Any]:
    """One guidellm record as a plain request record: times in ms, exactly as far as its figures are.

    Raises:
        ArithmeticError, TypeError, ValueError: one of its figures is no number.
    """
    if record.get("error") and not KEYS & record.keys():
        return {"id": record.get("request_id", record.get("id")), "error": record["error"]}
    start = Decimal(str(record.get("request_start_time") or 0)) * 1000
    tokens = record.get("output_tokens")
    count = tokens if isinstance(tokens, int) and not isinstance(tokens, bool) else 0
    ttft, gap, per_token = (
        None if record.get(key) is None else Decimal(str(record[key]))
        for key in ("time_to_first_token_ms", "inter_token_latency_ms", "time_per_output_token_ms")
    )
    latency = None if per_token is None or count < 1 else per_token * count
    if ttft is None and latency is not None and gap is not None:
        ttft = latency - gap * (count - 1)
    end = latency
    if ttft is not None and count >= 1 and (gap is not None or count == 1):
        end = ttft + (gap or 0) * (count - 1)
    plain = {
        "id": record.get("request_id", record.get("id")),
        "submit_ms": start,
        "first_token_ms": None if ttft is None else start + ttft,
        "end_ms": None if end is None else start + end,
        "output_tokens": tokens,
        "error": record.get("error"),
    }
    return {key: value for key, value in plain.items() if value is not None}
