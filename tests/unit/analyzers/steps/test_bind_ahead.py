"""Binding ahead of the run counts as binding: `ext.dsv4bench.bind_ahead`, joined by rank and dispatch."""

from pathlib import Path
from typing import Any

import pytest

from analyzers.analysis import analyze
from tests.builders.strace import ready, record


def log(ahead_of_second: tuple[int, int] | None) -> str:
    """Two ranks, two dispatches: [0, 100) and [100, 200), each bound in its first 5 ns."""
    lines = [ready(10, 0), ready(11, 1)]
    for pid in (10, 11):
        for inv, start in ((1, 0), (2, 100)):
            ids: dict[str, Any] = {"run_id": inv, "dispatch_id": inv, "slot_id": inv % 2, "generation": 1}
            lines += [
                record("chip.run.bind", start, 5, pid=pid, inv=inv),
                record("chip.run.runner_run", start + 10, 80, pid=pid, inv=inv),
                record("chip.run", start, 100, pid=pid, inv=inv, **ids),
            ]
        if ahead_of_second is not None:
            start, end = ahead_of_second
            name = "ext.dsv4bench.bind_ahead"
            lines.append(record(name, start, end - start, pid=pid, inv=2, depth=0, dispatch_id=2))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("ahead", "overlapping"), [(None, 0), ((50, 60), 1), ((91, 99), 0)])
def test_bind_ahead_overlaps_the_previous_runner_or_not(
    tmp_path: Path, ahead: tuple[int, int] | None, overlapping: int
) -> None:
    path = tmp_path / "run.log"
    path.write_text(log(ahead))
    (pipeline,) = analyze([path]).pipelines
    assert (pipeline.bind.overlapping, pipeline.bind.pairs) == (overlapping, 1)
