import json
from pathlib import Path

import pytest

from dsv4bench.errors import UsageError
from dsv4bench.tracing import SpanRecorder, merge_fragments


def test_fragments_are_concatenated_in_order_and_bad_lines_counted(tmp_path: Path) -> None:
    fragments = tmp_path / "fragments"
    fragments.mkdir()
    (fragments / "trace.2.jsonl").write_bytes(b'{"name":"c","ts":1}\n{"name":"cut sh')
    (fragments / "trace.1.jsonl").write_bytes(
        b'{"name":"b","ts":9}\n\n[1]\n\xff\xfe\n{"name":"\xff"}\n{"name":"a","ts":3}'
    )
    (fragments / "notes.txt").write_text("not a fragment")
    result = merge_fragments(tmp_path)
    assert result.path == tmp_path / "trace.json"
    assert (result.events, result.bad_lines) == (3, 4)
    trace = json.loads(result.path.read_text())
    assert [event["name"] for event in trace["traceEvents"]] == ["b", "a", "c"]
    assert list(tmp_path.glob("*.partial")) == []


def test_no_events_make_an_empty_trace(tmp_path: Path) -> None:
    (tmp_path / "x.json.fragments").mkdir()
    result = merge_fragments(tmp_path / "x.json")
    assert (result.events, result.bad_lines) == (0, 0)
    assert json.loads((tmp_path / "x.json").read_text()) == {"traceEvents": []}


def test_an_output_without_fragments_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no trace fragments in .*fragments"):
        merge_fragments(tmp_path)


def test_what_the_recorder_writes_merges_without_loss(tmp_path: Path) -> None:
    recorder = SpanRecorder(tmp_path, ["e2e"], "engine")
    for step in range(600):
        with recorder.span("step", "engine", step_id=step):
            pass
    recorder.close()
    result = merge_fragments(tmp_path)
    # 600 spans, the process's name and the thread's name.
    assert (result.events, result.bad_lines) == (602, 0)
