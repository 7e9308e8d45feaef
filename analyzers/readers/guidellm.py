"""Requests that guidellm measured, by the meaning of its figures and not by their names.

guidellm calls `inter_token_latency_ms` what is `tpot` here, and `time_per_output_token_ms` what is `tpot_incl_first`
(docs/metrics.md, Requests). Whatever its records leave out follows from what they say. A report may hold several
benchmarks, each at a load of its own: their requests are no sample of anything together.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

from analyzers.table.arguments import LENIENT_JSON

KEYS = frozenset({"time_to_first_token_ms", "inter_token_latency_ms", "time_per_output_token_ms"})
_CUT = "incomplete"
"""guidellm's word for what was in flight when the time of the benchmark was up."""

_OUTCOMES = {"successful": None, "errored": "errored", _CUT: None}


class OutcomeRecord(NamedTuple):
    """The record of one request of a report, and how it ended."""

    record: dict[str, Any]
    was_cut: bool


def benchmarks_of_document(text: str) -> list[list[OutcomeRecord]] | None:
    """The request records of each benchmark of a guidellm report; None for any other text."""
    if '"benchmarks"' not in text:
        return None
    try:
        document = LENIENT_JSON.decode(text.strip())
    except (RecursionError, ValueError):
        return None
    benchmarks = document.get("benchmarks") if isinstance(document, dict) else None
    if not isinstance(benchmarks, list):
        return None
    return [list(_records(benchmark)) for benchmark in benchmarks]


def _records(benchmark: Any) -> Iterator[OutcomeRecord]:
    requests = benchmark.get("requests") if isinstance(benchmark, dict) else None
    if not isinstance(requests, dict):
        return
    for outcome, error in _OUTCOMES.items():
        for record in requests.get(outcome) or ():
            if isinstance(record, dict):
                told = record if error is None else {**record, "error": record.get("error") or error}
                yield OutcomeRecord(told, outcome == _CUT)


def plain_record(record: dict[str, Any]) -> dict[str, Any]:
    """One guidellm record as a plain request record: times in ms, exactly as far as its figures are.

    Raises:
        ArithmeticError, TypeError, ValueError: one of its figures is no number.
    """
    identity = {"id": record.get("request_id", record.get("id"))}
    if record.get("error") and not KEYS & record.keys():
        return {**identity, "error": record["error"]}
    start = record.get("request_start_time")
    tokens = record.get("output_tokens")
    count = tokens if isinstance(tokens, int) and not isinstance(tokens, bool) else 0
    ttft, gap, per_token = (
        None if record.get(key) is None else Decimal(str(record[key]))
        for key in ("time_to_first_token_ms", "inter_token_latency_ms", "time_per_output_token_ms")
    )
    latency = None if per_token is None or count < 1 else per_token * count
    if ttft is None and latency is not None and gap is not None:
        ttft = latency - gap * (count - 1)
    if ttft is not None and count >= 1 and (gap is not None or count == 1):
        latency = ttft + (gap or 0) * (count - 1)
    plain = {
        **identity,
        "submit_ms": None if start is None else Decimal(str(start)) * 1000,
        "ttft_ms": ttft,
        "e2e_ms": latency,
        "output_tokens": tokens,
        "error": record.get("error"),
    }
    return {key: value for key, value in plain.items() if value is not None}
