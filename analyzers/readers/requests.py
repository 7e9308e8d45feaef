"""Request records (requests.jsonl): our own, and the plainer shapes that other clients write."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import msgspec

from analyzers.readers.files import OpenedFile
from analyzers.readers.guidellm import KEYS as GUIDELLM_KEYS
from analyzers.readers.guidellm import plain_record, requests_of_document
from analyzers.readers.json_objects import decode_text, first_objects, iterate_lines
from analyzers.readers.load_report import IssueCounter, LoadReport
from analyzers.rundir import RequestRecord

Phase = Literal["warmup", "measured"]

_TIMING_KEYS = frozenset(
    {"send_ns", "submit_ms", "token_times_ns", "chunks", "ttft_ms", "first_token_ms", "end_ms"}
)
_MILLISECOND_NS = 1_000_000
_LATEST_NS = 2**62


@dataclass(frozen=True)
class RequestTiming:
    """What a client saw of one request. Times are ns of the client's clock; None is what the record does not say."""

    request_id: str
    phase: Phase
    send_ns: int | None = None
    chunks: tuple[tuple[int, int], ...] | None = None
    """(arrival, tokens) of every output event, in order; None when only the first and last times are known."""
    first_ns: int | None = None
    last_ns: int | None = None
    output_tokens: int | None = None
    first_chunk_tokens: int = 1
    rank: int | None = None
    accepted: int | None = None
    proposed: int | None = None
    steps: int | None = None
    discarded: int | None = None
    prefills: int | None = None
    cached_tokens: int | None = None
    retokenized: int | None = None
    """Output tokens by tokenizing the text again, where a record says so: to compare, for no figure."""
    error: str | None = None


@dataclass(frozen=True)
class Requests:
    """All requests of one file. `has_phases` tells whether the file itself separates warm-up from measurement."""

    timings: list[RequestTiming]
    report: LoadReport
    has_phases: bool


class _BadRequestError(ValueError):
    """A record whose fields contradict each other."""


def is_request(record: Any) -> bool:
    """Whether a JSON object looks like a request record of a known shape."""
    if not isinstance(record, dict):
        return False
    keys = record.keys()
    is_outcome = bool(keys & {"error", "success"}) and bool(keys & {"id", "request_id"})
    return (
        bool(keys & (_TIMING_KEYS | GUIDELLM_KEYS))
        or is_outcome
        or isinstance(record.get("benchmarks"), list)
    )


def looks_like(opened: OpenedFile) -> bool:
    """Whether a file begins with a request record, or with a document that holds some."""
    text = opened.first_megabyte().removeprefix(b"\xef\xbb\xbf").lstrip().decode(errors="replace")
    # Most often the first line is the first object; a whole document may be one long object instead.
    starts = (text, *text.split("\n")[1:])
    return text.startswith("{") and any(map(is_request, first_objects(starts)))


def read(opened: OpenedFile) -> Requests:
    """Read a file of request records; see `read_requests`."""
    return read_requests(opened.whole(), opened.name, issues=opened.issues)


def read_requests(data: bytes, path: str, *, issues: IssueCounter | None = None) -> Requests:
    """Read request records: one JSON object a line, or a guidellm report.

    A record that cannot be used is counted, never guessed at.
    """
    counter = issues if issues is not None else IssueCounter()
    text = decode_text(data, counter)
    timings = []
    records = 0
    has_phases = False
    document = requests_of_document(text)
    lines: Iterable[tuple[str, str]] = (
        [(f"request {number}", json.dumps(record)) for number, record in enumerate(document, 1)]
        if document is not None
        else ((f"line {number}", line) for number, line in iterate_lines(text, counter, is_request))
    )
    for where, line in lines:
        records += 1
        try:
            record = json.loads(line, parse_float=Decimal)
            has_phases |= "phase" in record
            timings.append(_timing(line, record, records))
        except (
            _BadRequestError,
            msgspec.DecodeError,
            RecursionError,
            ValueError,
            TypeError,
            ArithmeticError,
        ) as error:
            counter.add("bad_request", f"{where}: {error}", lost=1)
    report = LoadReport(
        path=path,
        format="requests",
        records=records + counter.lost("bad_line"),
        parsed=len(timings),
        issues=counter.issues(),
    )
    return Requests(timings=timings, report=report, has_phases=has_phases)


def _timing(line: str, record: dict[str, Any], number: int) -> RequestTiming:
    if "token_times_ns" in record:
        return _own(line)
    return _plain(plain_record(record) if GUIDELLM_KEYS & record.keys() else record, number)


def _own(line: str) -> RequestTiming:
    record = msgspec.json.decode(line, type=RequestRecord)
    times = record.token_times_ns
    if len(times) != len(record.output_token_ids):
        raise _BadRequestError(f"{len(record.output_token_ids)} output tokens but {len(times)} arrival times")
    counts = (record.accepted, record.proposed, record.steps, record.discarded, record.prefills)
    for count in (*counts, record.cached_tokens):
        if count is not None:
            _count(count)
    chunks = _grouped(times)
    _check_order([record.send_ns, *times])
    return RequestTiming(
        request_id=record.request_id,
        phase=record.phase,
        send_ns=record.send_ns,
        chunks=chunks,
        first_ns=times[0] if times else None,
        last_ns=times[-1] if times else None,
        output_tokens=len(times),
        first_chunk_tokens=chunks[0][1] if chunks else 1,
        rank=record.rank,
        accepted=record.accepted,
        proposed=record.proposed,
        steps=record.steps,
        discarded=record.discarded,
        prefills=record.prefills,
        cached_tokens=record.cached_tokens,
        error=record.error,
    )


def _grouped(times: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Tokens of one step share one arrival: equal neighbouring times are one event."""
    chunks: list[tuple[int, int]] = []
    for time in times:
        if chunks and chunks[-1][0] == time:
            chunks[-1] = (time, chunks[-1][1] + 1)
        else:
            chunks.append((time, 1))
    return tuple(chunks)


def _plain(record: dict[str, Any], number: int) -> RequestTiming:
    if not is_request(record):
        raise _BadRequestError("no request record of a known shape")
    send = _ns(record.get("submit_ms", 0))
    first, last = _ns(record.get("first_token_ms")), _ns(record.get("end_ms"))
    if first is None and record.get("ttft_ms") is not None and send is not None:
        first = send + (_ns(record["ttft_ms"]) or 0)
    chunks = None
    retokenized = record.get("retokenized_tokens")
    if isinstance(record.get("chunks"), list):
        # A chunk without tokens (the role that opens a chat, a word cut in two) is no output event.
        arrivals = tuple(map(_chunk, record["chunks"]))
        chunks = tuple(chunk for chunk in arrivals if chunk[1] > 0)
        _check_order([time for time, _ in arrivals])
    tokens = _output_tokens(record, chunks)
    if chunks is not None and isinstance(record.get("output_token_ids"), list):
        counted = sum(count for _, count in chunks)
        if counted != tokens:
            # The chunks were counted by their text: their times hold, their counts do not.
            retokenized, chunks = counted, None
            first, last = (arrivals[0][0], arrivals[-1][0]) if arrivals else (first, last)
    if chunks:
        first, last = chunks[0][0], chunks[-1][0]
    _check_order([send, first, last])
    return RequestTiming(
        request_id=str(record.get("request_id", record.get("id", number))),
        phase="warmup" if record.get("phase") == "warmup" else "measured",
        send_ns=send,
        chunks=chunks,
        first_ns=first,
        last_ns=last,
        output_tokens=tokens,
        first_chunk_tokens=chunks[0][1] if chunks else 1,
        retokenized=None if retokenized is None else _count(retokenized),
        error=_error(record),
    )


def _error(record: dict[str, Any]) -> str | None:
    """Why the request failed; None where it did not, which some clients write as an empty text."""
    if record.get("error"):
        return str(record["error"])
    return "not successful" if record.get("success") is False else None


def _chunk(item: Any) -> tuple[int, int]:
    if not isinstance(item, dict):
        raise _BadRequestError(f"{item!r} is no output event")
    return _required_ns(item.get("t_ms")), _count(item.get("tokens"))


def _output_tokens(record: dict[str, Any], chunks: tuple[tuple[int, int], ...] | None) -> int | None:
    """Token ids count, else the tokens of the chunks, else the number given; text is never re-tokenized."""
    if isinstance(record.get("output_token_ids"), list):
        return len(record["output_token_ids"])
    if chunks is not None:
        return sum(tokens for _, tokens in chunks)
    return _count(record["output_tokens"]) if record.get("output_tokens") is not None else None


def _ns(milliseconds: Any) -> int | None:
    return None if milliseconds is None else _required_ns(milliseconds)


def _required_ns(milliseconds: Any) -> int:
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | Decimal):
        raise _BadRequestError(f"{milliseconds!r} is no time in ms")
    value = Decimal(milliseconds)
    if not value.is_finite() or value.adjusted() > 12:
        raise _BadRequestError(f"{milliseconds} ms is no time")
    return int((value * _MILLISECOND_NS).to_integral_value())


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise _BadRequestError(f"{value!r} is no number of tokens")
    return value


def _check_order(times: Iterable[int | None]) -> None:
    known = [time for time in times if time is not None]
    if known != sorted(known):
        raise _BadRequestError("its times run backwards")
    if known and (known[0] < -_LATEST_NS or known[-1] > _LATEST_NS):
        raise _BadRequestError("its times are out of range")
