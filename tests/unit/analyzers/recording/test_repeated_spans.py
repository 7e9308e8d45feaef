"""A span that a recording holds twice is one span."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analyzers.analysis import analyze
from tests.builders.places import SMOKE_RUN


def events_of(path: Path) -> list[dict[str, Any]]:
    document = json.loads(path.read_text())
    return document["traceEvents"] if isinstance(document, dict) else document


def write(path: Path, events: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def test_a_run_beside_a_copy_of_its_trace_is_one_run(tmp_path: Path) -> None:
    trace = SMOKE_RUN / "sa_profile" / "trace.json"
    # In another layout, so that the files differ.
    copy = write(tmp_path / "copy.json", events_of(trace))
    alone, both = analyze([SMOKE_RUN]), analyze([SMOKE_RUN, copy])
    assert alone.lifecycle.pairs == both.lifecycle.pairs == 12
    assert both.lifecycle.faults == []
    assert both.pipelines[0].most_in_flight == alone.pipelines[0].most_in_flight
    assert both.spans == alone.spans
    assert any("counted once" in finding.title for finding in both.findings)


@pytest.mark.parametrize("times", [2, 3])
def test_an_end_of_a_dispatch_that_was_delivered_again_is_one(times: int, tmp_path: Path) -> None:
    events = events_of(SMOKE_RUN / "sa_profile" / "trace.json")
    ends = [event for event in events if event["name"].endswith((".worker_submit", ".worker_wait"))]
    report = analyze([write(tmp_path / "trace.json", events + ends * (times - 1))])
    assert report.lifecycle.pairs == 12
    assert report.lifecycle.faults == []


def test_a_submission_at_another_time_is_another_one(tmp_path: Path) -> None:
    events = events_of(SMOKE_RUN / "sa_profile" / "trace.json")
    end = next(event for event in events if event["name"].endswith(".worker_submit"))
    report = analyze([write(tmp_path / "trace.json", [*events, {**end, "ts": end["ts"] + 1}])])
    assert [fault.kind for fault in report.lifecycle.faults] == ["duplicate_submit"]


def test_short_calls_in_one_microsecond_stay_two(tmp_path: Path) -> None:
    call = {"name": "f", "ph": "X", "ts": 5, "dur": 0, "pid": 1, "tid": 1}
    assert analyze([write(tmp_path / "trace.json", [call, call])]).spans == 2
