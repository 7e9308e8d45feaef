"""However bad a trace is, four times its size costs about four times the work: lines run, which no load changes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from analyzers.analysis import analyze_recording
from analyzers.recording.recording import load_recording
from analyzers.steps.lifecycle import check_lifecycles
from analyzers.table.spans import empty_table

SUBMIT, WAIT = "decode.worker_submit", "decode.worker_wait"
SMALL, TIMES = 60, 4

Event = tuple[str, int, int, int, dict[str, int]]
"""name, start and end in us, tid, ids."""


def submits(count: int) -> Iterator[Event]:
    for number in range(count):
        yield SUBMIT, 10 * number, 10 * number + 5, 1, {"step_id": number}


def waits(count: int) -> Iterator[Event]:
    for number in range(count):
        yield WAIT, 10 * number, 10 * number + 5, 1, {"step_id": number}


def one_step_id(count: int) -> Iterator[Event]:
    for number in range(count):
        yield (SUBMIT, WAIT)[number % 2], 10 * number, 10 * number + 5, 1, {"step_id": 7}


def overlapping(count: int) -> Iterator[Event]:
    for number in range(count):
        ids = {"dispatch_id": number, "slot": number % 2}
        yield SUBMIT, number, number + 1, 1, ids
        yield WAIT, 10 * count + number, 20 * count + number, 2, ids


def half_without_ids(count: int) -> Iterator[Event]:
    for number in range(count):
        at, ids = 20 * number, {"dispatch_id": number} if number % 2 else {}
        yield SUBMIT, at, at + 2, 1, ids
        yield WAIT, at + 3, at + 15, 2, ids


def prefills_between(count: int) -> Iterator[Event]:
    for number in range(count):
        at, ids = 40 * number, {"dispatch_id": number, "step_id": number}
        yield SUBMIT, at, at + 2, 1, ids
        yield WAIT, at + 3, at + 15, 2, ids
        yield "prefill.worker_run", at + 16, at + 20, 1, {}
        yield "WorkerProcess.prepare_decode", at + 21, at + 30, 3, {"step_id": number + 1}


def lines_run(work: Callable[[], object]) -> int:
    """How many lines of Python `work` runs, each turn of a loop counted."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    "shape", [submits, waits, one_step_id, overlapping, half_without_ids, prefills_between]
)
def test_work_grows_with_the_trace_and_no_faster(
    shape: Callable[[int], Iterator[Event]], tmp_path: Path
) -> None:
    checked, analyzed = [], []
    for count in (SMALL, TIMES * SMALL):
        path = tmp_path / f"{count}.json"
        events = [
            {
                "ph": "X", "name": name, "cat": "kernel", "pid": 1, "tid": tid, "ts": at, "dur": end - at, "args": ids
            }
            for name, at, end, tid, ids in shape(count)
        ]  # fmt: skip
        path.write_text(json.dumps(events))
        recording = load_recording([path])
        analyze_recording(recording)  # Regular expressions are compiled once
        checked.append(lines_run(partial(check_lifecycles, recording.spans, empty_table(), depth=2)))
        analyzed.append(lines_run(partial(analyze_recording, recording)))
    # What is quadratic would approach 16 times; a part of the work is the same for any size.
    assert checked[1] < 1.5 * TIMES * checked[0]
    assert analyzed[1] < 1.5 * TIMES * analyzed[0]
