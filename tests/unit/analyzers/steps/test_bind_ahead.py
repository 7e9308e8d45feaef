"""Binding ahead of the run counts as binding: `ext.dsv4bench.bind_ahead`, joined by rank and dispatch."""

from pathlib import Path

import pytest

from analyzers.analysis import analyze


def record(pid: int, inv: int, depth: int, name: str, start: int, end: int, extra: str = "") -> str:
    fields = f"inv={inv} hid=ab depth={depth} name={name} ts={start} dur={end - start} {extra}"
    return f"[STRACE] v=1 pid={pid} tid={pid} {fields}"


def log(ahead_of_second: tuple[int, int] | None) -> str:
    """Two ranks, two dispatches: [0, 100) and [100, 200), each bound in its first 5 ns."""
    lines = ["[chip_process pid=10 dev=0] ready", "[chip_process pid=11 dev=1] ready"]
    for pid in (10, 11):
        for inv, start in ((1, 0), (2, 100)):
            identity = f"run_id={inv} dispatch_id={inv} slot_id={inv % 2} generation=1"
            lines += [
                record(pid, inv, 1, "chip.run.bind", start, start + 5),
                record(pid, inv, 1, "chip.run.runner_run", start + 10, start + 90),
                record(pid, inv, 0, "chip.run", start, start + 100, identity),
            ]
        if ahead_of_second is not None:
            lines.append(record(pid, 2, 0, "ext.dsv4bench.bind_ahead", *ahead_of_second, "dispatch_id=2"))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("ahead", "overlapping"), [(None, 0), ((50, 60), 1), ((91, 99), 0)])
def test_bind_ahead_overlaps_the_previous_runner_or_not(
    tmp_path: Path, ahead: tuple[int, int] | None, overlapping: int
) -> None:
    path = tmp_path / "run.log"
    path.write_text(log(ahead))
    (pipeline,) = analyze([path]).pipelines
    assert (pipeline.bind.overlapping, pipeline.bind.pairs) == (overlapping, 1)
