"""Reading in pieces gives what reading at once gives, wherever the pieces end; and memory does not grow with the file."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.errors import UnusableInputError
from analyzers.readers import content, event_stream, files
from analyzers.readers.chrome_trace import ChromeTrace, read_chrome_trace, stream_chrome_trace
from analyzers.readers.event_layout import is_undecided, layout_of
from analyzers.readers.event_scan import depths_at, scan_elements
from analyzers.readers.files import whole_lines
from analyzers.readers.load_report import IssueCounter
from analyzers.readers.strace import StraceLog, read_strace, stream_strace
from tests.builders.places import TRACES

EVENT = '{"ph":"X","name":"n%d","cat":"kernel","pid":1,"tid":%d,"ts":%d,"dur":2,"args":{"dispatch_id":%d,"l":[1,{"a":2}]}}'
RECORD = "[STRACE] v=1 pid=%d tid=1 inv=%d hid=ab depth=0 name=chip.run.%s ts=%d dur=5 run_id=%d\n"

json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(
    st.lists(st.dictionaries(st.text(max_size=5), json_values, max_size=4), max_size=6),
    st.booleans(),
    st.text('[]{}",\\ ', max_size=9),
)
def test_brackets_tell_elements_apart(
    objects: list[dict[str, object]], ascii_only: bool, behind: str
) -> None:
    texts = [json.dumps(value, ensure_ascii=ascii_only).encode() for value in objects]
    text = b" ,\n".join(texts)
    elements = scan_elements(text + b"]" + behind.encode())
    found = [
        text[start:end] for start, end in zip(elements.starts.tolist(), elements.ends.tolist(), strict=True)
    ]
    assert found == texts


def test_depth_counts_no_brackets_in_strings() -> None:
    text = b'{"a\\"[":"{[","b":{"traceEvents":'
    assert depths_at(text, [0, 1, 5, text.index(b'"traceEvents"')]) == [0, 1, 1, 2]
    assert depths_at(text, []) == []


def test_many_arrays_of_one_name_are_told_apart_in_one_pass() -> None:
    """Tens of thousands of them, none the document's own: depths are not counted anew for each."""
    head = b'{"nested":{' + b'"traceEvents":[{},' * 20_000
    layout = layout_of(head)
    assert layout is not None
    assert layout.header == b'{"nested":{"traceEvents":['
    assert is_undecided(head)
    own = layout_of(b'{"nested":{"traceEvents":[]},"traceEvents":[{"ph":"X"}]}')
    assert own is not None
    assert own.header == b'{"nested":{"traceEvents":[]},"traceEvents":['


def rows(trace: ChromeTrace | StraceLog) -> list[tuple[object, ...]]:
    spans = trace.spans
    return [
        (
            spans.name_of(row),
            int(spans.start_ns[row]),
            int(spans.duration_ns[row]),
            spans.lane_of(row)[1:3],
            spans.args(row),
        )
        for row in range(len(spans))
    ]


def result(trace: ChromeTrace | StraceLog) -> tuple[object, ...]:
    report = trace.report
    issues = sorted((issue.kind, issue.count, issue.lost, issue.where) for issue in report.issues)
    return rows(trace), report.records, report.parsed, issues


@pytest.mark.parametrize("size", [1, 7, 64, 700, 5000])
@pytest.mark.parametrize("layout", ["lines", "one line", "json lines", "damaged"])
def test_traces_in_pieces_of_any_size(
    size: int, layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [EVENT % (n, n % 3, 10 * n, n) for n in range(60)]
    text = {
        "lines": '{"distributedInfo":{"rank":1},"traceEvents":[\n  ' + ",\n  ".join(events) + "\n]}",
        "one line": '{"traceEvents":[' + ",".join(events) + '],"distributedInfo":{"rank":1}}',
        "json lines": "\n".join(events) + "\n",
        "damaged": "["
        + ",".join(
            event.replace('"dur"', '"du"r') if n % 13 == 5 else event for n, event in enumerate(events)
        ),
    }[layout]
    path = tmp_path / "trace.json"
    path.write_text(text)
    expected = result(read_chrome_trace(text.encode(), str(path)))
    assert len(rows(read_chrome_trace(text.encode(), str(path)))) == (60 if layout != "damaged" else 55)
    for module in (files, content, event_stream):
        monkeypatch.setattr(module, "PIECE", size)
    monkeypatch.setattr(event_stream, "_SMALLEST_WINDOW", size)
    monkeypatch.setattr(files, "_COMPRESSED_PIECE", size)
    trace = stream_chrome_trace(path)
    assert trace is not None
    assert result(trace) == expected
    assert trace.rank == (1 if layout in ("lines", "one line") else None)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_a_damaged_end_in_pieces_of_any_size(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events that went with the damage are counted, and what stands behind them is found."""
    lost = '"ph":"X" ' * 3
    # Longer than what is read at once for any value.
    text = f'{EVENT % (1, 1, 1, 1)},{{"ph":"X",name":1{"[" * 5000}{lost}}}],"distributedInfo":{{"rank":5}}}}'
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents":[' + text)
    for module in (files, content, event_stream):
        monkeypatch.setattr(module, "PIECE", size)
    monkeypatch.setattr(files, "_COMPRESSED_PIECE", size)
    trace = stream_chrome_trace(path)
    assert trace is not None
    assert (len(trace.spans), trace.report.lost, trace.rank) == (1, 4, 5)


@pytest.mark.parametrize("size", [1, 13, 500])
def test_logs_in_pieces_of_any_size(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [RECORD % (n % 4, n, "bind", n * 10, n) for n in range(40)]
    lines[5] = "\x1b[32m12%|##\x1b[0m\r" + lines[5][:60] + lines[6]
    # U+FFFD is a character like any other, for whoever wrote it.
    lines[8] = "\xef\xbf\xbd\n" + lines[8]
    lines[9] = "\xe9\n[HOSTLOG_DROPS] dropped=2\n[chip_process pid=3 dev=7] ready\n"
    lines[20] = lines[20].replace("\n", "") + lines[21].replace("dur=5", "dur=-5")
    data = "".join(lines).encode("latin-1")
    path = tmp_path / "run.log"
    path.write_bytes(data)
    whole = read_strace(data, str(path))
    assert [issue.count for issue in whole.report.issues if issue.kind == "invalid_utf8"] == [1]
    # 40 lines: one replaced, and one torn in front of a copy, which counts once; one more glued to a copy with a negative
    # duration.
    assert (whole.report.records, whole.report.parsed, whole.report.lost) == (40, 39, 4)
    monkeypatch.setattr(files, "PIECE", size)
    monkeypatch.setattr(files, "_COMPRESSED_PIECE", size)
    log = stream_strace(path)
    assert result(log) == result(whole)
    assert (log.ready_devices, log.torn_pids) == (whole.ready_devices, whole.torn_pids)
    assert [log.spans.args(row)["run_id"] for row in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("path", sorted(TRACES.glob("*.log")), ids=lambda path: path.name)
def test_captures_in_pieces(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_strace(path.read_bytes(), str(path))
    monkeypatch.setattr(files, "PIECE", 1000)
    monkeypatch.setattr(files, "_COMPRESSED_PIECE", 1000)
    log = stream_strace(path)
    for column in (
        "start_ns",
        "duration_ns",
        "invocation",
        "depth",
        "clock",
        "dispatch_id",
        "worker_id",
        "slot",
        "run_id",
    ):
        np.testing.assert_array_equal(getattr(log.spans, column), getattr(whole.spans, column))
    assert result(log) == result(whole)


def test_a_line_without_an_end_is_cut_between_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LONGEST_LINE", 200)
    data = "".join(RECORD % (1, n, "bind", n, n) for n in range(50)).replace("\n", " ").encode()
    pieces = [data[start : start + 90] for start in range(0, len(data), 90)]
    chunks = list(whole_lines(pieces))
    assert b"".join(chunk.content for chunk in chunks) == data
    assert [chunk.offset for chunk in chunks] == np.cumsum(
        [0, *(len(chunk.content) for chunk in chunks[:-1])]
    ).tolist()
    assert max(len(chunk.content) for chunk in chunks) < 400
    assert sum(read_strace(chunk.content, "").report.parsed for chunk in chunks) == 50


def peak_bytes(read: object, path: Path) -> int:
    tracemalloc.start()
    try:
        assert callable(read)
        read(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_follows_the_rows_and_not_the_text(tmp_path: Path) -> None:
    padding = "x" * 2000
    events = [EVENT.replace('"a":2', f'"a":"{padding}"') % (n % 5, n % 3, 10 * n, n) for n in range(6000)]
    trace = tmp_path / "trace.json"
    trace.write_text('{"traceEvents":[' + ",".join(events) + "]}")
    damaged = tmp_path / "damaged.json"
    damaged.write_text(
        "[" + ",".join(event[:-9] if n % 500 == 1 else event for n, event in enumerate(events))
    )
    log = tmp_path / "run.log"
    log.write_text(
        "".join((RECORD % (1, n, "bind", n, n)).rstrip() + f" note={padding}\n" for n in range(6000))
    )
    for read, path in ((stream_chrome_trace, trace), (stream_chrome_trace, damaged), (stream_strace, log)):
        assert path.stat().st_size > 12_000_000
        assert peak_bytes(read, path) < 9_000_000


def test_a_gzip_bomb_is_decompressed_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b"[" + b" " * 50_000_000 + b"]", 1))
    issues = IssueCounter()
    assert max(map(len, files.iterate_bytes(path, issues))) <= files.PIECE
    assert issues.issues() == []


@pytest.mark.parametrize("size", [3, 7, 64])
def test_damaged_gzip_gives_the_same_content_in_pieces_of_any_size(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "damaged.gz"
    random = Random(1)
    for _ in range(200):
        text = b"".join(random.choice((b"name", b'"ph":"X"', b"12", b"},{")) for _ in range(200))
        packed = bytearray(gzip.compress(text))
        at = random.randrange(10, len(packed))
        packed[at : at + 9] = random.randbytes(9)
        path.write_bytes(packed)
        with monkeypatch.context() as patch:
            whole = content_of(path)
            patch.setattr(files, "PIECE", size)
            patch.setattr(files, "_COMPRESSED_PIECE", size)
            assert content_of(path) == whole


def content_of(path: Path) -> bytes:
    try:
        return b"".join(files.iterate_bytes(path, IssueCounter()))
    except UnusableInputError:
        return b"refused"
