"""Small Chrome traces that break parsers and analyses; each test is named after its case."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from analyzers.analysis import analyze, judge
from analyzers.errors import UnusableInputError
from analyzers.measurement import measure
from analyzers.readers.chrome_trace import ChromeTrace, read_chrome_trace
from analyzers.readers.files import read_bytes
from analyzers.readers.json_objects import iterate_lines
from analyzers.readers.load_report import IssueCounter
from analyzers.recording.recording import load_recording
from analyzers.report.json import render_json
from analyzers.report.markdown import render_markdown
from analyzers.report.model import Report
from analyzers.report.tables import report_tables
from analyzers.statistics.summary import summarize
from analyzers.swimlane import timeline_of, write_timeline
from analyzers.table.spans import Lane
from tests.builders.places import CASES


def path_of(case: str, name: str = "trace.json") -> Path:
    return CASES / case / name


def read(case: str, name: str = "trace.json") -> ChromeTrace:
    issues = IssueCounter()
    return read_chrome_trace(read_bytes(path_of(case, name), issues), name, issues=issues)


def spans_of(trace: ChromeTrace) -> list[tuple[str, int, int]]:
    """(name, start, end) in ns by time, parents first."""
    table = trace.spans.sorted()
    return list(zip(table.iter_names(), table.start_ns.tolist(), table.end_ns.tolist(), strict=True))


def latencies(report: Report) -> list[float | None]:
    return [figures.latency.mean for figures in report.steps if figures.scope == "all"]


def test_01_no_closing_bracket() -> None:
    case = "01-json-no-closing-bracket"
    trace = read(case)
    assert len(trace.spans) == 2
    assert trace.report.count("unterminated") == 1
    report = analyze([path_of(case)])
    assert any(finding.severity == "warning" for finding in report.findings)
    assert judge(report).exit_code == 0
    assert judge(report, strict=True).exit_code == 4


def test_03_stray_commas() -> None:
    trace = read("03-json-stray-commas")
    assert len(trace.spans) == 2
    assert trace.report.count("commas_ignored") == 2
    assert trace.report.lost == 0


def test_04_array_and_object_give_the_same_analysis() -> None:
    case = "04-json-bare-array"
    array, document = (
        render_json(analyze([path_of(case, name)])).replace(name, "X")
        for name in ("array.json", "object.json")
    )
    assert array == document
    with pytest.raises(UnusableInputError, match="not a trace: no traceEvents") as raised:
        analyze([path_of(case, "other.json")])
    assert raised.value.exit_code == 2


def test_05_trailing_empty_object_is_no_event() -> None:
    trace = read("05-json-trailing-empty-object")
    assert len(trace.spans) == 1
    assert trace.report.issues == []


def test_07_reading_goes_on_after_a_damaged_event() -> None:
    trace = read("07-json-unescaped-quote")
    assert [name for name, _, _ in spans_of(trace)] == ["a", "c"]
    [issue] = trace.report.issues
    assert (issue.kind, issue.count, issue.where) == ("malformed", 1, "line 3, byte 71")


def test_08_bytes_that_are_not_utf8() -> None:
    trace = read("08-json-non-utf8")
    assert len(trace.spans) == 2
    assert trace.report.count("invalid_utf8") == 1
    assert "\ufffd" in trace.spans.name_of(0)
    report = analyze([path_of("08-json-non-utf8")])
    assert "\ufffd" in render_json(report).encode().decode()
    assert "\ufffd" in render_markdown(report, report_tables(report), "Analysis").encode().decode()


def test_10_unsigned_64_bit_arguments_stay_exact() -> None:
    trace = read("10-json-int-over-int64")
    assert trace.spans.args(0) == {"Comms Id": 18446744073709551615}


@pytest.mark.parametrize("name", ["really_gzip.json", "really_plain.json.gz"])
def test_12_compression_is_told_by_content(name: str) -> None:
    assert len(read("12-gzip-mislabelled", name).spans) == 2


def test_13_of_truncated_gzip_what_decodes_is_kept() -> None:
    trace = read("13-gzip-truncated", "trace.json.gz")
    names = list(trace.spans.iter_names())
    assert names == [f"e{index}" for index in range(len(names))]
    assert len(names) == 228
    assert trace.report.count("unterminated") == 1
    assert trace.report.count("gzip_truncated") == 1


@pytest.mark.parametrize(
    "name", ["blank.json", "empty_list.json", "empty_obj.json", "metadata_only.json", "zero_bytes.json"]
)
def test_15_empty_inputs_hold_no_data(name: str) -> None:
    report = analyze([path_of("15-empty-inputs", name)])
    assert report.spans == 0
    assert report.steps == report.skew == report.requests == report.span_names == []
    assert [finding.title for finding in report.findings] == ["no data: no spans"]
    assert judge(report).exit_code == 3


def test_16_times_as_strings_are_exact() -> None:
    assert spans_of(read("16-ts-as-string")) == [("a", 999_500, 1_000_000), ("b", 1_000_000, 1_002_250)]


def test_17_times_that_are_no_numbers_are_not_zero() -> None:
    trace = read("17-ts-bad-string")
    assert spans_of(trace) == [("good", 40_000, 45_000)]
    assert (trace.report.count("bad_ts"), trace.report.count("bad_dur")) == (2, 2)


def test_19_display_unit_is_no_unit() -> None:
    assert spans_of(read("19-ts-display-unit-ns")) == [("step", 1_500_000, 2_501_500_000)]


def test_20_negative_durations_are_in_no_statistic() -> None:
    trace = read("20-dur-negative")
    assert spans_of(trace) == [("ok", 0, 10_000)]
    assert (trace.report.count("unfinished"), trace.report.count("invalid_dur")) == (1, 1)
    [figures] = analyze([path_of("20-dur-negative")]).span_names
    assert figures.duration.mean == 10_000


def test_22_zero_times_of_a_late_trace_are_left_out() -> None:
    trace = read("22-ts-zero-tail")
    assert trace.report.count("zero_ts") == 2
    assert len(trace.spans) == 2
    assert trace.spans.end_ns.max() - trace.spans.start_ns.min() == 30_000


def test_23_zero_durations_are_spans() -> None:
    trace = read("23-dur-zero-valid")
    assert len(trace.spans) == 3
    report = analyze([path_of("23-dur-zero-valid")])
    assert sum(entry.total_ns for entry in report.span_names) == 4_000
    assert summarize(trace.spans.duration_ns).p50 == 0
    assert [lane.busy_ns for lane in report.lanes] == [4_000]
    # A rate or share that is not finite would be none in JSON.
    assert not {"NaN", "Infinity"} & set(re.findall(r"\w+", render_json(report)))


def test_25_metadata_needs_no_time() -> None:
    trace = read("25-metadata-without-ts")
    names = {pid: name for (_, pid), name in trace.spans.process_names.items()}
    assert names == {100: "rank0", 101: "rank1", 102: "rank2"}
    assert trace.report.issues == []


def test_27_a_missing_pid_is_not_pid_zero() -> None:
    trace = read("27-pid-tid-missing")
    assert [(lane.pid, lane.tid) for lane in map(trace.spans.lane_of, range(2))] == [(None, None), (0, 0)]
    assert trace.report.count("missing_pid") == 1
    lanes = {(lane.pid, lane.tid) for lane in analyze([path_of("27-pid-tid-missing")]).lanes}
    assert lanes == {("(unknown)", "(unknown)"), ("0", "0")}


def test_27_an_unknown_thread_is_drawn_as_one(tmp_path: Path) -> None:
    output = tmp_path / "swimlane.json"
    write_timeline(timeline_of(measure(load_recording([path_of("27-pid-tid-missing")]))), output)
    drawn = json.loads(output.read_text())["traceEvents"]
    threads = [event["args"]["name"] for event in drawn if event["name"] == "thread_name"]
    assert threads == ["thread (unknown)", "thread 0"]
    # Neither the process nor the thread is 0.
    assert len({(event["pid"], event["tid"]) for event in drawn if event["ph"] == "X"}) == 2


def test_29_string_pids_and_negative_tids_are_lanes() -> None:
    trace = read("29-pid-string-tid-negative")
    file = "trace.json"
    assert set(trace.spans.lanes) == {
        Lane(file, "host ops", 1),
        Lane(file, "device ops", 0),
        Lane(file, 2001, -7),
    }


def test_30_begin_and_end_make_a_stack() -> None:
    assert spans_of(read("30-begin-end-stack")) == [
        ("outer", 0, 100_000),
        ("it", 10_000, 20_000),
        ("it", 30_000, 40_000),
        ("it", 50_000, 60_000),
    ]


def test_32_edges_of_the_window_are_no_faults() -> None:
    report = analyze([path_of("32-window-edges")])
    assert [(edge.kind, edge.span.dispatch_id) for edge in report.lifecycle.edges] == [
        ("open_at_start", 7),
        ("open_at_end", 9),
    ]
    assert report.lifecycle.faults == []
    [figures] = [figures for figures in report.steps if figures.scope == "all"]
    assert (figures.latency.n, figures.latency.mean) == (1, 25_000)
    assert all(finding.severity == "info" for finding in report.findings)
    assert judge(report, strict=True).exit_code == 0


def test_33_async_events_of_one_id_match_by_name() -> None:
    assert spans_of(read("33-async-same-id-overlap")) == [
        ("req", 0, 50_000),
        ("draft", 0, 30_000),
        ("verify", 10_000, 40_000),
    ]


def test_35_overlapping_spans_are_both_kept() -> None:
    trace = read("35-x-overlap-on-one-tid")
    assert sorted(trace.spans.duration_ns.tolist()) == [120_000, 140_000]
    [lane] = analyze([path_of("35-x-overlap-on-one-tid")]).lanes
    assert (lane.overlaps, lane.first_overlap) == (1, ["kernel_a", "kernel_b"])
    # [400, 520) and [470, 610) us: 210 us, not 260.
    assert lane.busy_ns == 210_000


def test_35_overlapping_spans_are_drawn_on_tracks_of_their_own(tmp_path: Path) -> None:
    output = tmp_path / "swimlane.json"
    write_timeline(timeline_of(measure(load_recording([path_of("35-x-overlap-on-one-tid")]))), output)
    drawn = [event for event in json.loads(output.read_text())["traceEvents"] if event["ph"] == "X"]
    assert {event["name"]: event["dur"] for event in drawn} == {"kernel_a": 120, "kernel_b": 140}
    assert len({(event["pid"], event["tid"]) for event in drawn}) == 2


def test_spans_that_cross_inside_a_third_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    shape = [("outer", 0, 100), ("b", 10, 40), ("c", 40, 30), ("d", 60, 30), ("e", 75, 5)]
    events = [f'{{"ph":"X","name":"{n}","pid":1,"tid":1,"ts":{at},"dur":{dur}}}' for n, at, dur in shape]
    path.write_text("[" + ",".join(events) + "]")
    [lane] = analyze([path]).lanes
    # b crosses c [40, 70), c crosses d [60, 90); e lies in d.
    assert (lane.overlaps, lane.first_overlap, lane.busy_ns) == (2, ["b", "c"], 100_000)


def test_36_of_equal_starts_the_longer_is_the_parent() -> None:
    assert [name for name, _, _ in spans_of(read("36-x-same-ts-child-first"))] == ["layer", "moe"]
    figures = {entry.name: entry for entry in analyze([path_of("36-x-same-ts-child-first")]).span_names}
    assert {name: (entry.depth, entry.self_ns) for name, entry in figures.items()} == {
        "layer": (0, 13_000),
        "moe": (1, 7_000),
    }


def test_38_file_order_is_not_time_order() -> None:
    report = analyze([path_of("38-events-unsorted")])
    assert report.lifecycle.pairs == 2
    [figures] = [figures for figures in report.steps if figures.scope == "all"]
    assert (figures.latency.min, figures.latency.max) == (12_000, 13_000)


def test_39_pairs_are_made_by_id_not_by_order() -> None:
    report = analyze([path_of("39-out-of-order-completion")])
    [figures] = [figures for figures in report.steps if figures.scope == "all"]
    assert figures.paired_by == {"dispatch_id": 3}
    # 100, 20 and 60 us; first in, first out would say 30, 70 and 80.
    assert (figures.latency.min, figures.latency.p50, figures.latency.max) == (20_000, 60_000, 100_000)
    assert figures.source == "submit_to_completion"


def test_41_clocks_that_contradict_causality_give_no_latency() -> None:
    report = analyze([path_of("41-effect-before-cause")])
    assert report.steps == []
    [pair] = report.lifecycle.cross_process
    assert (pair.id, pair.wait_end_minus_submit_start_ns) == ("dispatch 1", -9_000)
    assert pair.violates_causality
    finding = next(finding for finding in report.findings if finding.code == "clocks_not_comparable")
    assert finding.title == "clocks not comparable: causality_violations=1"
    assert "-9 us" in finding.evidence


def test_42_a_wait_inside_its_submit_is_a_fault_and_no_latency() -> None:
    report = analyze([path_of("42-wait-nested-in-submit-zero-gap")])
    [fault] = report.lifecycle.faults
    assert fault.kind == "wait_before_submit_end"
    assert "dispatch 1" in fault.detail
    assert "fell back to blocking" in fault.detail
    assert report.steps == []
    assert judge(report).exit_code == 0
    assert judge(report, strict=True).exit_code == 4


def test_43_equal_pids_of_two_files_are_two_processes() -> None:
    case = "43-same-pid-in-every-rank"
    trace = [read(case, name) for name in ("rank0.json", "rank1.json")]
    assert [part.rank for part in trace] == [0, 1]
    assert [part.spans.rank.tolist() for part in trace] == [[0], [1]]
    assert trace[0].spans.lanes != trace[1].spans.lanes


def test_45_the_rank_is_the_one_of_the_document() -> None:
    case = "45-rank-discovery"
    assert [read(case, name).rank for name in ("compact.json", "nested.json", "norank.json")] == [3, 2, None]


def test_57_two_objects_on_one_line() -> None:
    issues = IssueCounter()
    text = path_of("57-jsonl-two-objects-one-line", "events.jsonl").read_text()
    assert len(list(iterate_lines(text, issues))) == 3
    found = {issue.kind: (issue.count, issue.where) for issue in issues.issues()}
    assert found == {"glued_lines": (1, "line 1"), "bad_line": (1, "line 3")}


def test_a_damaged_event_among_others_on_one_line_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    good = '{"ph":"X","name":"%s","pid":1,"tid":1,"ts":1,"dur":1,"args":{"a":1}}'
    path.write_text(
        '{"traceEvents":[' + good % "a" + ',{"ph":"X","na"me"},' + good % "b" + ",7," + good % "c" + "]}"
    )
    trace = read_chrome_trace(path.read_bytes(), str(path))
    assert list(trace.spans.iter_names()) == ["a", "b", "c"]
    assert trace.report.count("malformed") == 2


def test_json_lines_are_a_trace(tmp_path: Path) -> None:
    line = '{"ph":"X","name":"a","cat":"kernel","pid":1,"tid":1,"ts":1,"dur":1}'
    path = tmp_path / "trace.7.jsonl"
    path.write_text(f"{line}{line}\n{line}\n{line[:20]}\n")
    report = analyze([path])
    assert report.spans == 3
    assert report.lost == 1


def test_not_a_number_inside_arguments_does_not_cost_the_event() -> None:
    trace = read_chrome_trace(
        b'[{"ph":"X","name":"\\ud800x","pid":1,"tid":1,"ts":1.5,"dur":1,"args":{"loss":NaN}}]', "trace.json"
    )
    assert spans_of(trace) == [("?x", 1_500, 2_500)]


def test_an_end_closes_the_innermost_span_of_its_name() -> None:
    trace = read_chrome_trace(
        b'[{"ph":"B","name":"a","pid":1,"tid":1,"ts":0},{"ph":"B","name":"b","pid":1,"tid":1,"ts":1},'
        b'{"ph":"E","name":"a","pid":1,"tid":1,"ts":5},{"ph":"E","pid":1,"tid":1,"ts":6}]',
        "trace.json",
    )
    assert spans_of(trace) == [("a", 0, 5_000)]
    assert (trace.report.count("unmatched_begin"), trace.report.count("unmatched_end")) == (1, 1)
