"""The client-side files of a run directory: requests, responses and the performance summary."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from analyzers.rundir import RequestRecord, write_json_atomically

_NS_PER_S = 1e9


def write_requests(path: Path, records: Sequence[RequestRecord]) -> None:
    """`requests.jsonl`: one record a line, through a rename."""
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    partial.replace(path)


def write_responses(path: Path, records: Sequence[RequestRecord]) -> None:
    """`responses.json`: index, text, token ids and finish reason of each request."""
    responses = [
        {
            "index": index,
            "text": record.text,
            "token_ids": record.output_token_ids,
            "finish_reason": record.finish_reason,
        }
        for index, record in enumerate(records)
    ]
    write_json_atomically(path, responses)


def write_performance_summary(path: Path, records: Sequence[RequestRecord], speculative_tokens: int) -> None:
    """`performance_summary.json`: batch totals by upstream's definitions (docs/metrics.md, Requests); null where undefined.

    `effective_tpot_ms` is the batch's elapsed time over the output tokens of one request, prefill included; it is
    defined for requests of equal length only.
    """
    sends = [record.send_ns for record in records]
    arrivals = [record.token_times_ns[-1] for record in records if record.token_times_ns]
    output_tokens = sum(len(record.output_token_ids) for record in records)
    lengths = {len(record.output_token_ids) for record in records}
    elapsed_s = (max(arrivals) - min(sends)) / _NS_PER_S if arrivals else None
    accepted = sum(record.accepted or 0 for record in records)
    proposed = sum(record.proposed or 0 for record in records)
    summary: dict[str, Any] = {
        "requests": len(records),
        "completed": sum(record.finish_reason in ("length", "stop") for record in records),
        "output_tokens": output_tokens,
        "elapsed_s": elapsed_s,
        "output_tokens_per_s": output_tokens / elapsed_s if elapsed_s else None,
        "effective_tpot_ms": (
            elapsed_s * 1e3 / next(iter(lengths))
            if elapsed_s and len(lengths) == 1 and lengths != {0}
            else None
        ),
        "mtp": {
            "speculative_tokens": speculative_tokens,
            "accepted": accepted,
            "proposed": proposed,
            "rate": accepted / proposed if proposed else None,
        },
    }
    write_json_atomically(path, summary)
