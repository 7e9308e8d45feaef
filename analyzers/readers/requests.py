"""Request records (requests.jsonl): our own, and the plainer shapes that other clients write."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from analyzers.readers.aiperf import aiperf_timing, is_aiperf
from analyzers.readers.bench_results import bench_timing, entries_of_document, is_bench_entry, is_bench_result
from analyzers.readers.files import OpenedFile
from analyzers.readers.guidellm import KEYS as GUIDELLM_KEYS
from analyzers.readers.guidellm import OutcomeRecord, benchmarks_of_document, plain_record
from analyzers.readers.json_objects import decode_text, first_objects, iterate_lines
from analyzers.readers.load_report import IssueCounter, LoadReport
from analyzers.readers.plain_requests import identity_of, is_plain_request, plain_timing
from analyzers.readers.request_timing import (
    BadRequestError,
    RequestTiming,
    check_order,
    count_of,
    shown_name,
)
from analyzers.rundir import RequestRecord


@dataclass(frozen=True)
class Requests:
    """All requests of one benchmark. `has_phases` tells whether the file itself separates warm-up from measurement."""

    timings: list[RequestTiming]
    report: LoadReport
    has_phases: bool


@dataclass(frozen=True)
class RequestFile:
    """What one file holds: one benchmark, save for a report of several."""

    benchmarks: list[Requests]


class _Line(NamedTuple):
    """The text of one record, and where it stands."""

    where: str
    text: str
    is_guidellm: bool = False
    was_cut: bool = False


def is_request(record: Any) -> bool:
    """Whether a JSON object looks like a request record of a known shape."""
    if not isinstance(record, dict):
        return False
    return (
        not GUIDELLM_KEYS.isdisjoint(record)
        or is_plain_request(record)
        or is_aiperf(record)
        or is_bench_result(record)
        or isinstance(record.get("benchmarks"), list)
    )


def looks_like(opened: OpenedFile) -> bool:
    """Whether a file begins with a request record, or with a document that holds some."""
    text = opened.first_megabyte().removeprefix(b"\xef\xbb\xbf").lstrip().decode(errors="replace")
    # Most often the first line is the first object; a whole document may be one long object instead.
    starts = (text, *text.split("\n")[1:])
    return text.startswith("{") and any(map(is_request, first_objects(starts)))


def read(opened: OpenedFile) -> RequestFile:
    """Read a file of request records; see `read_requests`."""
    return read_requests(opened.whole(), opened.name, issues=opened.issues)


def read_requests(data: bytes, path: str, *, issues: IssueCounter | None = None) -> RequestFile:
    """Read request records: one JSON object a line, or a guidellm report.

    A record that cannot be used is counted, never guessed at. One that stands there twice is one request; records of one
    id that differ are none.
    """
    counter = issues if issues is not None else IssueCounter()
    text = decode_text(data, counter)
    runs = entries_of_document(text)
    if runs is not None:
        return _read_runs(runs, path, counter)
    benchmarks = benchmarks_of_document(text)
    if benchmarks is None:
        lines = (_Line(f"line {number}", line) for number, line in iterate_lines(text, counter, is_request))
        return RequestFile([_read_benchmark(lines, path, counter)])
    # What is wrong with the text is told once.
    counters = [counter, *(IssueCounter() for _ in benchmarks[1:])]
    return RequestFile(
        [
            _read_benchmark(_lines_of(records, number, len(benchmarks)), path, own)
            for number, (records, own) in enumerate(zip(benchmarks or [[]], counters, strict=True), 1)
        ]
    )


def _read_runs(runs: Sequence[Sequence[dict[str, Any]]], path: str, counter: IssueCounter) -> RequestFile:
    """The benchmarks of a file with one array for each figure."""
    counters = [counter, *(IssueCounter() for _ in runs[1:])]
    return RequestFile(
        [
            _read_benchmark(
                [
                    _Line(
                        f"request {index}" + (f" of run {number}" if len(runs) > 1 else ""), json.dumps(entry)
                    )
                    for index, entry in enumerate(entries, 1)
                ],
                path,
                own,
            )
            for number, (entries, own) in enumerate(zip(runs, counters, strict=True), 1)
        ]
    )


def _lines_of(records: Sequence[OutcomeRecord], benchmark: int, benchmarks: int) -> list[_Line]:
    of_which = f" of benchmark {benchmark}" if benchmarks > 1 else ""
    return [
        _Line(f"request {number}{of_which}", json.dumps(record), is_guidellm=True, was_cut=was_cut)
        for number, (record, was_cut) in enumerate(records, 1)
    ]


def _read_benchmark(lines: Iterable[_Line], path: str, counter: IssueCounter) -> Requests:
    found: list[tuple[str, RequestTiming]] = []
    records = 0
    has_phases = False
    for line in lines:
        records += 1
        try:
            record = json.loads(line.text, parse_float=Decimal)
            has_phases |= "phase" in record
            found.append((line.where, _timing(line, record, records)))
        except (
            BadRequestError,
            msgspec.DecodeError,
            RecursionError,
            ValueError,
            TypeError,
            ArithmeticError,
        ) as error:
            counter.add("bad_request", f"{line.where}: {error}", lost=1)
    timings = _once(found, counter)
    report = LoadReport(
        path=path,
        format="requests",
        records=records + counter.lost("bad_line"),
        parsed=len(found) - counter.lost("request_id_twice"),
        issues=counter.issues(),
    )
    return Requests(timings=timings, report=report, has_phases=has_phases)


def _once(found: Sequence[tuple[str, RequestTiming]], counter: IssueCounter) -> list[RequestTiming]:
    """Every request once. Which of several records of one id that differ is right, nobody can tell: none is kept."""
    # A warm-up may count its requests from the same number on.
    by_identity: dict[object, list[tuple[str, RequestTiming]]] = defaultdict(list)
    for position, (where, timing) in enumerate(found):
        key = position if timing.identity is None else (timing.phase, timing.identity)
        by_identity[key].append((where, timing))
    kept = []
    for records in by_identity.values():
        first = records[0][1]
        other = next((where for where, timing in records if timing != first), None)
        if other is None:
            kept.append(first)
            for where, _ in records[1:]:
                counter.add("request_repeated", f"{where}: id {first.request_id}")
        else:
            place = f"{other}: id {first.request_id}, as {records[0][0]}"
            counter.add("request_id_twice", place, count=len(records), lost=len(records))
    return kept


def _timing(line: _Line, record: dict[str, Any], number: int) -> RequestTiming:
    if "token_times_ns" in record:
        return _own(line.text, record)
    if is_bench_entry(record):
        return bench_timing(record, number)
    if is_aiperf(record):
        return aiperf_timing(record, number)
    if line.is_guidellm or not GUIDELLM_KEYS.isdisjoint(record):
        return plain_timing(plain_record(record), number, was_cut=line.was_cut)
    if not is_plain_request(record):
        fields = ", ".join(map(shown_name, record))
        raise BadRequestError(f"no request record of a known shape: its fields are {fields or 'none'}")
    return plain_timing(record, number)


def _own(line: str, fields: dict[str, Any]) -> RequestTiming:
    record = msgspec.json.decode(line, type=RequestRecord)
    times = record.token_times_ns
    if len(times) != len(record.output_token_ids):
        raise BadRequestError(f"{len(record.output_token_ids)} output tokens but {len(times)} arrival times")
    counts = (record.accepted, record.proposed, record.steps, record.discarded, record.prefills)
    for count in (*counts, record.cached_tokens, record.prompt_tokens, record.completion_tokens):
        if count is not None:
            count_of(count)
    if record.events is not None and not times:
        return _of_events(record, fields)
    chunks = _grouped(times)
    check_order([record.send_ns, *times])
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
        identity=identity_of(fields),
        server_request_id=record.server_request_id,
        planned_ns=record.planned_ns,
        prompt_tokens=len(record.prompt_token_ids) or None,
        server_prompt_tokens=record.prompt_tokens,
    )


def _of_events(record: RequestRecord, fields: dict[str, Any]) -> RequestTiming:
    """A request whose server tells no token ids: output events, and how many tokens it counted in all."""
    events = record.events or []
    times = [time for time, _ in events]
    check_order([record.send_ns, *times])
    told = [count_of(tokens) for _, tokens in events if tokens is not None]
    counted = record.completion_tokens
    if len(told) < len(events) and counted == len(events):
        told = [1] * len(events)
    whole = len(told) == len(events)
    if whole and counted is None:
        counted = sum(told)
    if whole and counted is not None and counted != sum(told):
        # The server's own count is of tokens, that of the events may leave out some that have no text.
        whole = False
    return RequestTiming(
        request_id=record.request_id,
        phase=record.phase,
        send_ns=record.send_ns,
        chunks=tuple(zip(times, told, strict=True)) if whole else None,
        first_ns=times[0] if times else None,
        last_ns=times[-1] if times else None,
        output_tokens=counted,
        first_chunk_tokens=told[0] if told and events[0][1] is not None else 1,
        rank=record.rank,
        accepted=record.accepted,
        proposed=record.proposed,
        steps=record.steps,
        discarded=record.discarded,
        prefills=record.prefills,
        cached_tokens=record.cached_tokens,
        error=record.error,
        identity=identity_of(fields),
        server_request_id=record.server_request_id,
        planned_ns=record.planned_ns,
        prompt_tokens=len(record.prompt_token_ids) or None,
        server_prompt_tokens=record.prompt_tokens,
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
