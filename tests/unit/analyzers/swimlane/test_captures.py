"""Swimlanes of the real captures: nothing overlaps on a track, and the documented queries find what they ask for.

The queries are those for trace_processor, put to its tables as SQLite has them, filled from the protobuf.
"""

from __future__ import annotations

import re
import sqlite3
import stat
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from analyzers.errors import UnusableInputError
from analyzers.measurement import measure
from analyzers.recording.recording import load_recording
from analyzers.swimlane import timeline_of, write_timeline
from analyzers.swimlane.queries import QUERIES, ask
from dsv4bench.cli import main
from tests.builders.chrome import dispatch, event, write_trace
from tests.builders.places import REPOSITORY, TRACES
from tests.builders.strace import record, write_log

CAPTURES = sorted(TRACES.glob("*.log"))
DRAWABLE = [path for path in CAPTURES if "warn_level" not in path.name]

SCHEMA = """
CREATE TABLE slice (id INTEGER, ts INTEGER, dur INTEGER, track_id INTEGER, name TEXT, arg_set_id INTEGER);
CREATE TABLE track (id INTEGER, parent_id INTEGER, name TEXT);
CREATE TABLE counter_track (id INTEGER, parent_id INTEGER, name TEXT);
CREATE TABLE counter (ts INTEGER, value REAL, track_id INTEGER);
CREATE TABLE flow (slice_out INTEGER, slice_in INTEGER);
"""


def tables_of(path: Path) -> sqlite3.Connection:
    """The tables of trace_processor that the queries read; flows join the slices of one id in order of time."""
    trace = Trace()
    trace.ParseFromString(path.read_bytes())
    database = sqlite3.connect(":memory:")
    database.executescript(SCHEMA)
    names: dict[str, dict[int, str]] = {"event_names": {}, "debug_annotation_names": {}}
    arguments: dict[int, dict[str, Any]] = {}
    stacks: dict[int, list[int]] = {}
    flows: dict[int, list[tuple[int, int]]] = {}
    for packet in trace.packet:
        for kind, table in names.items():
            table.update((entry.iid, entry.name) for entry in getattr(packet.interned_data, kind))
        if packet.HasField("track_descriptor"):
            _insert_track(database, packet.track_descriptor)
            continue
        event, at_ns = packet.track_event, packet.timestamp
        stack = stacks.setdefault(event.track_uuid, [])
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            number = len(arguments) + 1
            arguments[number] = {
                "debug." + names["debug_annotation_names"][item.name_iid]: _value(item)
                for item in event.debug_annotations
            }
            name = names["event_names"][event.name_iid]
            row = (number, at_ns, None, event.track_uuid, name, number)
            database.execute("INSERT INTO slice VALUES (?, ?, ?, ?, ?, ?)", row)
            stack.append(number)
            for flow in event.flow_ids:
                flows.setdefault(flow, []).append((at_ns, number))
        elif event.type == TrackEvent.TYPE_SLICE_END:
            number = stack.pop()
            database.execute("UPDATE slice SET dur = ? - ts WHERE id = ?", (at_ns, number))
            for flow in event.terminating_flow_ids:
                flows.setdefault(flow, []).append((at_ns, number))
        elif event.type == TrackEvent.TYPE_COUNTER:
            value = event.counter_value or event.double_counter_value
            database.execute("INSERT INTO counter VALUES (?, ?, ?)", (at_ns, value, event.track_uuid))
    for points in flows.values():
        ordered = [number for _, number in sorted(points)]
        database.executemany("INSERT INTO flow VALUES (?, ?)", pairwise(ordered))
    database.create_function("EXTRACT_ARG", 2, lambda number, key: arguments[number].get(key))
    return database


def _insert_track(database: sqlite3.Connection, track: Any) -> None:
    for table in ["track", "counter_track"] if track.HasField("counter") else ["track"]:
        described = (track.uuid, track.parent_uuid, track.name)
        database.execute(f"INSERT INTO {table} VALUES (?, ?, ?)", described)


def _value(item: Any) -> Any:
    return item.int_value if item.HasField("int_value") else item.string_value


def drawn(paths: list[Path], output: Path) -> sqlite3.Connection:
    recording = load_recording(paths)
    write_timeline(timeline_of(measure(recording)), output)
    return tables_of(output)


@pytest.mark.parametrize("path", DRAWABLE, ids=lambda path: path.stem)
def test_no_two_slices_of_a_capture_overlap_without_nesting(path: Path, tmp_path: Path) -> None:
    database = drawn([path], tmp_path / "capture.pftrace")
    assert database.execute("SELECT COUNT(*) FROM slice").fetchone()[0] > 10
    assert database.execute(QUERIES["slices that overlap without nesting (none)"]).fetchall() == []
    for name, query in QUERIES.items():
        assert database.execute(query).description, name


def test_the_largest_skews_are_those_of_the_capture(tmp_path: Path) -> None:
    [path] = [path for path in CAPTURES if path.name == "simpler-l3_pipe_n2_depth2.log"]
    database = drawn([path], tmp_path / "capture.pftrace")
    skews = [row[1] for row in database.execute(QUERIES["the ten largest runner-end skews"])]
    # The README beside the captures: 15.985 15.900 51.904 23.892 79.899 7.901 ms.
    assert [round(skew / 1e6, 3) for skew in skews] == [79.899, 51.904, 23.892, 15.985, 15.9, 7.901]


@pytest.fixture
def dispatched(tmp_path: Path) -> sqlite3.Connection:
    """Two steps on two ranks, worked out by hand; the runs name no step, and the waits carry nothing."""
    events, records = [], []
    for step in (1, 2):
        at = 1_000 * step
        events += [
            event("WorkerProcess.dispatch_decode", at, 20, tid=3, step_id=step),
            event("WorkerProcess.reclaim_decode", at + 30, 900, tid=4, step_id=step),
            *dispatch((at + 5, at + 15), (at + 40, at + 920), step_id=step, dispatch_id=step),
        ]
        for rank in (0, 1):
            runner_start = 1_000 * (at + 50 + rank)
            records += [
                record("chip.run.runner_run", runner_start, 800_000, pid=10 + rank, inv=step),
                record("chip.run", 1_000 * (at + 45), 810_000, pid=10 + rank, inv=step, dispatch_id=step),
            ]
    write_trace(tmp_path / "trace.json", events)
    write_log(tmp_path / "server.log", *records)
    return drawn([tmp_path / "trace.json", tmp_path / "server.log"], tmp_path / "swimlane.pftrace")


def test_the_documented_queries_answer_for_a_run_worked_out_by_hand(dispatched: sqlite3.Connection) -> None:
    answers = {question: dispatched.execute(query).fetchall() for question, query in QUERIES.items()}
    # From the submit at +5 to the end of the wait at +920 us.
    assert answers["submit-to-completion of every step"] == [(1, 915_000), (2, 915_000)]
    assert [
        (step, rank[:6], start) for step, rank, start, _ in answers["runners of every step, rank by rank"]
    ] == [
        (1, "rank 0", 1_050_000),
        (1, "rank 1", 1_051_000),
        (2, "rank 0", 2_050_000),
        (2, "rank 1", 2_051_000),
    ]
    assert [value for _, value in answers["the ten largest runner-end skews"]] == [1_000, 1_000]
    assert answers["flows between submit, runners and wait"] == [
        ("chip.run.runner_run", "decode.worker_wait", 4),
        ("decode.worker_submit", "chip.run.runner_run", 4),
    ]
    assert answers["slices that overlap without nesting (none)"] == []


def test_the_overlap_query_would_find_one(dispatched: sqlite3.Connection) -> None:
    dispatched.execute(
        "INSERT INTO slice SELECT 999, ts + dur / 2, dur, track_id, 'late', id FROM slice LIMIT 1"
    )
    # The first slice is a dispatch from 1000 to 1020 us, with a submit from 1005 to 1015 in it.
    found = dispatched.execute(QUERIES["slices that overlap without nesting (none)"]).fetchall()
    assert found == [
        ("WorkerProcess.dispatch_decode", "late", "device"),
        ("decode.worker_submit", "late", "device"),
    ]


def test_the_documented_queries_are_the_ones_that_are_put() -> None:
    text = (REPOSITORY / "docs" / "swimlane.md").read_text()
    documented = [block.strip() for block in re.findall(r"```sql\n(.*?)```", text, re.DOTALL)]
    assert documented == [query.strip() for query in QUERIES.values()]


def binary(directory: Path, script: str) -> Path:
    path = directory / "trace_processor"
    path.write_text(f"#!{sys.executable}\n{script}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_trace_processor_is_asked_when_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # It prints the file of the query that follows -q, and the trace.
    asked = binary(
        tmp_path, "import sys\nprint(open(sys.argv[sys.argv.index('-q') + 1]).read(), sys.argv[-1])"
    )
    output = tmp_path / "swimlane.pftrace"
    monkeypatch.setenv("TRACE_PROCESSOR", str(asked))
    monkeypatch.setattr(sys, "argv", ["dsv4bench", "swimlane", str(DRAWABLE[0]), "-o", str(output)])
    with pytest.raises(SystemExit) as exit_info:
        main()
    assert not exit_info.value.code
    printed = capsys.readouterr().out
    for question, query in QUERIES.items():
        assert f"{question}\n{query}" in printed
    assert printed.count(str(output)) == len(QUERIES) + 1


def test_a_trace_processor_that_fails_is_named(tmp_path: Path) -> None:
    failing = binary(tmp_path, "import sys\nsys.exit('no such table: slice')")
    with pytest.raises(UnusableInputError, match="exit code 1: no such table: slice"):
        ask(failing, tmp_path / "x.pftrace", "SELECT 1")
    with pytest.raises(UnusableInputError, match="cannot be asked"):
        ask(tmp_path / "missing", tmp_path / "x.pftrace", "SELECT 1")
