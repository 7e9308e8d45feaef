"""The client-side files of a run directory, those that upstream's analyzers read among them (docs/upstream.md)."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from analyzers.rundir import RequestRecord, RunDirectory, write_json_atomically
from dsv4bench.load.engine_target import SentRequest
from dsv4bench.model.tokenizer import Tokenizer
from dsv4bench.tracing.append import open_append, write_all

_NS_PER_S = 1e9
_COMPLETED: Final = frozenset({"length", "stop"})
_NO_LINKS: Final = frozenset({errno.ENOTSUP, errno.ENOSYS})
"""What file systems without links answer, beside EPERM."""


def record_of(sent: SentRequest, prefix_reuse: bool) -> RequestRecord:
    """What is kept of a request to the embedded engine, finished or not; `prefix_reuse` says whether its cached tokens
    mean anything.
    """
    handle, prompt = sent.handle, sent.request.prompt
    text = Tokenizer().decode(handle.token_ids) if prompt.text is not None else None
    error = describe(handle.error) if handle.error is not None else sent.error
    return RequestRecord(
        request_id=handle.request.request_id,
        rank=handle.rank,
        prompt_token_ids=list(prompt.token_ids),
        output_token_ids=handle.token_ids,
        send_ns=handle.send_ns,
        token_times_ns=handle.token_times_ns,
        finish_reason=handle.finish_reason,
        accepted=handle.accepted,
        proposed=handle.proposed,
        steps=handle.steps,
        discarded=handle.discarded,
        prefills=handle.prefills,
        preemptions=handle.preemptions,
        cached_tokens=handle.cached_tokens if prefix_reuse else None,
        prompt=prompt.text,
        text=text,
        error=error,
        phase=sent.phase,
        planned_ns=sent.planned_ns,
    )


def describe(error: BaseException) -> str:
    """An error in its own words, or by its name if it has none."""
    return str(error) or type(error).__name__


def write_client_files(
    directory: RunDirectory,
    records: Sequence[RequestRecord],
    speculative_tokens: int,
    profile_level: str | None,
) -> None:
    """Every file of the client's view; `profile_level` is what the serving profiler kept, None where it was off."""
    write_requests(directory.requests, records)
    measured = [record for record in records if record.phase == "measured"]
    write_responses(directory.responses, measured)
    write_prompt_manifest(directory.prompt_manifest, measured)
    write_performance_summary(directory.performance_summary, measured, speculative_tokens, profile_level)


def write_requests(path: Path, records: Sequence[RequestRecord]) -> None:
    """`requests.jsonl`: one record a line, through a rename."""
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    partial.replace(path)


def write_responses(path: Path, records: Sequence[RequestRecord]) -> None:
    """`responses.json`: index, text, token ids, finish reason and both numbers of tokens of each request."""
    responses = [
        {
            "index": index,
            "text": record.text,
            "token_ids": record.output_token_ids,
            "finish_reason": record.finish_reason,
            "prompt_tokens": len(record.prompt_token_ids),
            "completion_tokens": len(record.output_token_ids),
        }
        for index, record in enumerate(records)
    ]
    write_json_atomically(path, responses)


def write_prompt_manifest(path: Path, records: Sequence[RequestRecord]) -> None:
    """`prompt_manifest.json`: index, prompt and token ids of each request, with their number and digest."""
    prompts = [
        {
            "index": index,
            "prompt": record.prompt,
            "rendered_prompt": record.prompt,
            "input_tokens": len(record.prompt_token_ids),
            "token_sha256_12": _digest(record.prompt_token_ids)[:12],
            "token_ids": record.prompt_token_ids,
        }
        for index, record in enumerate(records)
    ]
    write_json_atomically(path, prompts)


def append_request_lines(path: Path, records: Sequence[RequestRecord]) -> None:
    """Add to the server's log what upstream's server says of each request that it completed, in its words."""
    lines = "".join(line for record in records for line in request_lines(record))
    if not lines:
        return
    log = open_append(path)
    try:
        write_all(log, lines.encode())
    finally:
        os.close(log)


def request_lines(record: RequestRecord) -> list[str]:
    """What upstream's server logs of a request: how many of its drafts were accepted, and how long it took.

    Nothing of one that did not complete.
    """
    times = record.token_times_ns
    if record.finish_reason not in _COMPLETED or not times:
        return []
    lines = []
    if record.proposed and record.accepted is not None:
        lines.append(
            f"INFO DeepSeekV4 MTP acceptance for {record.request_id}: accepted={record.accepted} "
            f"proposed={record.proposed} rate={100 * record.accepted / record.proposed:.2f}%\n"
        )
    ttft_s, e2e_s = ((time - record.send_ns) / _NS_PER_S for time in (times[0], times[-1]))
    tokens = len(record.output_token_ids)
    rate = f" ({tokens / e2e_s:.1f} tok/s)" if e2e_s > 0 else ""
    lines.append(
        f"INFO request {record.request_id} finished: prompt={len(record.prompt_token_ids)} out={tokens} "
        f"reason={record.finish_reason} ttft={ttft_s:.3f}s e2e={e2e_s:.3f}s{rate}\n"
    )
    return lines


def link_serving_trace(directory: RunDirectory) -> None:
    """Let the serving trace be found where upstream's analyzers look for it; left out where links cannot be made."""
    try:
        directory.upstream_trace.symlink_to(directory.sa_profile.name, target_is_directory=True)
    except OSError as error:
        if not isinstance(error, PermissionError) and error.errno not in _NO_LINKS:
            raise


def write_performance_summary(
    path: Path, records: Sequence[RequestRecord], speculative_tokens: int, profile_level: str | None
) -> None:
    """`performance_summary.json`: batch totals by upstream's definitions (docs/metrics.md, Requests); null where undefined.

    `effective_tpot_ms` is the batch's elapsed time over the output tokens of one request, prefill included; it is
    defined for requests of equal length only. `profile_level` is what the serving profiler kept; None where it was off.
    The keys from `batch_elapsed_seconds` on are upstream's.
    """
    sends = [record.send_ns for record in records]
    arrivals = [record.token_times_ns[-1] for record in records if record.token_times_ns]
    output_tokens = sum(len(record.output_token_ids) for record in records)
    lengths = {len(record.output_token_ids) for record in records}
    elapsed_s = (max(arrivals) - min(sends)) / _NS_PER_S if arrivals else None
    prompts = [record.prompt_token_ids for record in records]
    prompt_lengths = {len(prompt) for prompt in prompts}
    accepted = sum(record.accepted or 0 for record in records)
    proposed = sum(record.proposed or 0 for record in records)
    summary: dict[str, Any] = {
        "requests": len(records),
        "completed": sum(record.finish_reason in _COMPLETED for record in records),
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
        "batch_elapsed_seconds": elapsed_s,
        "request_count": len(records),
        "prompt_tokens_per_request": next(iter(prompt_lengths)) if len(prompt_lengths) == 1 else None,
        "unique_prompts": len({tuple(prompt) for prompt in prompts}),
        "prompt_token_matrix_sha256": _digest(prompts),
        "tokens_per_request": [len(record.output_token_ids) for record in records],
        "total_output_tokens": output_tokens,
        "throughput_tokens_per_second": output_tokens / elapsed_s if elapsed_s else None,
        "profiler_enabled": profile_level is not None,
        "profile_level": profile_level,
    }
    write_json_atomically(path, summary)


def _digest(token_ids: Sequence[int] | Sequence[Sequence[int]]) -> str:
    """SHA-256 of token ids as compact JSON, as upstream takes it of one prompt and of all of them."""
    return hashlib.sha256(json.dumps(token_ids, separators=(",", ":")).encode()).hexdigest()
