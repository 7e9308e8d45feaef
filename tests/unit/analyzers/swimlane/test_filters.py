"""The swimlane of a part of a recording: the filters of `analyze`, on the command that draws."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analyzers.recording.filters import FilterError
from dsv4bench.cli.swimlane import swimlane
from tests.builders.chrome import dispatch, write_trace
from tests.builders.strace import ready, record, write_log

US = 1_000


@pytest.fixture
def run(tmp_path: Path) -> list[Path]:
    """Steps 1 to 4 of 100 us each as dispatches 11 to 14, on ranks 0 and 1."""
    events, records = [], [ready(10 + rank, rank) for rank in (0, 1)]
    for step in range(1, 5):
        at, number = 100 * step, 10 + step
        events += dispatch((at, at + 10), (at + 20, at + 80), step_id=step, dispatch_id=number)
        for pid in (10, 11):
            runner = record("chip.run.runner_run", (at + 20) * US, 40 * US, pid=pid, inv=step)
            records += [
                runner,
                record("chip.run", (at + 15) * US, 50 * US, pid=pid, inv=step, dispatch_id=number),
            ]
    return [write_trace(tmp_path / "trace.json", events), write_log(tmp_path / "server.log", *records)]


def drawn(path: Path) -> dict[str, int]:
    """How many spans of each name a Chrome trace holds."""
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    names = [event["name"] for event in events if event["ph"] == "X"]
    return {name: names.count(name) for name in sorted(set(names))}


@pytest.mark.parametrize(
    ("options", "steps", "runs"),
    [
        ({}, 4, 8),
        ({"steps": "2:4"}, 2, 4),
        ({"ranks": "1"}, 4, 4),
        ({"steps": "3:", "ranks": "0"}, 2, 2),
        ({"callable_glob": "dec*"}, 4, 8),
        # From the start of the recording: steps 1 and 2 end at 80 and 180 us.
        ({"window": "0:0.19"}, 2, 4),
    ],
)
def test_only_what_the_filters_keep_is_drawn(
    options: dict[str, Any],
    steps: int,
    runs: int,
    run: list[Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    swimlane(run, tmp_path / "s.json", **options)
    assert drawn(tmp_path / "s.json") == {
        "chip.run": runs,
        "chip.run.runner_run": runs,
        "decode.worker_submit": steps,
        "decode.worker_wait": steps,
    }
    assert ("a part of the recording: " in capsys.readouterr().err) == bool(options)


def test_a_filter_that_the_recording_cannot_answer_is_an_error(run: list[Path], tmp_path: Path) -> None:
    with pytest.raises(FilterError, match="--ranks 7: no such rank; the input has 0, 1"):
        swimlane(run, tmp_path / "s.json", ranks="7")
    with pytest.raises(FilterError, match="--steps 3"):
        swimlane(run, tmp_path / "s.json", steps="3")
    assert not (tmp_path / "s.json").exists()
