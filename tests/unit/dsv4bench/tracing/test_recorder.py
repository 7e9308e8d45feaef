import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsv4bench.errors import UsageError
from dsv4bench.tracing import NullRecorder, Recorder, SpanRecorder
from dsv4bench.tracing import recorder as recorder_module

Event = dict[str, Any]


def read_fragment(output: Path, pid: int | None = None) -> list[Event]:
    fragment = output / "fragments" / f"trace.{os.getpid() if pid is None else pid}.jsonl"
    return [json.loads(line) for line in fragment.read_text().splitlines()]


def spans(events: list[Event]) -> list[Event]:
    return [event for event in events if event["ph"] == "X"]


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[SpanRecorder]:
    made = SpanRecorder(tmp_path, ["verbose"], "engine")
    yield made
    made.close()


def test_a_span_is_one_compact_complete_event(recorder: SpanRecorder, tmp_path: Path) -> None:
    with recorder.span("scheduler.schedule", "scheduler", step_id=3) as span:
        span.args["dispatch_id"] = 7
    recorder.close()
    lines = (tmp_path / "fragments" / f"trace.{os.getpid()}.jsonl").read_text().splitlines()
    line = next(line for line in lines if '"ph":"X"' in line)
    assert ": " not in line
    event = json.loads(line)
    assert list(event) == ["name", "cat", "ph", "ts", "dur", "pid", "tid", "args"]
    assert event["args"] == {"step_id": 3, "dispatch_id": 7}
    assert event["pid"] == os.getpid()
    assert event["tid"] == threading.get_ident()
    assert isinstance(event["ts"], int)


def test_both_ends_are_rounded_down_so_that_spans_nest(recorder: SpanRecorder, tmp_path: Path) -> None:
    # Outer 1999..9001 ns is 1..9 us; inner 2500..9000 ns is 2..9 us: the 6500 ns become 7 us.
    recorder._window_start_ns = 0
    recorder.complete("outer", "c", 1_999, 9_001)
    recorder.complete("inner", "c", 2_500, 9_000, slot=1)
    recorder.close()
    outer, inner = spans(read_fragment(tmp_path))
    assert (outer["ts"], outer["dur"]) == (1, 8)
    assert (inner["ts"], inner["dur"]) == (2, 7)
    assert inner["args"] == {"slot": 1}


def test_instants_and_names(recorder: SpanRecorder, tmp_path: Path) -> None:
    recorder.name_thread("prepare lane")
    recorder.instant("request.queued", "serving", request_id="r-1")
    recorder.close()
    events = read_fragment(tmp_path)
    assert events[0] == {
        "name": "process_name",
        "ph": "M",
        "pid": os.getpid(),
        "tid": 0,
        "args": {"name": "engine"},
    }
    names = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert names == ["MainThread", "prepare lane"]
    (instant,) = [event for event in events if event["ph"] == "i"]
    assert instant["s"] == "t"
    assert instant["args"] == {"request_id": "r-1"}


def test_levels_that_are_not_kept_leave_no_span(tmp_path: Path) -> None:
    recorder = SpanRecorder(tmp_path, ["e2e"], "engine")
    with recorder.span("kept", "c"), recorder.span("dropped", "c", level="kernel") as span:
        span.args["x"] = 1
        span.args.update(y=2)
    assert span.args == {}
    recorder.complete("dropped", "c", 1, 2, level="verbose")
    recorder.instant("dropped", "c", level="verbose")
    recorder.close()
    assert [event["name"] for event in read_fragment(tmp_path) if event["ph"] != "M"] == ["kept"]


def test_a_span_open_at_start_or_stop_is_missing(tmp_path: Path) -> None:
    recorder = SpanRecorder(tmp_path, ["e2e"], "engine", recording=False)
    with recorder.span("before", "c"):
        pass
    with recorder.span("open at start", "c"):
        recorder.start()
    with recorder.span("inside", "c"):
        pass
    with recorder.span("open at stop", "c"):
        recorder.stop()
    with recorder.span("open over a whole pause", "c"):
        recorder.start()
        recorder.stop()
    recorder.complete("after", "c", 0, 1)
    recorder.close()
    assert [event["name"] for event in spans(read_fragment(tmp_path))] == ["inside"]


def test_stop_writes_what_the_window_holds_and_close_is_idempotent(
    recorder: SpanRecorder, tmp_path: Path
) -> None:
    with recorder.span("a", "c"):
        pass
    recorder.stop()
    assert len(spans(read_fragment(tmp_path))) == 1
    recorder.close()
    recorder.close()
    recorder.start()
    with recorder.span("late", "c"):
        pass
    recorder.close()
    assert len(spans(read_fragment(tmp_path))) == 1


def test_a_long_quiet_thread_writes_at_its_next_event(
    recorder: SpanRecorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recorder.span("a", "c"):
        pass
    assert len(spans(read_fragment(tmp_path))) == 0
    monkeypatch.setattr(recorder_module, "FLUSH_INTERVAL_NS", 0)
    with recorder.span("b", "c"):
        pass
    assert len(spans(read_fragment(tmp_path))) == 2


def test_four_threads_lose_nothing_while_another_flushes(recorder: SpanRecorder, tmp_path: Path) -> None:
    per_thread = 3_000
    done = threading.Event()

    def trace(lane: int) -> None:
        recorder.name_thread(f"lane {lane}")
        for step in range(per_thread):
            with recorder.span("step", "lane", lane=lane, step_id=step):
                pass

    def flush() -> None:
        while not done.is_set():
            recorder.flush()

    flusher = threading.Thread(target=flush)
    lanes = [threading.Thread(target=trace, args=(lane,)) for lane in range(4)]
    for thread in (flusher, *lanes):
        thread.start()
    for thread in lanes:
        thread.join()
    done.set()
    flusher.join()
    recorder.close()
    seen = Counter(
        (event["args"]["lane"], event["args"]["step_id"]) for event in spans(read_fragment(tmp_path))
    )
    assert seen == Counter((lane, step) for lane in range(4) for step in range(per_thread))


def test_a_forked_child_goes_on_with_its_own_fragment(recorder: SpanRecorder, tmp_path: Path) -> None:
    with recorder.span("parent", "c"):
        pass
    child = os.fork()
    if child == 0:
        with recorder.span("child", "c"):
            pass
        recorder.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    recorder.close()
    assert [event["name"] for event in spans(read_fragment(tmp_path))] == ["parent"]
    (span,) = spans(read_fragment(tmp_path, child))
    assert (span["name"], span["pid"]) == ("child", child)


def test_numpy_values_and_unknown_objects_are_written(recorder: SpanRecorder, tmp_path: Path) -> None:
    with recorder.span("a", "c", rows=np.int64(4), where=Path("/x")):
        pass
    recorder.close()
    assert spans(read_fragment(tmp_path))[0]["args"] == {"rows": 4, "where": "/x"}


def test_an_exception_inside_a_span_passes_and_the_span_is_kept(
    recorder: SpanRecorder, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="inside"), recorder.span("a", "c"):
        raise ValueError("inside")
    recorder.close()
    assert len(spans(read_fragment(tmp_path))) == 1


def test_an_output_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "fragments").write_text("a file in the way")
    with pytest.raises(UsageError, match=r"cannot write trace fragments to .*fragments"):
        SpanRecorder(tmp_path, ["e2e"], "engine")


def test_the_null_recorder_has_the_same_protocol() -> None:
    recorder: Recorder = NullRecorder()
    recorder.start()
    with recorder.span("a", "c", level="kernel", step_id=1) as span:
        span.args["x"] = 1
    assert span.args == {}
    recorder.complete("a", "c", 1, 2)
    recorder.instant("a", "c")
    recorder.name_thread("lane")
    recorder.stop()
    recorder.close()


def test_spans_of_tasks_that_share_a_thread_have_lanes_of_their_own(tmp_path: Path) -> None:
    recorder = SpanRecorder(tmp_path, {"e2e"}, "test")
    recorder.name_thread("http 3", lane=3)
    recorder.complete("first", "request", 1_000_000_000_000_000, 1_000_000_000_009_000, lane=3)
    recorder.close()
    (fragment,) = (tmp_path / "fragments").iterdir()
    events = [json.loads(line) for line in fragment.read_text().splitlines()]
    assert [event["name"] for event in events if event["tid"] == 3] == ["thread_name", "first"]
