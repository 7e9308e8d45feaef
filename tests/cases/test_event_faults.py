"""What events say that cannot be, or may mean two things: times, ids, pids, escapes; tests are named after their cases."""

from __future__ import annotations

import gzip
import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from analyzers.analysis import analyze, judge
from analyzers.errors import UnusableInputError
from analyzers.measurement import measure
from analyzers.readers.chrome_trace import ChromeTrace, stream_chrome_trace
from analyzers.readers.strace import read_strace
from analyzers.recording.recording import load_recording
from analyzers.report.model import Report
from analyzers.steps.thread_load import measure_lanes
from analyzers.swimlane import timeline_of
from analyzers.swimlane import write as swimlane_write
from analyzers.swimlane.model import CounterTrack, Group, Slice, Timeline, Track
from analyzers.table.nesting import nest
from analyzers.table.spans import Clock, Kind, Source, SpanTable
from dsv4bench.cli import main
from tests.builders.places import CASES
from tests.builders.spans import Spans
from tests.cases.trace_text import A, B, issues, names, read, where
from tests.properties.fuzz_analyzers import pieces_of

NEGATIVE = CASES / "104-negative-times-in-a-pftrace" / "trace.json"
ESCAPE = CASES / "108-invalid-escape" / "trace.json"
SHARED_ID = CASES / "109-async-id-of-two-processes" / "trace.json"
ROUNDED = CASES / "110-child-ends-after-its-parent-by-rounding"
PID_AGAIN = CASES / "112-pid-used-again" / "trace.json"
TOO_LONG = CASES / "118-a-duration-that-cannot-be"
SELF_TIME = CASES / "120-self-time-below-zero" / "trace.json"

Drawn = list[tuple[str, str, float, float]]
"""(process, name, ts, dur) of every slice of a drawing, in us."""


def run(*arguments: object) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["dsv4bench", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main()
    return int(exit_.value.code or 0)


def written(directory: Path, events: list[dict[str, Any]]) -> Path:
    path = directory / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def complete(name: str, at: float, lasts: float, **fields: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": 1, "tid": 1, "ts": at, "dur": lasts, **fields}


def drawn_as_chrome(trace: Path, directory: Path) -> Drawn:
    output = directory / "drawn.json"
    assert run("swimlane", trace, "-o", output) == 0
    events = json.loads(output.read_text())["traceEvents"]
    processes = {entry["pid"]: entry["args"]["name"] for entry in events if entry["name"] == "process_name"}
    return [
        (processes[entry["pid"]], entry["name"], entry["ts"], entry["dur"])
        for entry in events
        if entry["ph"] == "X"
    ]


def drawn_times(trace: Path, directory: Path) -> list[int]:
    """The times of a .pftrace, in ns."""
    output = directory / "drawn.pftrace"
    assert run("swimlane", trace, "-o", output) == 0
    packets = Trace.FromString(output.read_bytes()).packet
    return [packet.timestamp for packet in packets if packet.HasField("track_event")]


def self_times(report: Report) -> dict[str, int | None]:
    return {figures.name: figures.self_ns for figures in report.span_names}


def durations(spans: SpanTable) -> list[tuple[str, int]]:
    return sorted(zip(spans.iter_names(), spans.duration_ns.tolist(), strict=True))


# 104: times before 0


def test_104_a_timeline_that_begins_before_zero_is_moved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = drawn_times(NEGATIVE, tmp_path)
    assert min(times) == 0
    # The last wait ends at 2900 us, the first submit begins at -2000 us.
    assert max(times) == 4_900_000
    assert "times moved by 2000 us, to begin at 0" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["drawn.pftrace"]


def test_104_chrome_json_keeps_times_before_zero(tmp_path: Path) -> None:
    drawn = drawn_as_chrome(NEGATIVE, tmp_path)
    assert min(ts for _, _, ts, _ in drawn) == -2000
    assert len(drawn) == 10


@pytest.mark.parametrize(
    ("events", "first", "last"),
    [
        # bazel's first phase, alone before 0
        ([complete("Launch Blaze", -613_000, 613_000), complete("build", 0, 5)], 0, 613_005_000),
        ([{**complete("mark", -0.001, 0), "ph": "i"}, complete("a", 3, 4)], 0, 7_001),
        ([complete("a", 3, 4)], 3_000, 7_000),
        ([complete("a", 0, 4)], 0, 4_000),
        ([{**complete("a", -9, 0), "ph": "b", "id": 1}, {**complete("a", -3, 0), "ph": "e", "id": 1}], 0, 6_000),
    ],
)  # fmt: skip
def test_104_only_what_begins_before_zero_moves(
    events: list[dict[str, Any]], first: int, last: int, tmp_path: Path
) -> None:
    times = drawn_times(written(tmp_path, events), tmp_path)
    assert (min(times), max(times)) == (first, last)


def test_104_a_counter_may_be_what_begins_first(tmp_path: Path) -> None:
    group = Group(
        "engine", counters=[CounterTrack("n", [(-7, 1.5)])], tracks=[Track("t", [Slice("a", "", -5, 2, {})])]
    )
    summary = swimlane_write.write_timeline(Timeline([group], {}), tmp_path / "drawn.pftrace")
    packets = Trace.FromString((tmp_path / "drawn.pftrace").read_bytes()).packet
    assert [packet.timestamp for packet in packets if packet.HasField("track_event")] == [0, 2, 9]
    assert summary.moved_ns == 7


def test_104_of_a_log_too(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        "[STRACE] v=1 pid=1 tid=1 inv=1 hid=a depth=0 name=chip.run ts=-5000 dur=2000\n"
        "[STRACE] v=1 pid=1 tid=1 inv=2 hid=a depth=0 name=chip.run ts=1000 dur=2000\n"
    )
    times = drawn_times(log, tmp_path)
    assert (min(times), max(times)) == (0, 8_000)


@pytest.mark.parametrize(
    "error", [ValueError("no"), KeyboardInterrupt(), OSError(28, "No space left on device")]
)
def test_104_nothing_is_left_behind_when_a_swimlane_cannot_be_written(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(timeline: object, file: Any) -> None:
        file.write(b"half")
        raise error

    monkeypatch.setattr(swimlane_write, "write_chrome", fails)
    before = tmp_path / "drawn.json"
    before.write_text("before")
    with pytest.raises((ValueError, KeyboardInterrupt, UnusableInputError)):
        swimlane_write.write_timeline(timeline_of(measure(load_recording([NEGATIVE]))), before)
    assert [path.name for path in tmp_path.iterdir()] == ["drawn.json"]
    assert before.read_text() == "before"


# 108: backslashes that begin no escape


def test_108_a_windows_path_costs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    trace = stream_chrome_trace(ESCAPE)
    assert trace is not None
    assert names(trace) == ["load", "tab\tin é", "end"]
    assert trace.spans.args(0) == {"file": r"C:\models\v4.bin"}
    assert issues(trace) == {"invalid_escape": (1, 0)}
    assert where(trace, "invalid_escape") == "line 2, byte 17"
    assert run("analyze", ESCAPE) == 0
    assert run("analyze", ESCAPE, "--strict") == 4
    assert "input repaired" in capsys.readouterr().err


W = (
    r'{"ph":"X","name":"C:\Wx \\ \n\u00e9","cat":"\x41","pid":1,"tid":"\d","ts":2,"dur":1,'
    r'"args":{"C:\Users":"\u12z4 \u","n":{"k":["\.","\\server\share"]},"step_id":7}}'
)
"""An event with a stray backslash everywhere, beside escapes that are legal."""

STRAY = {"invalid_escape": (1, 0)}


@pytest.mark.parametrize(
    ("text", "found", "expected"),
    [
        (f"[{A},{W},{B}]", ["a", W, "b"], STRAY),
        (f"[{W}]", [W], STRAY),
        (f'{{"traceEvents":[\n{A},\n{W},\n{B}\n]}}', ["a", W, "b"], STRAY),
        (f'{{"traceEvents":[{A},{W},{W}],"traceName":"D:\\p"}}', ["a", W, W], {"invalid_escape": (3, 0)}),
        (f'{{"traceName":"D:\\p","traceEvents":[{A}]}}', ["a"], STRAY),
        (f"{A}\n{W}\n{B}\n", ["a", W, "b"], STRAY),
        (f"{W}\n{B}\n", [W, "b"], STRAY),
        (f"{W}{W}\n{A}", [W, W, "a"], {"invalid_escape": (2, 0), "glued_lines": (1, 0)}),
        # What is cut, or ends inside its string, is no event.
        (f"[{A},{W[:-20]}", ["a"], {"torn_tail": (1, 1), "unterminated": (1, 0)}),
        (f"{A}\n{W[:-60]}\n{B}", ["a", "b"], {"bad_line": (1, 1)}),
    ],
)  # fmt: skip
def test_108_in_every_layout_and_however_it_comes_in(
    text: str, found: list[str], expected: dict[str, tuple[int, int]], tmp_path: Path
) -> None:
    name = "C:\\Wx \\ \né"
    arguments = {r"C:\Users": r"\u12z4 \u", "n": {"k": [r"\.", r"\server\share"]}, "step_id": 7}
    plain, packed = tmp_path / "trace.json", tmp_path / "trace.json.gz"
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))

    def check(trace: ChromeTrace | None) -> None:
        assert trace is not None
        assert names(trace) == [name if entry == W else entry for entry in found]
        assert issues(trace) == expected
        for row in np.flatnonzero(trace.spans.named(name)).tolist():
            assert trace.spans.args(row) == arguments
            assert trace.spans.step_id[row] == 7
            assert trace.spans.categories[trace.spans.category[row]] == r"\x41"
            assert trace.spans.lane_of(row).tid == r"\d"

    for path in (plain, packed):
        check(stream_chrome_trace(path))
        for size in (7, 64):
            with pieces_of(size):
                check(stream_chrome_trace(path))


def test_108_what_stands_around_the_events_is_still_read() -> None:
    trace = read(f'{{"traceEvents":[{A}],"traceName":"D:\\p","distributedInfo":{{"rank":3,"host":"\\h"}}}}')
    assert (trace.rank, issues(trace)) == (3, STRAY)
    trace = read(f'{{"traceEvents":[{A}],"distributedInfo":{{"rank":3,"host":"\\h"}},"cut":')
    assert (trace.rank, issues(trace)) == (3, {"unterminated": (1, 0), "damaged_document": (1, 1)})


# 109: ids of two processes


def async_spans(*shape: tuple[str, int, float], ids: dict[str, Any] | None = None) -> ChromeTrace:
    """(phase, pid, ts); of the name `gen`, and of the id 9 where nothing else is said."""
    fields = ids or {"id": "0x9"}
    return read(
        json.dumps(
            [
                {"name": "gen", "cat": "q", "ph": ph, "pid": pid, "tid": 1, "ts": at, **fields}
                for ph, pid, at in shape
            ]
        )
    )


def test_109_a_plain_id_is_paired_within_each_process() -> None:
    report = analyze([SHARED_ID])
    assert self_times(report) == {"gen": None}
    spans = load_recording([SHARED_ID]).spans
    assert sorted(zip(spans.pid.tolist(), spans.duration_ns.tolist(), strict=True)) == [
        (7, 20_000),
        (8, 50_000),
    ]
    notes = [finding.evidence for finding in report.findings if finding.code == "input_note"]
    assert [note.partition(": ")[2] for note in notes] == ["shared_id=1, first at line 1, byte 17"]


SHARED = {"shared_id": (1, 0)}
CROSSING = [("b", 7, 100.0), ("b", 8, 105.0), ("e", 7, 120.0), ("e", 8, 155.0)]
ENDS = {"unmatched_begin": (1, 0), "unmatched_end": (1, 0)}


@pytest.mark.parametrize(
    ("shape", "ids", "lengths", "expected"),
    [
        (CROSSING, {"id": 9}, [20, 50], SHARED),
        (list(reversed(CROSSING)), {"id": 9}, [20, 50], SHARED),
        # Nested in time, and one after the other
        ([("b", 7, 0), ("b", 8, 1), ("e", 8, 2), ("e", 7, 9)], None, [1, 9], SHARED),
        ([("b", 7, 0), ("e", 7, 2), ("b", 8, 4), ("e", 8, 9)], None, [2, 5], SHARED),
        ([("S", 7, 0), ("S", 8, 1), ("F", 7, 5), ("F", 8, 9)], None, [5, 8], SHARED),
        ([("b", 7, 0), ("b", 8, 1), ("n", 8, 2), ("e", 7, 5), ("e", 8, 9)], None, [0, 5, 8], SHARED),
        # A process that never ends its own does not take another's end.
        ([("b", 7, 0), ("b", 8, 1), ("e", 7, 5)], None, [5], {**SHARED, "unmatched_begin": (1, 0)}),
        ([("b", 7, 0), ("e", 7, 5), ("b", 8, 6), ("e", 9, 7)], None, [5], {**SHARED, **ENDS}),
        # From one process to another
        ([("b", 7, 0), ("e", 8, 5)], None, [5], {}),
        ([("b", 7, 0), ("b", 8, 1), ("e", 9, 5), ("e", 9, 9)], None, [4, 9], {}),
        (CROSSING, {"id2": {"local": 9}}, [20, 50], {}),
        # One id in all processes, as the format has it
        ([("b", 7, 0), ("e", 8, 5)], {"id2": {"global": 9}}, [5], {}),
        ([("b", 7, 0), ("e", 8, 5)], {"id2": {"local": 9}}, [], ENDS),
    ],
)  # fmt: skip
def test_109_whose_an_id_is(
    shape: list[tuple[str, int, float]],
    ids: dict[str, Any] | None,
    lengths: list[int],
    expected: dict[str, tuple[int, int]],
) -> None:
    trace = async_spans(*shape, ids=ids)
    assert [length for _, length in durations(trace.spans)] == [1000 * length for length in lengths]
    assert issues(trace) == expected


def test_109_names_of_one_id_have_nothing_to_do_with_each_other() -> None:
    events = [
        {"name": name, "cat": "q", "ph": ph, "pid": pid, "tid": 1, "ts": at, "id": 1}
        for name, ph, pid, at in (
            ("own", "b", 7, 0), ("own", "e", 7, 3), ("sent", "b", 7, 1), ("sent", "e", 8, 8), ("own", "e", 8, 9),
        )
    ]  # fmt: skip
    trace = read(json.dumps(events))
    assert durations(trace.spans) == [("own", 3_000), ("sent", 7_000)]
    assert issues(trace) == {"shared_id": (1, 0), "unmatched_end": (1, 0)}


# 110: whole microseconds


def test_110_an_overhang_of_one_microsecond_is_rounding(tmp_path: Path) -> None:
    path = ROUNDED / "trace.json"
    report = analyze([path])
    assert self_times(report) == {"parent": 12_000, "child": 19_000}
    assert [(lane.overlaps, lane.rounded) for lane in report.lanes] == [(0, 1)]
    assert [figures.depth for figures in report.span_names] == [0, 1]
    assert [finding.evidence.partition("; ")[0] for finding in report.findings] == [f"{path}: rounded=1"]
    assert judge(report, strict=True).exit_code == 0
    assert sorted(entry[1:] for entry in drawn_as_chrome(path, tmp_path)) == [
        ("child", 70, 19),
        ("parent", 58, 30),
    ]
    assert sorted(drawn_times(path, tmp_path)) == [58_000, 70_000, 88_000, 89_000]


def test_110_exports_keep_the_times_of_the_file(tmp_path: Path) -> None:
    assert run("analyze", ROUNDED / "trace.json", "--export-parquet", tmp_path / "spans.parquet") == 0
    rows = pyarrow.parquet.read_table(tmp_path / "spans.parquet").to_pylist()
    assert [(row["name"], row["start_ns"], row["end_ns"]) for row in rows] == [
        ("parent", 58_000, 88_000),
        ("child", 70_000, 89_000),
    ]


def test_110_an_overhang_of_two_is_an_overlap() -> None:
    report = analyze([ROUNDED / "overlap.json"])
    assert [(lane.overlaps, lane.rounded) for lane in report.lanes] == [(1, 0)]
    assert self_times(report) == {"parent": 30_000, "child": 20_000}


@pytest.mark.parametrize(
    ("spans", "own", "rounded", "overlaps"),
    [
        # What follows begins where the parent ends: the child was over by then.
        ([("p", 0, 10), ("c", 5, 6), ("next", 10, 5)], {"p": 5, "c": 6, "next": 5}, 1, 0),
        # Grandchildren, each beyond the one around by one
        ([("p", 0, 10), ("c", 4, 7), ("g", 6, 5)], {"p": 4, "c": 3, "g": 5}, 2, 0),
        # ... but no further: rounding does not add up.
        ([("p", 0, 10), ("c", 4, 7), ("g", 6, 6)], {"p": 4, "c": 7, "g": 6}, 1, 1),
        ([("p", 0, 10), ("c", 9, 2)], {"p": 9, "c": 2}, 1, 0),
        # Times with a fraction are no whole microseconds.
        ([("p", 0, 10), ("c", 5, 6), ("x", 40, 0.5)], {"p": 10, "c": 6, "x": 0.5}, 0, 1),
        ([("p", 0, 10), ("c", 5.5, 5.5)], {"p": 10, "c": 5.5}, 0, 1),
    ],
)  # fmt: skip
def test_110_what_is_rounding(
    spans: list[tuple[str, float, float]],
    own: dict[str, float],
    rounded: int,
    overlaps: int,
    tmp_path: Path,
) -> None:
    report = analyze([written(tmp_path, [complete(*span) for span in spans])])
    assert self_times(report) == {name: int(1000 * lasts) for name, lasts in own.items()}
    assert [(lane.rounded, lane.overlaps) for lane in report.lanes] == [(rounded, overlaps)]


def test_110_another_thread_with_fractions_tells_that_times_are_no_whole_microseconds(tmp_path: Path) -> None:
    events = [complete("p", 0, 10), complete("c", 5, 6), complete("x", 0.25, 1, tid=2)]
    report = analyze([written(tmp_path, events)])
    assert [(lane.rounded, lane.overlaps) for lane in report.lanes] == [(0, 1), (0, 0)]


@pytest.mark.parametrize(
    ("clock", "moved", "rounded"), [(Clock.HOST, 123, 1), (Clock.FILE, 0, 1), (Clock.FILE, 500, 0)]
)
def test_110_times_that_another_clock_moved_are_still_whole_microseconds(
    clock: Clock, moved: int, rounded: int
) -> None:
    table = Spans(Source.SERVING, clock=clock)
    table.add("p", moved, moved + 10_000)
    table.add("c", moved + 5_000, moved + 11_000)
    ((lane,), _) = measure_lanes(table.build())
    assert (lane.rounded, lane.overlaps) == (rounded, 1 - rounded)


def test_110_a_log_counts_nanoseconds(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        "[STRACE] v=1 pid=1 tid=1 inv=1 hid=a depth=0 name=ext.a ts=0 dur=10000\n"
        "[STRACE] v=1 pid=1 tid=1 inv=1 hid=a depth=1 name=ext.b ts=5000 dur=6000\n"
    )
    assert [(lane.rounded, lane.overlaps) for lane in analyze([log]).lanes] == [(0, 1)]


# 112: a pid used again


def process_name(name: str, at: float | str | None = None, pid: Any = 41) -> dict[str, Any]:
    record = {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
    return record if at is None else {**record, "ts": at}


def work(name: str, at: float, pid: Any = 41, lasts: float = 5) -> dict[str, Any]:
    return complete(name, at, lasts, pid=pid)


def test_112_a_name_with_a_time_ends_the_process_before(tmp_path: Path) -> None:
    assert drawn_as_chrome(PID_AGAIN, tmp_path) == [
        ("loader (pid 41)", "read", 20, 7),
        ("engine (pid 41#2)", "step", 520, 9),
    ]
    report = analyze([PID_AGAIN])
    assert [(lane.pid, lane.spans) for lane in report.lanes] == [("41", 1), ("41#2", 1)]
    rows = load_recording([PID_AGAIN]).spans.to_arrow().to_pylist()
    assert [(row["process"], row["name"], row["orig_pid"]) for row in rows] == [
        ("loader", "read", 41),
        ("engine", "step", 41),
    ]
    assert len({row["pid"] for row in rows}) == 2


def test_112_in_sql(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run("analyze", PID_AGAIN, "--sql", "SELECT process, count(*) AS n FROM spans GROUP BY process") == 0
    )
    output = capsys.readouterr().out
    assert "loader" in output
    assert "engine" in output


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        # Without times, or at 0: the last name is that of the one process.
        ([process_name("a"), work("x", 1), process_name("b"), work("y", 9)], {"x": "b", "y": "b"}),
        ([process_name("a", 0), work("x", 1), process_name("b", 0), work("y", 9)], {"x": "b", "y": "b"}),
        # The first name is that of the process from the beginning on: profilers write it a little late.
        ([work("x", 1), process_name("a", 5), work("y", 9)], {"x": "a", "y": "a"}),
        # Three of them, and one name that comes back; the file in any order
        ([work("z", 30), process_name("a", 25), work("y", 20), process_name("b", 15), process_name("a", 5), work("x", 10)],
         {"x": "a", "y": "b", "z": "a"}),
        # The same name again begins nothing.
        ([process_name("a", 0), work("x", 1), process_name("a", 5), work("y", 9)], {"x": "a", "y": "a"}),
        # Other pids have nothing to do with it, and a pid may be a text.
        ([process_name("a", 2), process_name("b", 5), process_name("c", 9, pid=42), work("x", 3), work("y", 6),
          work("z", 3, pid=42)], {"x": "a", "y": "b", "z": "c"}),
        ([process_name("a", 2, "p"), process_name("b", 5, "p"), work("x", 3, "p"), work("y", 6, "p")],
         {"x": "a", "y": "b"}),
        # A time as text; a span that begins at the very time is of the next one.
        ([process_name("a"), process_name("b", "5.5"), work("x", 5.499), work("y", 5.5)], {"x": "a", "y": "b"}),
        ([process_name("a", -9), process_name("b", -4), work("x", -8), work("y", -3)], {"x": "a", "y": "b"}),
    ],
)  # fmt: skip
def test_112_whose_a_span_is(events: list[dict[str, Any]], expected: dict[str, str], tmp_path: Path) -> None:
    spans = load_recording([written(tmp_path, events)]).spans
    found = {spans.name_of(row): spans.process_names[spans.lane_of(row).process] for row in range(len(spans))}
    assert found == expected
    # A name that comes back is that of another process; all else are as many as there are names.
    processes = {spans.lane_of(row).process for row in range(len(spans))}
    assert len(processes) == (
        3 if expected == {"x": "a", "y": "b", "z": "a"} else len(set(expected.values()))
    )


def test_112_threads_have_the_names_of_their_process() -> None:
    def thread_name(name: str, at: float | None) -> dict[str, Any]:
        return {**process_name(name, at), "name": "thread_name", "tid": 1}

    events = [
        process_name("a", 0), thread_name("one", 2), process_name("b", 5), thread_name("two", 6), work("x", 3), work("y", 6),
    ]  # fmt: skip
    spans = read(json.dumps(events)).spans
    assert [spans.thread_names[spans.lane_of(row)] for row in range(2)] == ["one", "two"]
    # A thread that gets another name is the same thread.
    spans = read(json.dumps([thread_name("one", 2), thread_name("two", 6), work("x", 3), work("y", 8)])).spans
    assert [spans.thread_names[spans.lane_of(row)] for row in range(2)] == ["two", "two"]
    assert len({spans.lane_of(row) for row in range(2)}) == 1


def test_112_a_process_that_renames_itself_keeps_its_begins_and_ends() -> None:
    """Node writes a name with a time when a program sets its title."""
    events = [
        process_name("node", 1), process_name("renamed", 50),
        {"ph": "B", "name": "outer", "pid": 41, "tid": 1, "ts": 40}, {"ph": "E", "pid": 41, "tid": 1, "ts": 60},
        {"ph": "b", "name": "task", "id": 1, "pid": 41, "tid": 1, "ts": 45},
        {"ph": "e", "name": "task", "id": 1, "pid": 41, "tid": 1, "ts": 65},
    ]  # fmt: skip
    trace = read(json.dumps(events))
    assert (durations(trace.spans), issues(trace)) == ([("outer", 20_000), ("task", 20_000)], {})


# 118: durations that cannot be


def test_118_a_duration_that_cannot_be_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = TOO_LONG / "trace.json"
    trace = stream_chrome_trace(path)
    assert trace is not None
    assert durations(trace.spans) == [("a", 10_000), ("b", 10_000), ("c", 10_000)]
    assert (trace.spans.start_ns.min(), trace.spans.end_ns.max()) == (0, 4_010_000)
    assert issues(trace) == {"implausible_dur": (1, 1)}
    assert where(trace, "implausible_dur") == f"line 1, byte {path.read_text().index('{', 150)}"
    assert run("analyze", path) == 4
    assert "more than 1000 times the window of all starts" in capsys.readouterr().err
    assert run("analyze", path, "--max-loss", 1) == 0
    assert [name for _, name, _, _ in drawn_as_chrome(path, tmp_path)] == ["a", "b", "c"]
    assert max(drawn_times(path, tmp_path)) == 4_010_000


def test_118_a_span_of_the_whole_run_stays() -> None:
    report = analyze([TOO_LONG / "whole.json"])
    assert (report.spans, report.lost) == (4, 0)


def begin_end(kind: str, name: str, at: float, end: float) -> list[dict[str, Any]]:
    return [
        {"ph": phase, "name": name, "id": 1, "pid": 1, "tid": 7, "ts": time}
        for phase, time in zip(kind, (at, end), strict=True)
    ]


OTHERS = [complete("a", 0, 10), complete("b", 2000, 10), complete("c", 4000, 10)]
HOURS = 10_800_000_000


@pytest.mark.parametrize(
    ("events", "left_out"),
    [
        ([complete("boom", 2500, HOURS), *OTHERS], 1),
        ([*OTHERS, complete("boom", 4000, HOURS), complete("bang", 1, HOURS)], 2),
        ([*begin_end("BE", "boom", 2500, HOURS), *OTHERS], 1),
        ([*begin_end("be", "boom", 2500, HOURS), *OTHERS], 1),
        ([*OTHERS, {**complete("boom", 2500, 0), "dur": str(HOURS)}], 1),
        # One thousand times the window, and a nanosecond more
        ([*OTHERS, complete("long", 4000, 4_000_000)], 0),
        ([*OTHERS, complete("long", 4000, 4_000_000.001)], 1),
        # What begins before everything else encloses it, however long everything else is silent.
        ([*OTHERS, complete("run", 0, HOURS), complete("main", -1, HOURS + 5)], 0),
        ([*OTHERS, *begin_end("BE", "run", 0, HOURS)], 0),
        # Where something happens until then, it may well have lasted.
        ([*OTHERS, complete("long", 2500, HOURS), complete("late", HOURS, 1)], 0),
        ([*OTHERS, complete("long", 2500, HOURS), {**complete("mark", HOURS, 0), "ph": "i"}], 0),
        # Requests that came at once, and took a while
        ([complete(name, at, 20_000_000, tid=at) for at, name in enumerate(("r", "s", "t"))] + [complete("parse", 0, 1)], 0),
        ([complete("a", 0, 1), complete("boom", 1, HOURS)], 1),
        # One span, or several that begin together, have no window.
        ([complete("only", 5, HOURS)], 0),
        ([complete("one", 5, HOURS), complete("two", 5, 1)], 0),
    ],
)  # fmt: skip
def test_118_what_cannot_be(events: list[dict[str, Any]], left_out: int, tmp_path: Path) -> None:
    path = written(tmp_path, events)
    trace = stream_chrome_trace(path)
    assert trace is not None
    assert issues(trace) == ({"implausible_dur": (left_out, left_out)} if left_out else {})
    assert not {"boom", "bang"} & set(names(trace))
    assert judge(analyze([path])).exit_code == (4 if left_out else 0)


def test_118_beside_events_that_lost_their_time() -> None:
    later = 90_000_000_000
    events = [
        complete("zero", 0, 1),
        *(complete(name, later + at, 10) for name, at in (("a", 0), ("b", 2000), ("c", 4000))),
    ]
    trace = read(json.dumps([*events, complete("boom", later + 2500, HOURS)]))
    assert names(trace) == ["a", "b", "c"]
    assert issues(trace) == {"zero_ts": (1, 1), "implausible_dur": (1, 1)}


def test_118_names_the_line_in_every_layout(tmp_path: Path) -> None:
    texts = [json.dumps(entry) for entry in [*OTHERS, complete("boom", 2500, HOURS)]]
    layouts = {
        "lines.jsonl": ("\n".join(texts), 4),
        "array.json": ("[\n" + ",\n".join(texts) + "\n]", 5),
        "spread.json": ('{\n"traceEvents": [\n\n' + "\n,\n".join(texts) + "]}", 10),
    }
    for name, (text, line) in layouts.items():
        for suffix, content in (("", text.encode()), (".gz", gzip.compress(text.encode()))):
            path = tmp_path / (name + suffix)
            path.write_bytes(content)
            for size in (1 << 20, 7):
                with pieces_of(size):
                    trace = stream_chrome_trace(path)
                assert trace is not None
                assert where(trace, "implausible_dur") == f"line {line}, byte {text.index(texts[-1])}"


def test_118_a_record_of_the_runtime_too() -> None:
    def record(invocation: int, at: int, lasts: int, clock: str = "") -> str:
        return f"[STRACE] v=1 pid=1 tid=1 inv={invocation} hid=a depth=0 name=chip.run ts={at} dur={lasts}{clock}\n"

    # The clock of the device begins anew in every run, and says nothing of the window.
    since_boot = 10**12
    rest = "".join(record(number, since_boot + 1_000_000 * number, 50_000) for number in (1, 2, 4))
    text = rest + record(3, since_boot + 3_000_000, HOURS * 1000) + record(3, 5, 40, " clk=dev")
    log = read_strace(text.encode(), "server.log")
    assert log.spans.duration_ns.tolist() == [50_000, 50_000, 50_000, 40]
    assert [(issue.kind, issue.count, issue.lost, issue.where) for issue in log.report.issues] == [
        ("implausible_dur", 1, 1, "line 4")
    ]


# 120: self times


def test_120_self_time_is_without_the_union_of_what_lies_inside() -> None:
    report = analyze([SELF_TIME])
    assert self_times(report) == {"module": 25_000, "step": 150_000, "enter": 40_000, "leave": 25_000}
    assert [(lane.overlaps, lane.first_overlap) for lane in report.lanes] == [(2, ["enter", "step"])]


intervals = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 15)), max_size=12)


@given(intervals)
def test_120_against_moments_counted_one_by_one(drawn: list[tuple[int, int]]) -> None:
    spans = sorted(((start, start + lasts) for start, lasts in drawn), key=lambda span: (span[0], -span[1]))
    expected = []
    for index, (start, end) in enumerate(spans):
        inside = set[int]()
        for other, (begin, finish) in enumerate(spans):
            # Of two spans with the same times the later one lies in the other.
            if (
                other != index
                and start <= begin
                and finish <= end
                and ((begin, finish) != (start, end) or other > index)
            ):
                inside |= set(range(begin, finish))
        expected.append(end - start - len(inside))
    starts, ends = (
        np.array(column, dtype=np.int64) for column in (zip(*spans, strict=True) if spans else ([], []))
    )
    assert nest(starts, ends).self_ns.tolist() == expected


# Traces that others write


@pytest.mark.medium
def test_a_trace_of_torch_with_stacks_is_read_whole(tmp_path: Path) -> None:
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    path = tmp_path / "torch.json"
    with profile(activities=[ProfilerActivity.CPU], with_stack=True, record_shapes=True) as profiler:
        for _ in range(3):
            with record_function("step"):
                torch.nn.Linear(8, 8)(torch.ones(2, 8)).sum().backward()
            profiler.step()
    profiler.export_chrome_trace(str(path))
    events = [
        entry
        for entry in json.loads(path.read_text(), parse_float=lambda text: int(text.replace(".", "")))[
            "traceEvents"
        ]
        if entry["ph"] == "X"
    ]
    recording = load_recording([path])
    spans = recording.spans
    rows = np.flatnonzero(spans.kind == Kind.SPAN)
    # Its times have three digits behind the point.
    assert sorted((entry["name"], entry["ts"], entry["dur"]) for entry in events) == sorted(
        (spans.name_of(row), spans.start_ns[row], spans.duration_ns[row]) for row in rows.tolist()
    )
    assert recording.lost == 0
    report = analyze([path])
    assert all(figures.self_ns is None or figures.self_ns >= 0 for figures in report.span_names)
    drawn = tmp_path / "drawn.pftrace"
    assert run("swimlane", path, "-o", drawn) == 0
    packets = Trace.FromString(drawn.read_bytes()).packet
    begins = [packet for packet in packets if packet.track_event.type == TrackEvent.TYPE_SLICE_BEGIN]
    assert len(begins) == len(events)
    assert all(before.timestamp >= 0 for before, _ in pairwise(packets))
