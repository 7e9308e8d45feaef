"""What holds of the analyzers for any input: order does not matter, loss is counted, nothing but our errors is raised."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from rich.console import Console

from analyzers.analysis import analyze, judge
from analyzers.clients.requests import measure_requests
from analyzers.errors import AnalyzerError
from analyzers.readers.chrome_trace import read_chrome_trace
from analyzers.readers.request_timing import RequestTiming
from analyzers.readers.strace import read_strace
from analyzers.report.json import render_json
from analyzers.report.markdown import render_markdown
from analyzers.report.tables import report_tables
from analyzers.report.terminal import render_terminal
from analyzers.statistics.counts import uniform_test
from analyzers.steps.lifecycle import Lifecycle, check_lifecycles
from tests.builders.places import CASES, TRACES

# A busy machine is no reason to fail.
relaxed = settings(deadline=None)

# One step: gap before its submit, and the lengths of submit, gap and wait (ns in a file of us: multiples of 1000).
steps = st.lists(st.tuples(*[st.integers(0, 50)] * 4), min_size=1, max_size=12)


def events_of(shape: list[tuple[int, int, int, int]], omitted: set[int]) -> list[dict[str, object]]:
    events: list[dict[str, object]] = []
    at = 0
    for number, (gap, submit, between, wait) in enumerate(shape):
        at += gap
        ids = {"dispatch_id": number, "slot": number % 2}
        common = {"ph": "X", "pid": 1, "args": ids}
        if 2 * number not in omitted:
            events.append({**common, "name": "d.worker_submit", "tid": 1, "ts": at, "dur": submit})
        if 2 * number + 1 not in omitted:
            start = at + submit + between
            events.append({**common, "name": "d.worker_wait", "tid": 2, "ts": start, "dur": wait})
    return events


def lifecycle_of(events: list[dict[str, object]]) -> Lifecycle:
    trace = read_chrome_trace(json.dumps(events).encode(), "trace.json")
    return check_lifecycles(trace.spans, trace.invalid, depth=2)


def comparable(lifecycle: Lifecycle) -> tuple[object, ...]:
    return (
        sorted((step.dispatch_id, step.interval, step.paired_by) for step in lifecycle.steps),
        sorted(msgspec.json.encode((fault.kind, fault.spans[0])) for fault in lifecycle.faults),
        sorted(msgspec.json.encode((edge.kind, edge.span)) for edge in lifecycle.edges),
    )


@relaxed
@given(steps, st.sets(st.integers(0, 23), max_size=4), st.randoms(use_true_random=False))
def test_pairing_by_ids_does_not_depend_on_the_order_of_events(
    shape: Any, omitted: set[int], random: Random
) -> None:
    events = events_of(shape, omitted)
    expected = comparable(lifecycle_of(events))
    random.shuffle(events)
    assert comparable(lifecycle_of(events)) == expected


@relaxed
@given(steps, st.sets(st.integers(0, 23), max_size=4))
def test_every_end_is_a_step_a_fault_or_an_edge(shape: Any, omitted: set[int]) -> None:
    events = events_of(shape, omitted)
    lifecycle = lifecycle_of(events)
    in_faults = sum(
        fault.kind in ("submit_without_wait", "wait_without_submit") for fault in lifecycle.faults
    )
    assert 2 * len(lifecycle.steps) + len(lifecycle.edges) + in_faults == len(events)
    assert all(step.submit_to_completion_ns >= 0 for step in lifecycle.steps)


identifiers = st.integers(0, 2**63 - 1)
names = st.text(st.characters(codec="utf-8", exclude_characters="~\x00"), min_size=1, max_size=20)


@st.composite
def records(draw: st.DrawFn) -> tuple[str, tuple[object, ...]]:
    pid, tid, inv, start = (draw(st.integers(0, 2**31)) for _ in range(4))
    duration, depth = draw(st.integers(0, 2**20)), draw(st.integers(0, 9))
    name = "ext." + draw(names)
    dispatch = draw(st.one_of(st.none(), identifiers))
    attributes = "" if dispatch is None else f"dispatch_id={dispatch} note={quote(name, safe='')}"
    text = (
        f"[mono_ns={start}][T0x7f][TIMING] emit_host_span: [STRACE] v=1 pid={pid} tid={tid} inv={inv} hid=0 "
        f"depth={depth} name={quote(name, safe='')} ts={start} dur={duration} {attributes}"
    )
    return text, (name, pid, tid, start, duration, depth, -1 if dispatch is None else dispatch)


@relaxed
@given(
    st.lists(
        st.tuples(records(), st.sampled_from(["\n", "\r\n", "", " 45%|## \r", "\x1b[0m\n"]), st.booleans()),
        max_size=12,
    ),
    st.data(),
)
def test_strace_round_trip_under_gluing_and_tearing(entries: Any, data: st.DataObject) -> None:
    text, kept, torn = "", [], 0
    for (record, expected), separator, tear in entries:
        if tear:
            # Torn after its head and before its duration: the head is counted, the record cannot be read.
            head = record.index(" pid=")
            text += record[: data.draw(st.integers(head, record.index(" dur=") + len(" dur=")))] + separator
            torn += 1
        else:
            text += record + separator
            kept.append(expected)
    # What is there twice counts once, and what ends beyond all reason is left out: both have tests of their own.
    starts = [start for _, _, _, start, *_ in kept]
    longest = max((start + duration for _, _, _, start, duration, *_ in kept), default=0)
    assume(len(set(kept)) == len(kept))
    assume(not kept or longest - max(starts) <= max(starts) - min(starts))
    log = read_strace(text.encode(), "run.log")
    assert (log.report.records, log.report.parsed, log.report.lost) == (len(kept) + torn, len(kept), torn)
    spans = log.spans
    rows = [
        (
            spans.name_of(row),
            int(spans.pid[row]),
            int(spans.tid[row]),
            int(spans.start_ns[row]),
            int(spans.duration_ns[row]),
            int(spans.depth[row]),
            int(spans.dispatch_id[row]),
        )
        for row in range(len(spans))
    ]
    assert rows == kept


@relaxed
@given(st.integers(-(2**61), 2**61), st.sampled_from(["number", "string", "exponent"]))
def test_times_are_read_exactly_in_every_notation(time_ns: int, notation: str) -> None:
    microseconds = Decimal(time_ns) / 1000
    text = f"{microseconds:.3E}" if notation == "exponent" else f"{microseconds:.3f}"
    expected = int(Decimal(text) * 1000)
    value = f'"{text}"' if notation == "string" else text
    trace = read_chrome_trace(
        f'[{{"ph":"X","name":"a","pid":1,"tid":1,"ts":{value},"dur":1}}]'.encode(), "trace.json"
    )
    assert trace.spans.start_ns.tolist() == [expected]


@relaxed
@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**9),
            st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 4)), min_size=1, max_size=8),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_peak_rate_is_never_below_the_mean(requests: Any) -> None:
    timings = []
    for number, (send, gaps) in enumerate(requests):
        at, chunks = send, []
        for gap, tokens in gaps:
            at += gap
            chunks.append((at, tokens))
        timings.append(
            RequestTiming(
                request_id=str(number),
                phase="measured",
                send_ns=send,
                chunks=tuple(chunks),
                first_ns=chunks[0][0],
                last_ns=chunks[-1][0],
                output_tokens=sum(tokens for _, tokens in chunks),
                first_chunk_tokens=chunks[0][1],
            )
        )
    [figures] = measure_requests(timings)
    assert (figures.peak_per_s is None) == (figures.peak_unavailable is not None)
    if figures.throughput_per_s is not None and figures.peak_per_s is not None:
        assert figures.peak_per_s >= figures.throughput_per_s


@relaxed
@given(st.lists(st.integers(0, 8), min_size=2, max_size=5).filter(any))
def test_p_values_do_not_depend_on_which_rank_is_which(counts: list[int]) -> None:
    test, reversed_test = uniform_test(counts), uniform_test(counts[::-1])
    assert test is not None
    assert reversed_test is not None
    assert 0 < test.p_value <= 1
    assert test.p_value == pytest.approx(reversed_test.p_value)


SEEDS = [
    CASES / "39-out-of-order-completion" / "trace.json",
    CASES / "30-begin-end-stack" / "trace.json",
    CASES / "33-async-same-id-overlap" / "trace.json",
    CASES / "16-ts-as-string" / "trace.json",
    CASES / "13-gzip-truncated" / "trace.json.gz",
    CASES / "61-tpot-multi-token-chunks" / "requests.jsonl",
    CASES / "63-tpot-mean-of-means" / "requests.jsonl",
    CASES / "57-jsonl-two-objects-one-line" / "events.jsonl",
    CASES / "54-strace-two-records-one-line" / "run.log",
    TRACES / "simpler-l3_multi_chip_dispatch.log",
]
OWN_REQUEST = (
    b'{"request_id":"r","rank":0,"prompt_token_ids":[1],"output_token_ids":[5,6,7],"send_ns":10,'
    b'"token_times_ns":[20,30,30],"finish_reason":"length","accepted":1,"proposed":1,"steps":1}\n'
)
OWN_EVENT = b'{"name":"d.worker_submit","cat":"kernel","ph":"X","ts":1,"dur":2,"pid":1,"tid":1,"args":{"dispatch_id":1}}\n'
FRAGMENTS = [
    b"", b"-1", b"0", b"1e999", b"NaN", b'"', b"{", b"}", b"[", b"]", b",", b"null", b"true", b"\xff", b"\\ud800",
    b"99999999999999999999", b"[STRACE] v=1 ", b"\n", b"\x00", b"\x1b[31m", b"dur=", b"inv=0", b'"ph":"E"', b"{}",
]  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A valid input with a few pieces replaced, doubled or cut out."""
    content = draw(st.sampled_from([OWN_REQUEST, OWN_EVENT, *(path.read_bytes() for path in SEEDS)]))
    for _ in range(draw(st.integers(1, 6))):
        position = draw(st.integers(0, len(content)))
        length = draw(st.integers(0, 30))
        piece = draw(st.one_of(st.sampled_from(FRAGMENTS), st.binary(max_size=6)))
        if draw(st.booleans()):
            piece = content[position : position + length] * 2
        content = content[:position] + piece + content[position + length :]
    return content[: draw(st.integers(0, len(content)))] if draw(st.booleans()) else content


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=damaged(), suffix=st.sampled_from(["json", "log", "jsonl"]))
def test_damaged_inputs_raise_nothing_but_our_errors(content: bytes, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"damaged.{suffix}"
    path.write_bytes(content)
    try:
        report = analyze([path])
    except AnalyzerError:
        return
    assert judge(report, strict=True).exit_code in (0, 1, 3, 4)
    tables = report_tables(report)
    render_json(report).encode()
    render_markdown(report, tables, "Analysis").encode()
    render_terminal(report, tables, Console(file=io.StringIO(), width=80))
