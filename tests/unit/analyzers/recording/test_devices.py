"""Which process wrote a record, which rank it is and which device it drives: each from what names it, or unknown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analyzers.analysis import analyze, analyze_recording
from analyzers.export import run_query
from analyzers.measurement import measure
from analyzers.readers.log_processes import parse_visible_devices
from analyzers.readers.strace import read_strace
from analyzers.recording.membership import units_of
from analyzers.recording.recording import load_recording
from analyzers.report.tables import report_tables
from analyzers.rundir import (
    RankProcess,
    RunDirectory,
)
from analyzers.swimlane import timeline_of, write_timeline
from analyzers.table.processes import merged_pids
from analyzers.table.spans import Clock, Lane, Source, SpanTableBuilder
from tests.builders.manifests import write_manifest
from tests.builders.places import CASES
from tests.builders.strace import ready, record, write_log


def anchor(pid: int, mono_ns: int, wall_ns: int | None = None) -> str:
    wall = mono_ns + 1_000_000 if wall_ns is None else wall_ns
    return f"[CLOCK_ANCHOR] v=1 pid={pid} mono_ns={mono_ns} wall_ns={wall}"


def root(pid: int, inv: int, start: int, **ids: Any) -> str:
    return record("chip.run", start, 50, pid=pid, inv=inv, **ids)


def incarnations(*lines: str) -> list[int]:
    spans = read_strace("\n".join(lines).encode(), "a.log").spans
    return [spans.lane_of(row).incarnation for row in range(len(spans))]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        # A second ready line of the pid; the process began with the anchor before it.
        ([anchor(7, 0), ready(7, 0), root(7, 1, 10), anchor(7, 90), root(7, 5, 95), ready(7, 0)], [0, 1]),
        ([ready(7, 0), root(7, 1, 10), ready(7, 0), root(7, 2, 100)], [0, 1]),
        # Invocations that begin again behind an anchor.
        ([anchor(7, 0), root(7, 1, 10), root(7, 2, 20), anchor(7, 90), root(7, 1, 100)], [0, 0, 1]),
        # A clock that went back: another host's.
        ([anchor(7, 500), root(7, 1, 600), anchor(7, 90), root(7, 9, 100)], [0, 1]),
        # The same process, which read its clocks once more.
        ([anchor(7, 0), ready(7, 0), root(7, 1, 10), anchor(7, 90), root(7, 2, 100)], [0, 0]),
        # Three of them; the second read its clocks twice.
        (
            [
                *(anchor(7, 0), root(7, 1, 10), anchor(7, 90), root(7, 1, 100)),
                *(anchor(7, 190), root(7, 2, 200), anchor(7, 290), root(7, 1, 300)),
            ],
            [0, 1, 1, 2],
        ),
        # Other pids have nothing to do with it.
        ([ready(7, 0), ready(8, 1), root(7, 1, 10), root(8, 1, 10), ready(8, 1), root(7, 2, 60)], [0, 0, 0]),
    ],
)
def test_a_pid_that_is_used_again_is_another_process(lines: list[str], expected: list[int]) -> None:
    assert incarnations(*lines) == expected


def test_lines_of_processes_without_records_are_told_apart_as_well() -> None:
    log = read_strace("\n".join([anchor(7, 0), ready(7, 3), anchor(7, 9), ready(7, 4)]).encode(), "a.log")
    assert [(line.logical_device, line.incarnation) for line in log.processes.ready] == [(3, 0), (4, 1)]
    assert [line.incarnation for line in log.processes.anchors] == [0, 1]


def test_runs_of_two_processes_with_one_pid_are_never_mixed(tmp_path: Path) -> None:
    lines = []
    for first, life in ((0, 0), (1_000, 1)):
        for pid in (7, 8):
            lines += [anchor(pid, first + pid), ready(pid, pid - 7)]
        for index in range(2):
            # In the second life rank 1 has one run less.
            pids = (7, 8) if life == 0 or index == 0 else (7,)
            start = first + 100 + 100 * index
            lines += [root(pid, index + 1, start + pid, dispatch_id=index + 1) for pid in pids]
    recording = load_recording([write_log(tmp_path / "server.log", *lines)])
    assert recording.ranks.conflicts == []
    assert recording.spans.pid.tolist() == [7, 8, 7, 8, 7, 8, 7]
    report = analyze_recording(recording)
    assert report.ranks.lives == 2
    figures = [(skew.matched_by, skew.rounds, skew.roots) for skew in report.skew]
    assert figures == [("dispatch_id", 2, 4), ("dispatch_id", 2, 3)]
    assert [[entry.missing_ranks for entry in skew.incomplete] for skew in report.skew] == [[], [[1]]]
    assert [skew.step_end_skew.max for skew in report.skew] == [1, 1]
    rows = run_query(
        recording.spans, "select pid, orig_pid, rank, count(*) from spans group by all order by all"
    ).rows
    # The first lives keep their pids.
    assert rows == [(7, 7, 0, 2), (8, 8, 1, 2), (9, 7, 0, 2), (10, 8, 1, 1)]


def test_a_rank_that_is_started_again_in_its_own_log_is_no_conflict(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    apart = load_recording([write_log(log, root(11, 1, 100), root(12, 1, 200))])
    assert (apart.spans.rank.tolist(), apart.ranks.conflicts) == ([0, 0], [])
    # Two at a time are.
    [(rank, processes)] = load_recording([write_log(log, root(11, 1, 100), root(12, 1, 120))]).ranks.conflicts
    assert (rank, [pid for _, pid in processes]) == (0, [11, 12])


def test_invocations_of_two_processes_with_one_pid_are_different_steps() -> None:
    lines = [anchor(7, 0), root(7, 1, 10), root(7, 2, 70), anchor(7, 190), root(7, 1, 200)]
    log = read_strace("\n".join(lines).encode(), "rank-0.log")
    spans = log.spans.with_ranks(np.zeros(3, dtype=np.int64))
    assert len(set(units_of(spans).tolist())) == 3


def test_equal_pids_in_the_logs_of_several_ranks(tmp_path: Path) -> None:
    paths = [
        write_log(tmp_path / f"host{rank}.log", ready(1, rank), root(1, 1, 100 + rank)) for rank in (0, 1)
    ]
    recording = load_recording(paths)
    assert recording.spans.rank.tolist() == [0, 1]
    assert recording.spans.logical_device.tolist() == [0, 1]
    assert recording.ranks.conflicts == []
    rows = run_query(recording.spans, "select rank, pid, orig_pid from spans order by rank").rows
    assert rows == [(0, 1, 1), (1, 2, 1)]


def test_43_a_merged_timeline_gives_each_rank_its_own_pid(tmp_path: Path) -> None:
    case = CASES / "43-same-pid-in-every-rank"
    recording = load_recording([case / "rank0.json", case / "rank1.json"])
    write_timeline(timeline_of(measure(recording)), tmp_path / "s.json")
    events = json.loads((tmp_path / "s.json").read_text())["traceEvents"]
    drawn = [event for event in events if event["ph"] == "X"]
    assert [(event["pid"], event["args"], event["dur"]) for event in drawn] == [
        (1, {"orig_pid": 1}, 10),
        (2, {"orig_pid": 1}, 14),
    ]
    rows = run_query(recording.spans, "select rank, pid, orig_pid, tid from spans order by rank").rows
    assert rows == [(0, 1, 1, 1), (1, 2, 1, 1)]


def test_one_process_in_several_files_keeps_one_pid() -> None:
    table = SpanTableBuilder(Source.SERVING)
    table.append("a", 0, 1, Lane("trace.json", 5, 1), clock=Clock.HOST)
    table.append("node.submit", 0, 1, Lane("server.log", 5, 5), clock=Clock.HOST)
    table.append("chip.run", 0, 1, Lane("rank-0.log", 6, 6), clock=Clock.HOST, rank=0)
    table.append("b", 0, 1, Lane("kineto.json", 5, 1), clock=Clock.FILE)
    table.append("b", 0, 1, Lane("kineto.json", "Spans", 1), clock=Clock.FILE)
    assert merged_pids(table.build()).tolist() == [5, 5, 6, 7, -1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("4,5, 6", {0: 4, 1: 5, 2: 6}), ("7", {0: 7}), ("", {}), ("4,x", {}), ("0-3", {}), ("4;5", {})],
)
def test_a_list_of_visible_devices_is_believed_whole_or_not_at_all(
    text: str, expected: dict[int, int]
) -> None:
    assert parse_visible_devices(text) == expected


def devices_of(*paths: Path) -> list[tuple[int, int | None, int | None]]:
    return [
        (entry.rank, entry.logical_device, entry.physical_device) for entry in analyze(paths).ranks.devices
    ]


def test_a_ready_line_names_the_logical_device_and_the_environment_maps_it(tmp_path: Path) -> None:
    lines = [ready(7, 0), ready(8, 1), root(7, 1, 10), root(8, 1, 10)]
    assert devices_of(write_log(tmp_path / "a.log", *lines)) == [(0, 0, None), (1, 1, None)]
    exported = "export ASCEND_RT_VISIBLE_DEVICES=6,4"
    assert devices_of(write_log(tmp_path / "b.log", exported, *lines)) == [(0, 0, 6), (1, 1, 4)]
    # Two lists contradict each other: no process says which is its own.
    other = "export ASCEND_RT_VISIBLE_DEVICES=1,2"
    assert devices_of(write_log(tmp_path / "c.log", exported, other, *lines)) == [(0, 0, None), (1, 1, None)]
    logged = "device id: acl 1 -> hal 5"
    assert devices_of(write_log(tmp_path / "d.log", logged, *lines)) == [(0, 0, None), (1, 1, 5)]


def run_directory(path: Path, device_map: list[RankProcess], environment: dict[str, str]) -> Path:
    run = RunDirectory(path)
    for entry in device_map:
        write_log(run.rank_log(entry.rank), root(entry.pid, 1, 100))
    write_manifest(run, device_map=device_map, environment=environment)
    return path


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"ASCEND_RT_VISIBLE_DEVICES": "4,5,6,7"}, [(0, 3, 7), (1, 2, 6)]),
        ({}, [(0, 3, None), (1, 2, None)]),
        ({"ASCEND_RT_VISIBLE_DEVICES": "4,5"}, [(0, 3, None), (1, 2, None)]),
        # In a container the driver's numbers are not the host's.
        (
            {"ASCEND_RT_VISIBLE_DEVICES": "4,5,6,7", "ASCEND_VISIBLE_DEVICES": "8,9"},
            [(0, 3, None), (1, 2, None)],
        ),
    ],
)
def test_the_manifest_s_environment_maps_logical_devices(
    tmp_path: Path, environment: dict[str, str], expected: list[tuple[int, int | None, int | None]]
) -> None:
    device_map = [RankProcess(0, 70, "npu:3"), RankProcess(1, 71, "npu:2")]
    assert devices_of(run_directory(tmp_path, device_map, environment)) == expected


def test_a_manifest_may_name_both_devices_and_a_rank_on_the_host_has_none(tmp_path: Path) -> None:
    device_map = [
        RankProcess(0, 70, "npu:3", logical_device=3, physical_device=11),
        RankProcess(1, 71, "cpu:1"),
    ]
    listed = {"ASCEND_RT_VISIBLE_DEVICES": "4,5,6,11"}
    assert devices_of(run_directory(tmp_path / "a", device_map, listed)) == [(0, 3, 11), (1, None, None)]
    # The list says 7, the device map 11: unknown.
    listed = {"ASCEND_RT_VISIBLE_DEVICES": "4,5,6,7"}
    assert devices_of(run_directory(tmp_path / "b", device_map, listed)) == [(0, 3, None), (1, None, None)]


def test_an_older_manifest_is_read(tmp_path: Path) -> None:
    run = run_directory(tmp_path, [RankProcess(0, 70, "cpu:0")], {})
    path = RunDirectory(run).manifest
    old = json.loads(path.read_text())
    del old["environment"]
    for entry in old["device_map"]:
        del entry["logical_device"], entry["physical_device"]
    path.write_text(json.dumps(old))
    assert devices_of(run) == [(0, None, None)]


def test_devices_that_are_not_counted_from_0_do_not_name_ranks_that_the_scheduler_names(
    tmp_path: Path,
) -> None:
    lines = [ready(7, 9), ready(8, 8)]
    for pid, worker, start in ((7, 0, 100), (8, 1, 300)):
        lines += [
            record("node.dispatch", start - 10, 1, pid=5, inv=0, worker_id=worker),
            root(pid, 1, start),
            record("node.complete", start + 60, 1, pid=5, inv=0, worker_id=worker),
        ]
    assert devices_of(write_log(tmp_path / "server.log", *lines)) == [(0, 9, None), (1, 8, None)]
    without = [line for line in lines if "name=node" not in line]
    # Nothing but the ready lines is left: ranks in the order of the devices.
    assert devices_of(write_log(tmp_path / "ranks.log", *without)) == [(0, 8, None), (1, 9, None)]


def kineto(path: Path, rank: int, events: list[dict[str, Any]], **around: object) -> Path:
    rows = [{"ph": "X", "ts": 1, "dur": 1, **event} for event in events]
    path.write_text(json.dumps({"distributedInfo": {"rank": rank}, **around, "traceEvents": rows}))
    return path


def test_a_trace_s_events_name_the_device_of_its_rank(tmp_path: Path) -> None:
    cpu: dict[str, Any] = {"name": "aten::mm", "pid": 900, "tid": 900, "args": {"External id": 1}}
    stream: dict[str, Any] = {"name": "mm", "pid": 1, "tid": 7, "args": {"device": 1, "stream": 7}}
    trace = kineto(tmp_path / "a.json", 6, [cpu, stream], ASCEND_RT_VISIBLE_DEVICES="4,5")
    spans = load_recording([trace]).spans
    assert spans.logical_device.tolist() == [1, 1]
    assert spans.physical_device.tolist() == [5, 5]
    # Two devices in one rank's trace: each stream has its own, the host's threads drive both.
    other: dict[str, Any] = {"name": "mm", "pid": 0, "tid": 7, "args": {"Device Id": 0}}
    both = load_recording([kineto(tmp_path / "b.json", 6, [cpu, stream, other])]).spans
    assert both.logical_device.tolist() == [-1, 1, 0]
    assert both.physical_device.tolist() == [-1, -1, -1]


def test_a_trace_without_device_events_has_the_only_device_that_it_lists(tmp_path: Path) -> None:
    event: dict[str, Any] = {"name": "aten::mm", "pid": 9, "tid": 9}
    one = kineto(tmp_path / "a.json", 0, [event], deviceProperties=[{"id": 3}])
    assert load_recording([one]).spans.logical_device.tolist() == [3]
    two = kineto(tmp_path / "b.json", 0, [event], deviceProperties=[{"id": 0}, {"id": 1}])
    assert load_recording([two]).spans.logical_device.tolist() == [-1]


def test_the_report_has_rank_and_both_devices_as_columns_and_unknown_is_unavailable(tmp_path: Path) -> None:
    log = write_log(tmp_path / "a.log", ready(7, 0), ready(8, 1), root(7, 1, 10), root(8, 1, 10))
    tables = {table.title: table for table in report_tables(analyze([log]))}
    table = tables["Devices of the ranks"]
    assert [column.heading for column in table.columns[:3]] == ["rank", "logical device", "physical device"]
    assert [row[:4] for row in table.written()] == [
        ["0", "0", "unavailable", "7"],
        ["1", "1", "unavailable", "8"],
    ]
    [last] = [table for title, table in tables.items() if title.startswith("Last ranks")]
    assert [row[:3] for row in last.written()] == [["0", "0", "unavailable"], ["1", "1", "unavailable"]]
    query = "select rank, logical_device, physical_device from spans order by rank"
    assert run_query(load_recording([log]).spans, query).rows == [(0, 0, None), (1, 1, None)]
