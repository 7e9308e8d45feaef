"""Requests in the detailed results of `vllm bench serve` (--save-detailed) and SGLang's bench_serving (--output-details).

Both keep one array for each figure, in seconds, an entry a request: `ttfts`, `itls` (the gaps between events, a list each),
`output_lens`, `input_lens`, `errors`, newer ones `start_times`. vLLM writes one document, SGLang a line for every run: each
is a benchmark by itself. Their ITL is a gap between events, whatever tokens these hold (docs/metrics.md, Who calls what TPOT
and ITL).
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from itertools import accumulate
from typing import Any

from analyzers.readers.request_timing import BadRequestError, RequestTiming, check_order, count_of, shown
from analyzers.table.arguments import LENIENT_JSON

_ARRAYS = frozenset({"ttfts", "itls", "output_lens"})
_ENTRY = "bench_entry"
_SECOND_NS = 10**9


def is_bench_result(record: Any) -> bool:
    """Whether an object is such a result."""
    return isinstance(record, dict) and all(isinstance(record.get(key), list) for key in _ARRAYS)


def is_bench_entry(record: dict[str, Any]) -> bool:
    """Whether an object is what `entries_of_document` makes of a request."""
    return _ENTRY in record


def entries_of_document(text: str) -> list[list[dict[str, Any]]] | None:
    """The requests of each run in a document or in lines; None for any other text."""
    if '"ttfts"' not in text:
        return None
    runs = []
    for line in _documents(text):
        try:
            document = LENIENT_JSON.decode(line)
        except (RecursionError, ValueError):
            return None
        if not is_bench_result(document):
            return None
        runs.append(list(_entries(document)))
    return runs or None


def _documents(text: str) -> list[str]:
    """The whole text where it is one document, else its lines."""
    stripped = text.strip()
    try:
        _, end = LENIENT_JSON.raw_decode(stripped)
    except (RecursionError, ValueError):
        return [stripped]
    return [stripped] if end == len(stripped) else [line for line in stripped.splitlines() if line.strip()]


def _entries(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    arrays = {
        key: value
        for key in (*_ARRAYS, "errors", "start_times", "input_lens")
        if isinstance(value := document.get(key), list) and value
    }
    lengths = {key: len(value) for key, value in arrays.items()}
    for number in range(max(lengths.values(), default=0)):
        entry = {key: value[number] for key, value in arrays.items() if number < len(value)}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{key} {length}" for key, length in sorted(lengths.items()))
            entry["lengths"] = told
        yield {_ENTRY: entry}


def bench_timing(record: dict[str, Any], number: int) -> RequestTiming:
    """What the `number`th request of a run says.

    Raises:
        BadRequestError: a figure of it is none, or the arrays of the run have different lengths.
    """
    entry = record[_ENTRY]
    if "lengths" in entry:
        raise BadRequestError(f"the arrays have different lengths: {entry['lengths']}")
    tokens = count_of(entry["output_lens"])
    error = str(entry["errors"]) if entry.get("errors") else None
    if error is None and not tokens:
        error = "no output"
    start = _ns(entry["start_times"], "start_times") if entry.get("start_times") is not None else None
    ttft, gaps = _ns(entry["ttfts"], "ttfts"), entry["itls"]
    if not isinstance(gaps, list):
        raise BadRequestError(f"{shown(gaps)} in itls is no list")
    send = start or 0
    events = list(accumulate([send + ttft, *(_ns(gap, "itls") for gap in gaps)]))
    check_order([send, *events])
    answered = error is None
    return RequestTiming(
        request_id=str(number),
        phase="measured",
        send_ns=send,
        # As many events as tokens: each brought one. How many another number of them brought, nobody says.
        chunks=tuple((time, 1) for time in events) if answered and len(events) == tokens else None,
        first_ns=events[0] if answered else None,
        last_ns=events[-1] if answered else None,
        output_tokens=tokens,
        error=error,
        is_placed=start is not None,
    )


def _ns(value: Any, key: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise BadRequestError(f"{shown(value)} in {key} is no time")
    number = Decimal(value)
    if not number.is_finite() or not 0 <= number < _SECOND_NS:
        raise BadRequestError(f"{shown(value)} in {key} is no time")
    return int((number * _SECOND_NS).to_integral_value())
