"""Requests that AIPerf measured (`profile_export.jsonl`), by the meaning of its figures and not by their names.

A line is a request: when it was sent by the wall clock, what it measured with units, and the error of one that failed. Its
`inter_token_latency` is what is `tpot` here (docs/metrics.md, Who calls what TPOT and ITL); it follows from the others.
"""

from __future__ import annotations

from decimal import Decimal
from itertools import accumulate
from typing import Any

from analyzers.readers.request_timing import BadRequestError, RequestTiming, check_order, count_of, shown

_UNITS_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "sec": 10**9, "s": 10**9}
_TOKENS = ("usage_completion_tokens", "output_sequence_length")
"""The server's count, where it was asked for; else that of the text tokenized again."""


def is_aiperf(record: dict[str, Any]) -> bool:
    """Whether an object is a request of AIPerf's."""
    metadata = record.get("metadata")
    return (
        isinstance(metadata, dict)
        and isinstance(record.get("metrics"), dict)
        and "benchmark_phase" in metadata
    )


def aiperf_timing(record: dict[str, Any], number: int) -> RequestTiming:
    """What the `number`th record says.

    Raises:
        BadRequestError: a figure of it is none.
    """
    metadata, metrics = record["metadata"], record["metrics"]
    name = metadata.get("x_request_id")
    start = metadata.get("request_start_ns")
    if isinstance(start, bool) or not isinstance(start, int):
        raise BadRequestError(f"{shown(start)} is no time of sending")
    error = record.get("error")
    ttft, latency = _time(metrics, "time_to_first_token"), _time(metrics, "request_latency")
    gaps = _times(metrics, "inter_chunk_latency")
    tokens = [_tokens(metrics, key) for key in _TOKENS]
    counted = next((count for count in tokens if count is not None), None)
    first = start + ttft if ttft is not None else None
    last = start + latency if latency is not None else None
    chunks = None
    if first is not None and gaps is not None and counted == len(gaps) + 1:
        # As many chunks as tokens: each brought one. How many another number of chunks brought, nobody says.
        chunks = tuple((time, 1) for time in accumulate([first, *gaps]))
        last = chunks[-1][0]
    check_order([start, first, last])
    return RequestTiming(
        request_id=str(number if name is None else name),
        phase="warmup" if metadata["benchmark_phase"] == "warmup" else "measured",
        send_ns=start,
        chunks=chunks,
        first_ns=first,
        # Without streaming the latency is all there is: when the first token came, nobody saw.
        last_ns=last,
        output_tokens=counted,
        # Equal, they are one count under two names.
        retokenized=tokens[1] if tokens[0] not in (None, tokens[1]) else None,
        error=_error(error) if error else None,
        identity=None if name is None else ("str", str(name)),
        was_cut=metadata.get("was_cancelled") is True and not error,
    )


def _error(error: Any) -> str:
    if not isinstance(error, dict):
        return str(error)
    parts = (error.get("code"), error.get("type"), error.get("message"))
    return " ".join(str(part) for part in parts if part) or "failed"


def _time(metrics: dict[str, Any], key: str) -> int | None:
    values = _times(metrics, key)
    return values[0] if values else None


def _times(metrics: dict[str, Any], key: str) -> list[int] | None:
    """One value or several in ns; None where the record has none."""
    metric = metrics.get(key)
    if metric is None:
        return None
    value, unit = (metric.get("value"), metric.get("unit")) if isinstance(metric, dict) else (metric, None)
    if unit not in _UNITS_NS:
        raise BadRequestError(f"{key} has the unit {shown(unit)}")
    return [_ns(item, _UNITS_NS[unit], key) for item in (value if isinstance(value, list) else [value])]


def _ns(value: Any, scale: int, key: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise BadRequestError(f"{shown(value)} in {key} is no time")
    number = Decimal(value)
    if not number.is_finite() or number.adjusted() > 18:
        raise BadRequestError(f"{shown(value)} in {key} is no time")
    return int((number * scale).to_integral_value())


def _tokens(metrics: dict[str, Any], key: str) -> int | None:
    metric = metrics.get(key)
    value = metric.get("value") if isinstance(metric, dict) else None
    return None if value is None else count_of(int(value) if value == int(value) else value)
