"""Figures of a recorded run, worked out again straight from the text of its logs, without any of our readers."""

import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from analyzers.analysis import analyze
from analyzers.measurement import measure
from analyzers.recording.recording import load_recording
from analyzers.statistics.summary import Summary
from analyzers.swimlane import timeline_of
from tests.integration.command import SMALL, run

DECODE = "deepseek_v4_decode_mtp_fused"
RECORD = re.compile(r"\[STRACE\] v=1 pid=(\d+) .*?inv=(\d+) .*?name=(\S+) ts=(\d+) dur=(\d+)(.*)")


@pytest.fixture(scope="module")
def recorded(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("interop") / "run"
    result = run(environment, "run", "smoke", *SMALL, "--set", "load.output_tokens=16", "--out", directory)
    assert result.returncode == 0, result.stderr
    return directory


def decode_dispatches(directory: Path) -> set[int]:
    events = msgspec.json.decode((directory / "sa_profile" / "trace.json").read_bytes())["traceEvents"]
    return {event["args"]["dispatch_id"] for event in events if event["name"] == f"{DECODE}.worker_submit"}


def spans_by_dispatch(*logs: Path) -> dict[int, dict[str, dict[int, tuple[int, int]]]]:
    """dispatch -> span name -> pid -> (start, end) in ns: roots name the dispatch of their invocation."""
    records = [match.groups() for log in logs for match in RECORD.finditer(log.read_text(errors="replace"))]
    dispatch_of = {
        (pid, inv): int(re.search(r"\bdispatch_id=(\d+)", rest)[1])
        for pid, inv, name, _, _, rest in records
        if name == "chip.run"
    }
    found: dict[int, dict[str, dict[int, tuple[int, int]]]] = defaultdict(lambda: defaultdict(dict))
    for pid, inv, name, start, duration, _ in records:
        if name.startswith("chip.run") and (pid, inv) in dispatch_of:
            span = (int(start), int(start) + int(duration))
            found[dispatch_of[pid, inv]][name][int(pid)] = span
    return found


def spread(times: Iterable[int]) -> int:
    ordered = sorted(times)
    return ordered[-1] - ordered[0]


def assert_same(summary: Summary, values: Sequence[float]) -> None:
    assert (summary.n, summary.min, summary.max) == (len(values), min(values), max(values))
    assert summary.p50 == statistics.median(values)
    assert summary.mean == sum(values) / len(values)


@pytest.mark.parametrize("logs", ["strace/rank-*.log", "server.log"])
def test_skews_are_those_of_the_log_text_to_the_nanosecond(recorded: Path, logs: str) -> None:
    rounds = spans_by_dispatch(*sorted(recorded.glob(logs)))
    decode = [rounds[dispatch] for dispatch in sorted(decode_dispatches(recorded))]
    assert len(decode) > 5
    runners = [list(item["chip.run.runner_run"].values()) for item in decode]
    roots = [list(item["chip.run"].values()) for item in decode]
    assert {len(item) for item in runners + roots} == {4}
    [figures] = [
        entry for entry in analyze([recorded]).skew if (entry.callable, entry.scope) == (DECODE, "all")
    ]
    assert_same(figures.runner_start_skew, [spread(start for start, _ in item) for item in runners])
    assert_same(figures.runner_end_skew, [spread(end for _, end in item) for item in runners])
    assert_same(figures.step_end_skew, [spread(end for _, end in item) for item in roots])
    assert_same(figures.critical_rank.root, [max(end - start for start, end in item) for item in roots])
    gaps = [
        item["chip.run.validate"][pid][0] - end
        for item in decode
        for pid, (_, end) in item["chip.run.runner_run"].items()
    ]
    assert_same(figures.runner_to_validate_gap, gaps)


def test_submit_to_completion_is_that_of_the_trace_text(recorded: Path) -> None:
    events = msgspec.json.decode((recorded / "sa_profile" / "trace.json").read_bytes())["traceEvents"]
    begins = {e["args"]["dispatch_id"]: e["ts"] for e in events if e["name"] == f"{DECODE}.worker_submit"}
    ends = {
        e["args"]["dispatch_id"]: e["ts"] + e["dur"] for e in events if e["name"] == f"{DECODE}.worker_wait"
    }
    [figures] = [
        entry for entry in analyze([recorded]).steps if (entry.callable, entry.scope) == (DECODE, "all")
    ]
    assert_same(figures.latency, [1_000 * (ends[dispatch] - begins[dispatch]) for dispatch in begins])


def test_the_time_of_the_steps_adds_up_to_the_time_they_took(recorded: Path) -> None:
    events = msgspec.json.decode((recorded / "sa_profile" / "trace.json").read_bytes())["traceEvents"]
    published = {
        e["args"]["step_id"]: 1_000 * (e["ts"] + e["dur"])
        for e in events
        if e["name"] == "scheduler.process_step_output" and "step_id" in e["args"]
    }
    [figures] = analyze([recorded]).step_time
    assert figures.published_by == "process_step_output"
    walls = [published[step] - published[step - 1] for step in published if step - 1 in published]
    assert {figures.wall.min, figures.wall.max} <= set(walls)
    parts = sum(entry.charged.mean for entry in figures.phases)
    assert parts == pytest.approx(figures.wall.mean, abs=1e-3)


def test_no_lane_of_the_timeline_holds_slices_that_overlap(recorded: Path) -> None:
    recording = load_recording([recorded])
    timeline = timeline_of(measure(recording))
    for track in timeline.tracks():
        around: list[Any] = []
        for item in sorted(track.slices, key=lambda item: (item.start_ns, -item.end_ns)):
            while around and around[-1].end_ns <= item.start_ns:
                around.pop()
            assert not around or item.end_ns <= around[-1].end_ns, (track.name, item.name)
            around.append(item)
    names = {counter.name for group in timeline.groups for counter in group.counters}
    expected = {"dispatches in flight", "runner-start skew (ns)", "runner-end skew (ns)", "acceptance length"}
    assert names == expected
    lanes = [track.name for group in timeline.groups for track in group.tracks]
    assert lanes.count("ext.dsv4bench.bind_ahead") == 4
    runs = [
        item for track in timeline.tracks() for item in track.slices if item.name == "chip.run.runner_run"
    ]
    # All but the runs of the two prefill programs belong to a step.
    assert sum("step_id" not in item.args for item in runs) == 2 * 4
