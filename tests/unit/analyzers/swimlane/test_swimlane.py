"""A small recording worked out by hand: one engine process, two ranks, two dispatches in flight."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackDescriptor, TrackEvent

from analyzers.errors import NoDataError, UnusableInputError
from analyzers.readers.request_timing import RequestTiming
from analyzers.readers.strace import read_strace
from analyzers.recording.rank_naming import assign_ranks, rank_column
from analyzers.swimlane import Timeline, write_timeline
from analyzers.swimlane.model import Track
from analyzers.table.spans import Clock, Kind, Lane, Source, SpanTable, SpanTableBuilder, concatenate
from dsv4bench.cli.swimlane import swimlane
from tests.builders.recordings import timeline_from
from tests.builders.spans import Spans
from tests.builders.strace import logged, ready, record, write_log

TRACE, LOG = "trace.json", "server.log"
ENGINE, RANK_0, RANK_1 = 10, 20, 21
DECODE = "deepseek_v4_decode_mtp_fused"


IN_FLIGHT = [(1_500, 1), (2_600, 2), (9_000, 1), (15_000, 0)]
START_SKEW = [(2_050, 50), (8_850, 750)]
END_SKEW = [(8_700, 700), (14_400, 500)]


def serving() -> SpanTable:
    table = Spans(Source.SERVING, pid=ENGINE)

    def add(tid: int, name: str, start_ns: int, end_ns: int, **ids: Any) -> None:
        table.add(name, start_ns, end_ns, tid, **ids)

    add(101, "http.completions", 500, 16_000, category="request", arguments={"request_id": "a"})
    add(102, "http.completions", 600, 15_500, category="request", arguments={"request_id": "b"})
    add(101, "request.queued", 550, 550, kind=Kind.INSTANT)
    add(1, "scheduler.schedule", 700, 800)
    add(2, "WorkerProcess.prepare_decode", 800, 950, step_id=7, slot=0)
    # Written at its end, so the inner span comes first; both have the same times.
    add(3, f"{DECODE}.worker_submit", 1_000, 1_500, step_id=7, dispatch_id=1, slot=0)
    add(3, "WorkerProcess.dispatch_decode", 1_000, 1_500, step_id=7, slot=0)
    add(3, f"{DECODE}.worker_submit", 2_000, 2_600, step_id=8, dispatch_id=2, slot=1)
    add(4, f"{DECODE}.worker_wait", 1_600, 9_000, step_id=7, dispatch_id=1)
    add(4, f"{DECODE}.worker_wait", 9_100, 15_000, step_id=8, dispatch_id=2)
    table.process_names[TRACE, ENGINE] = "engine"
    table.thread_names[Lane(TRACE, ENGINE, 3)] = "device lane"
    return table.build()


def ranks() -> SpanTable:
    table = Spans(Source.STRACE)

    def add(rank: int, inv: int, name: str, start_ns: int, end_ns: int, depth: int, **more: Any) -> None:
        ids = {"pid": (RANK_0, RANK_1)[rank], "rank": rank, "invocation": inv, "depth": depth, **more}
        table.add(name, start_ns, end_ns, category="chip", **ids)

    add(0, 1, "chip.run.bind", 1_250, 1_900, 1)
    add(0, 1, "chip.run.runner_run", 2_000, 8_000, 1)
    add(0, 1, "chip.run.runner_run.device_wall", 0, 5_500, 2, clock=Clock.DEVICE)
    add(0, 1, "chip.run.runner_run.device_wall.orch", 100, 3_000, 3, clock=Clock.DEVICE)
    add(0, 1, "chip.run.runner_run.device_wall.sched", 2_000, 5_000, 3, clock=Clock.DEVICE)
    add(0, 1, "chip.run", 1_200, 8_500, 0, slot=0, dispatch_id=1)
    add(0, 2, "chip.run.bind", 2_400, 3_000, 1)
    add(0, 2, "chip.run.runner_run", 8_100, 13_900, 1)
    add(0, 2, "chip.run.runner_run.device_wall", 0, 5_801, 2, clock=Clock.DEVICE)
    add(0, 2, "chip.run", 2_300, 14_000, 0, slot=1, dispatch_id=2)
    add(1, 1, "chip.run.runner_run", 2_050, 8_700, 1)
    add(1, 1, "chip.run", 1_300, 8_800, 0, slot=0, dispatch_id=1)
    add(1, 2, "chip.run.runner_run", 8_850, 14_400, 1)
    add(1, 2, "chip.run", 2_500, 14_500, 0, slot=1, dispatch_id=2)
    return table.build()


@pytest.fixture
def timeline() -> Timeline:
    return timeline_from(concatenate([serving(), ranks()]))


def track(timeline: Timeline, group: str, name: str) -> Track:
    (found,) = [
        track for item in timeline.groups if item.name == group for track in item.tracks if track.name == name
    ]
    return found


def times(track: Track) -> list[tuple[str, int, int]]:
    return [(item.name.removeprefix("chip.run"), item.start_ns, item.end_ns) for item in track.slices]


def assert_only_nesting(timeline: Timeline) -> None:
    for lane in timeline.tracks():
        for first, second in itertools.combinations(lane.slices, 2):
            disjoint = first.end_ns <= second.start_ns or second.end_ns <= first.start_ns
            inside = first.start_ns <= second.start_ns and second.end_ns <= first.end_ns
            assert disjoint or inside, (lane.name, first.name, second.name)


def test_groups_and_tracks_come_in_reading_order(timeline: Timeline) -> None:
    assert [(group.name, [track.name for track in group.tracks]) for group in timeline.groups] == [
        ("engine (pid 10)", ["API", "API 2", "engine", "prepare", "device", "output"]),
        ("rank 0 (pid 20)", ["slot 0", "slot 0, device", "slot 0, device (2)", "slot 1"]),
        ("rank 1 (pid 21)", ["slot 0", "slot 1"]),
    ]


def test_every_slot_is_a_lane_and_the_next_bind_never_looks_nested(timeline: Timeline) -> None:
    assert times(track(timeline, "rank 0 (pid 20)", "slot 0")) == [
        ("", 1_200, 8_500),
        (".bind", 1_250, 1_900),
        (".runner_run", 2_000, 8_000),
    ]
    assert times(track(timeline, "rank 0 (pid 20)", "slot 1")) == [
        ("", 2_300, 14_000),
        (".bind", 2_400, 3_000),
        (".runner_run", 8_100, 13_900),
    ]
    assert_only_nesting(timeline)


def test_device_spans_lie_inside_their_own_runner_run(timeline: Timeline) -> None:
    # The device counted from 0; its runner_run began at 2000. orch and sched overlap, so sched gets a lane.
    assert times(track(timeline, "rank 0 (pid 20)", "slot 0, device")) == [
        (".runner_run.device_wall", 2_000, 7_500),
        (".runner_run.device_wall.orch", 2_100, 5_000),
    ]
    assert times(track(timeline, "rank 0 (pid 20)", "slot 0, device (2)")) == [
        (".runner_run.device_wall.sched", 4_000, 7_000)
    ]


def test_a_device_span_that_fits_no_runner_run_is_left_out_and_counted(timeline: Timeline) -> None:
    # 5801 ns on the device do not fit the 5800 ns of runner_run.
    assert timeline.left_out == {"device spans longer than their runner_run": 1}


def test_of_two_spans_with_equal_times_the_one_written_last_encloses(timeline: Timeline) -> None:
    names = [item.name for item in track(timeline, "engine (pid 10)", "device").slices]
    assert names[:2] == ["WorkerProcess.dispatch_decode", f"{DECODE}.worker_submit"]


def test_requests_that_overlap_get_lanes_of_their_own(timeline: Timeline) -> None:
    first, second = (track(timeline, "engine (pid 10)", name) for name in ("API", "API 2"))
    assert first.slices[0].args["request_id"] == "a"
    assert second.slices[0].args["request_id"] == "b"
    assert [(instant.name, instant.at_ns) for instant in first.instants] == [("request.queued", 550)]


def test_a_flow_goes_from_the_submit_over_each_rank_to_the_wait(timeline: Timeline) -> None:
    points: dict[int, list[tuple[str, str, int]]] = {}
    for group in timeline.groups:
        for lane in group.tracks:
            for item in lane.slices:
                for flow, phase in item.flows:
                    points.setdefault(flow, []).append((phase.value, group.name[:6], item.start_ns))
    assert points == {
        1: [("begin", "engine", 1_000), ("end", "engine", 1_600), ("step", "rank 0", 2_000)],
        2: [("begin", "engine", 1_000), ("end", "engine", 1_600), ("step", "rank 1", 2_050)],
        3: [("begin", "engine", 2_000), ("end", "engine", 9_100), ("step", "rank 0", 8_100)],
        4: [("begin", "engine", 2_000), ("end", "engine", 9_100), ("step", "rank 1", 8_850)],
    }


def test_dispatches_in_flight_count_from_the_return_of_the_submit_to_the_end_of_the_wait(
    timeline: Timeline,
) -> None:
    counter = timeline.groups[0].counters[0]
    assert counter.name == "dispatches in flight"
    assert counter.points == IN_FLIGHT


def test_skews_are_counted_from_the_moment_the_last_rank_starts_or_ends(timeline: Timeline) -> None:
    # The runners of dispatch 1: 2000 to 8000 and 2050 to 8700; of dispatch 2: 8100 to 13900 and 8850 to 14400.
    assert [(counter.name, counter.points) for counter in timeline.groups[0].counters[1:]] == [
        ("runner-start skew (ns)", START_SKEW),
        ("runner-end skew (ns)", END_SKEW),
    ]
    assert [group.counters for group in timeline.groups[1:]] == [[], []]


def request(*chunks: tuple[int, int], proposed: int = 1) -> RequestTiming:
    return RequestTiming("a", "measured", chunks=chunks, steps=1, proposed=proposed)


def test_acceptance_is_what_a_step_gave_a_request_on_average() -> None:
    # The waits end at 9000 and 15000. First and last output of a request do not count.
    requests = [
        request((500, 1), (9_010, 2), (15_010, 1), (16_000, 1)),
        request((500, 1), (9_020, 1), (15_020, 1), (16_000, 2)),
        request((500, 1), (8_000, 2), (9_020, 2), (16_000, 2)),
        request((500, 1), (9_020, 3), (16_000, 2), proposed=0),
    ]
    counters = timeline_from(serving(), requests).groups[0].counters
    assert [counter.name for counter in counters] == ["dispatches in flight", "acceptance length"]
    # After 9000: 2, 1 and 2 tokens; after 15000: 1 and 1. What arrived at 8000 belongs to no step of the trace.
    assert counters[1].points == [(9_000, 5 / 3), (15_000, 1.0)]


def test_spans_of_other_producers_have_lanes_of_their_own() -> None:
    table = Spans(Source.STRACE)
    for name, category, start_ns, end_ns in [
        ("chip.run", "chip", 0, 100),
        ("ext.dsv4bench.bind_ahead", "ext", 50, 150),
        ("ext.other.copy", "ext", 120, 160),
    ]:
        table.add(
            name, start_ns, end_ns, rank=0, invocation=1 if category == "chip" else -1, category=category
        )
    (group,) = timeline_from(table.build()).groups
    assert [lane.name for lane in group.tracks] == ["run", "ext.dsv4bench.bind_ahead", "ext.other.copy"]


def test_spans_inside_a_step_know_it_without_carrying_it() -> None:
    table = Spans(Source.SERVING)
    table.add("WorkerProcess.reclaim_decode", 0, 100, step_id=4)
    table.add("decode.worker_wait", 10, 90)
    table.add("WorkerProcess.other", 110, 120)
    (track,) = timeline_from(table.build()).tracks()
    assert [item.args.get("step_id") for item in track.slices] == [4, 4, None]


def test_every_span_of_a_run_knows_its_dispatch_and_step(timeline: Timeline) -> None:
    for lane in ("slot 0", "slot 0, device"):
        for item in track(timeline, "rank 0 (pid 20)", lane).slices:
            assert (item.args["dispatch_id"], item.args["step_id"]) == (1, 7)
    assert track(timeline, "rank 1 (pid 21)", "slot 1").slices[0].args["callable"] == DECODE
    assert track(timeline, "engine (pid 10)", "prepare").slices[0].args == {"step_id": 7, "slot": 0}


class Drawn(NamedTuple):
    group: str
    track: str
    name: str
    start_ns: int
    end_ns: int
    args: str


def drawn_in_chrome(path: Path) -> tuple[list[Drawn], dict[int, list[str]], list[tuple[int, int]]]:
    text = path.read_text()
    events = json.loads(text, parse_float=str)["traceEvents"]

    def ns(number: str | int) -> int:
        whole, _, fraction = str(number).partition(".")
        return int(whole) * 1000 + int(fraction.ljust(3, "0"))

    names = {
        (event["name"], event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["name"] in ("process_name", "thread_name")
    }
    slices = []
    flows: dict[int, list[str]] = {}
    counter = []
    for event in events:
        if event["ph"] == "X":
            group = names["process_name", event["pid"], 0]
            lane = names["thread_name", event["pid"], event["tid"]]
            end_ns = ns(event["ts"]) + ns(event["dur"])
            args = json.dumps(event["args"], sort_keys=True)
            slices.append(Drawn(group, lane, event["name"], ns(event["ts"]), end_ns, args))
        elif event["ph"] in "stf":
            flows.setdefault(event["id"], []).append(event["ph"])
        elif event["ph"] == "C":
            counter.append((ns(event["ts"]), event["args"]["value"]))
    return slices, flows, counter


def packets(path: Path) -> Iterator[TracePacket]:
    trace = Trace()
    trace.ParseFromString(path.read_bytes())
    yield from trace.packet


def drawn_in_perfetto(path: Path) -> tuple[list[Drawn], dict[int, list[str]], list[tuple[int, int]]]:
    tables: dict[str, dict[int, str]] = {"event_names": {}, "debug_annotation_names": {}}
    tracks: dict[int, TrackDescriptor] = {}
    stacks: dict[int, list[tuple[str, int, str]]] = {}
    slices = []
    flows: dict[int, list[str]] = {}
    counter = []
    for packet in packets(path):
        for kind, table in tables.items():
            table.update((entry.iid, entry.name) for entry in getattr(packet.interned_data, kind))
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
            continue
        event = packet.track_event
        stack = stacks.setdefault(event.track_uuid, [])
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            args = {
                tables["debug_annotation_names"][item.name_iid]: item.int_value
                if item.HasField("int_value")
                else item.string_value
                for item in event.debug_annotations
            }
            name = tables["event_names"][event.name_iid]
            stack.append((name, packet.timestamp, json.dumps(args, sort_keys=True)))
            for flow in event.flow_ids:
                flows.setdefault(flow, []).append("at start")
        elif event.type == TrackEvent.TYPE_SLICE_END:
            name, start_ns, text = stack.pop()
            lane = tracks[event.track_uuid]
            group = tracks[lane.parent_uuid].name
            slices.append(Drawn(group, lane.name, name, start_ns, packet.timestamp, text))
            for flow in event.terminating_flow_ids:
                flows.setdefault(flow, []).append("ended")
        elif event.type == TrackEvent.TYPE_COUNTER:
            counter.append((packet.timestamp, event.counter_value))
    assert not any(stacks.values())
    return slices, flows, counter


def test_chrome_json_and_perfetto_show_the_same(tmp_path: Path) -> None:
    spans = concatenate([serving(), ranks()])
    timeline = timeline_from(spans)
    chrome = write_timeline(timeline, tmp_path / "swimlane.json")
    perfetto = write_timeline(timeline, tmp_path / "swimlane.pftrace")
    chrome_slices, chrome_flows, chrome_counter = drawn_in_chrome(tmp_path / "swimlane.json")
    slices, flows, counter = drawn_in_perfetto(tmp_path / "swimlane.pftrace")
    assert sorted(slices) == sorted(chrome_slices)
    assert counter == chrome_counter == IN_FLIGHT + START_SKEW + END_SKEW
    assert {flow: sorted(phases) for flow, phases in chrome_flows.items()} == {
        flow: ["f", "s", "t"] for flow in (1, 2, 3, 4)
    }
    assert {flow: sorted(points) for flow, points in flows.items()} == {
        flow: ["at start", "at start", "ended"] for flow in (1, 2, 3, 4)
    }
    # 9 serving spans; 12 of 14 rank spans are on the host, 3 of the 4 device spans fit.
    assert chrome.slices == perfetto.slices == len(slices) == 22
    assert (chrome.format, chrome.groups, chrome.tracks, chrome.flows) == ("chrome", 3, 12, 4)
    assert (perfetto.format, perfetto.groups, perfetto.tracks, perfetto.flows) == ("perfetto", 3, 12, 4)
    assert chrome.left_out == {"device spans longer than their runner_run": 1}
    assert list(tmp_path.glob("*.partial")) == []


def test_chrome_times_keep_every_nanosecond(tmp_path: Path) -> None:
    table = Spans(Source.STRACE)
    table.add("node.submit", 9_007_199_254_740_993, 9_007_199_254_740_994, category="node")
    write_timeline(timeline_from(table.build()), tmp_path / "s.json")
    # 2**53 + 1 ns: no float holds it.
    assert '"ts":9007199254740.993,"dur":0.001,' in (tmp_path / "s.json").read_text()


def test_perfetto_tracks_are_ordered_explicitly(tmp_path: Path) -> None:
    write_timeline(timeline_from(concatenate([serving(), ranks()])), tmp_path / "s.pftrace")
    descriptors = [
        packet.track_descriptor
        for packet in packets(tmp_path / "s.pftrace")
        if packet.HasField("track_descriptor")
    ]
    root = descriptors[0]
    groups = [item for item in descriptors if item.parent_uuid == root.uuid]
    assert [(item.name, item.sibling_order_rank) for item in groups] == [
        ("engine (pid 10)", 0),
        ("rank 0 (pid 20)", 1),
        ("rank 1 (pid 21)", 2),
    ]
    below = [item for item in descriptors if item.parent_uuid == groups[0].uuid]
    assert [(item.name, item.sibling_order_rank) for item in below] == [
        ("dispatches in flight", 0),
        ("runner-start skew (ns)", 1),
        ("runner-end skew (ns)", 2),
        ("API", 3),
        ("API 2", 4),
        ("engine", 5),
        ("prepare", 6),
        ("device", 7),
        ("output", 8),
    ]
    assert all(item.child_ordering == TrackDescriptor.EXPLICIT for item in (root, *groups))


def test_the_first_packet_clears_the_interning_state(tmp_path: Path) -> None:
    write_timeline(timeline_from(serving()), tmp_path / "s.pftrace")
    flags = [packet.sequence_flags for packet in packets(tmp_path / "s.pftrace")]
    cleared, needed = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED, TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
    assert flags[0] == cleared | needed
    assert set(flags[1:]) == {needed}


def test_runs_without_a_slot_take_as_many_lanes_as_overlap() -> None:
    # Two in flight, as on the simulator, whose roots carry no identity.
    table = Spans(Source.STRACE)
    for inv, (start_ns, end_ns) in enumerate([(0, 100), (50, 200), (110, 300)], 1):
        table.add("chip.run", start_ns, end_ns, rank=0, invocation=inv)
    (group,) = timeline_from(table.build()).groups
    assert [(track.name, times(track)) for track in group.tracks] == [
        ("run", [("", 0, 100), ("", 110, 300)]),
        ("run, overlapping 1", [("", 50, 200)]),
    ]


def test_spans_whose_root_was_lost_are_still_drawn() -> None:
    table = Spans(Source.STRACE, pid=5)
    table.add("chip.run.bind", 10, 15, 5, rank=3, invocation=1, category="chip")
    table.add("chip.run.runner_run.device_wall", 0, 4, 5, clock=Clock.DEVICE, rank=3, invocation=1)
    timeline = timeline_from(table.build())
    assert [(group.name, [track.name for track in group.tracks]) for group in timeline.groups] == [
        ("rank 3 (pid 5)", ["thread 5"])
    ]
    assert timeline.left_out == {"device spans without a runner_run of their own": 1}


def test_a_span_that_ends_after_the_one_around_it_by_rounding_keeps_its_times_on_a_lane_of_its_own() -> None:
    table = Spans(Source.SERVING)
    table.add("scheduler.schedule", 0, 10_000)
    table.add("scheduler.inner", 4_000, 11_000)
    table.add("scheduler.innermost", 5_000, 6_000)
    (group,) = timeline_from(table.build()).groups
    assert [(track.name, times(track)) for track in group.tracks] == [
        ("engine", [("scheduler.schedule", 0, 10_000)]),
        (
            "engine, overlapping 1",
            [("scheduler.inner", 4_000, 11_000), ("scheduler.innermost", 5_000, 6_000)],
        ),
    ]


def test_a_trace_on_its_own_clock_is_drawn_alone_but_never_among_host_times() -> None:
    table = SpanTableBuilder(Source.SERVING)
    table.append("scheduler.schedule", 5, 3, Lane("foreign.json", "main", "t"), clock=Clock.FILE)
    foreign = table.build()
    alone = timeline_from(foreign)
    assert [group.name for group in alone.groups] == ["process main"]
    mixed = timeline_from(concatenate([foreign, serving()]))
    assert [group.name for group in mixed.groups] == ["engine (pid 10)"]
    assert mixed.left_out == {"spans on a clock of their own file": 1}


def test_ambiguous_dispatch_ids_connect_nothing() -> None:
    table = Spans(Source.SERVING)
    for name, start_ns in (("submit", 0), ("submit", 10), ("wait", 20)):
        table.add(f"decode.worker_{name}", start_ns, start_ns + 5, dispatch_id=1)
    timeline = timeline_from(table.build())
    assert [item.flows for track in timeline.tracks() for item in track.slices] == [[], [], []]
    assert timeline.groups[0].counters == []


def test_a_dispatch_without_rank_traces_flows_straight_to_its_wait() -> None:
    timeline = timeline_from(serving())
    flows = [point for track in timeline.tracks() for item in track.slices for point in item.flows]
    assert sorted((flow, phase.value) for flow, phase in flows) == [
        (1, "begin"),
        (1, "end"),
        (2, "begin"),
        (2, "end"),
    ]


def test_a_real_capture_of_the_runtime_keeps_its_lanes_clean() -> None:
    text = "\n".join(
        [
            ready(7, 0),
            *map(
                logged,
                [
                    record("node.submit", 90, 5, pid=6, run_id=1, worker_id=0, role="facade"),
                    record("chip.prewarm.build", 10, 50, pid=7, inv=0, depth=0),
                    record("chip.run.runner_run", 110, 70, pid=7, inv=1),
                    record("chip.run", 100, 90, pid=7, inv=1),
                    record("chip.run.runner_run", 185, 70, pid=7, inv=2),
                    record("chip.run", 120, 150, pid=7, inv=2),
                ],
            ),
        ]
    )
    log = read_strace(text.encode(), LOG)
    timeline = timeline_from(rank_column(log.spans, assign_ranks([log])))
    assert [(group.name, [track.name for track in group.tracks]) for group in timeline.groups] == [
        ("process 6", ["node scheduler"]),
        ("rank 0 (pid 7)", ["run", "run, overlapping 1", "thread 7"]),
    ]
    assert_only_nesting(timeline)


def test_an_unknown_suffix_and_an_unwritable_place_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UnusableInputError, match=r"s\.txt: name the file \*\.pftrace or \*\.json"):
        write_timeline(timeline_from(serving()), tmp_path / "s.txt")
    (tmp_path / "file").touch()
    with pytest.raises(UnusableInputError, match=r"file/s\.json: cannot be written: Not a directory"):
        write_timeline(timeline_from(serving()), tmp_path / "file" / "s.json")


def test_nothing_to_draw_is_no_data(tmp_path: Path) -> None:
    with pytest.raises(NoDataError, match="nothing to draw"):
        write_timeline(timeline_from(SpanTableBuilder(Source.SERVING).build()), tmp_path / "s.json")
    assert list(tmp_path.iterdir()) == []


def test_the_command_draws_a_log_and_says_what_it_could_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write_log(
        tmp_path / "server.log",
        record("chip.run.runner_run", 10, 50, pid=7),
        record("chip.run.runner_run.device_wall", 0, 51, pid=7, clk="dev"),
        record("chip.run", 5, 60, pid=7),
        record("chip.run", 5, 60, pid=7).partition("n ts")[0],
    )
    swimlane([log], tmp_path / "s.json")
    shown = capsys.readouterr()
    assert shown.out == f"{tmp_path}/s.json: 2 spans on 1 tracks of 1 processes, 0 flows\n"
    assert shown.err == (
        "left out: 1 device spans longer than their runner_run\n"
        "lost before: 1 records; `dsv4bench analyze` says which\n"
    )
