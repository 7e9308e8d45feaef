"""Whatever is recorded can be read back, by a parser that shares nothing with the writer."""

import json
import re
import tempfile
from pathlib import Path
from urllib.parse import unquote

from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4bench.tracing import SpanRecorder, StraceEmitter, merge_fragments
from dsv4bench.tracing.append import open_append
from dsv4bench.tracing.strace import encode_field

LINE = re.compile(
    r"\[mono_ns=\d+\]\[T0x[0-9a-f]+\]\[TIMING\] emit_host_span: \[STRACE\] v=1 pid=\d+ tid=\d+ inv=(\d+) "
    r"hid=([0-9a-f]+) depth=(\d+) name=(\S+) ts=(\d+) dur=(\d+)((?: \S+=\S*)*) ?"
)
int64 = st.integers(0, 2**63 - 1)
keys = st.from_regex(r"[a-z][a-z_]{0,15}", fullmatch=True)
# 80 characters of up to four bytes each could be cut at 256; twenty are never.
short_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(
    name=short_text.filter(bool),
    start_ns=int64,
    duration_ns=int64,
    invocation=st.integers(0, 2**64 - 1),
    hid=st.from_regex(r"[0-9a-f]{16}", fullmatch=True),
    depth=st.integers(0, 9),
    attributes=st.dictionaries(keys, int64 | short_text, max_size=5),
)
def test_a_record_reads_back_as_it_was_written(
    name: str,
    start_ns: int,
    duration_ns: int,
    invocation: int,
    hid: str,
    depth: int,
    attributes: dict[str, int | str],
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "log"
        StraceEmitter(open_append(log)).record(
            name, start_ns, duration_ns, invocation=invocation, hid=hid, depth=depth, attributes=attributes
        )
        (line,) = log.read_text("ascii").splitlines()
    match = LINE.fullmatch(line)
    assert match is not None
    assert (int(match[1]), match[2], int(match[3])) == (invocation, hid, depth)
    assert unquote(match[4]) == name
    assert (int(match[5]), int(match[6])) == (start_ns, duration_ns)
    read = dict(field.split("=", 1) for field in match[7].split())
    assert {key: unquote(value) for key, value in read.items()} == {
        key: str(value) for key, value in attributes.items()
    }


@given(text=st.text(), capacity=st.integers(1, 64))
def test_a_field_keeps_its_capacity_and_its_grammar(text: str, capacity: int) -> None:
    encoded = encode_field(text, capacity)
    assert len(encoded) <= capacity
    assert re.fullmatch(r"(?:[^\s%\[\]=\x00-\x1f\x7f-\U0010ffff]|%[0-9A-F]{2})*", encoded)


nested = st.lists(
    st.tuples(int64, st.integers(0, 10**12), st.integers(0, 100), st.integers(0, 100)), max_size=20
)


@settings(max_examples=40, deadline=None)
@given(spans=nested)
def test_a_span_inside_another_stays_inside_in_the_trace(spans: list[tuple[int, int, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        recorder = SpanRecorder(Path(directory), ["e2e"], "p")
        recorder._window_start_ns = 0
        for index, (start_ns, inner_ns, before_ns, after_ns) in enumerate(spans):
            recorder.complete(
                "inner", "c", start_ns + before_ns, start_ns + before_ns + inner_ns, index=index
            )
            recorder.complete("outer", "c", start_ns, start_ns + before_ns + inner_ns + after_ns, index=index)
        recorder.close()
        path = merge_fragments(Path(directory)).path
        events = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    assert len(events) == 2 * len(spans)
    for inner, outer in zip(events[::2], events[1::2], strict=True):
        assert inner["args"] == outer["args"]
        assert outer["ts"] <= inner["ts"]
        assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]
