"""Long tails of ranks that tell what a program's time consists of: split at the last exchange, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analyzers.analysis import analyze
from analyzers.report.model import Finding
from tests.builders import strace

MS, US = 1_000_000, 1_000
RUNNER, WALL = "chip.run.runner_run", "chip.run.runner_run.device_wall"


def split_of(tmp_path: Path, *, ahead: bool = True, sched: str = "dev") -> Finding:
    """12 rounds of three ranks; in every third, rank 2 takes 3 ms more up to its last exchange and 8 ms more behind it."""
    lines = [strace.ready(100 + rank, rank) for rank in range(3)]
    for step in range(1, 13):
        for rank in range(3):
            tail = rank == 2 and step % 3 == 0
            up_to, behind = 20 * MS + 3 * MS * tail, 5 * MS + 8 * MS * tail
            at, pid = step * 100 * MS, 100 + rank
            wall = up_to + behind
            ids: dict[str, Any] = {"pid": pid, "inv": step}
            if ahead:
                lines.append(
                    strace.record("ext.dsv4bench.bind_ahead", at - MS, US, **ids, dispatch_id=step, slot_id=0)
                )
            if sched:
                lines.append(strace.record(f"{WALL}.sched", MS, up_to - MS, **ids, clk=sched))
            lines += [
                strace.record(f"{WALL}.orch", 0, MS, **ids, clk="dev"),
                strace.record(WALL, 0, wall, **ids, clk="dev"),
                strace.record(RUNNER, at + US, wall + 2 * US, **ids),
                strace.record("chip.run", at, wall + 4 * US, **ids, dispatch_id=step),
            ]
    report = analyze([strace.write_log(tmp_path / "server.log", *lines)])
    [finding] = [entry for entry in report.findings if entry.code == "long_tail_split"]
    return finding


def test_the_programs_time_is_split_at_its_last_exchange(tmp_path: Path) -> None:
    finding = split_of(tmp_path)
    assert finding.figures == {
        "a late start_ns": 0,
        "the program up to its last exchange_ns": 3 * MS,
        "the program behind its last exchange_ns": 8 * MS,
        "the host side of the runner_ns": 0,
        "the rest of the run_ns": 0,
    }
    assert (
        "the program behind its last exchange is the largest part of 4 of 4 long tails, 73 %" in finding.title
    )


@pytest.mark.parametrize(("ahead", "sched"), [(False, "dev"), (True, ""), (True, "host")])
def test_where_the_last_exchange_is_not_told_the_device_wall_stays_whole(
    tmp_path: Path, ahead: bool, sched: str
) -> None:
    """Other runtimes have a sched too, which ends with something else; and so has a program without exchanges none."""
    finding = split_of(tmp_path, ahead=ahead, sched=sched)
    assert finding.figures["the device wall_ns"] == 11 * MS
    assert not [name for name in finding.figures if "exchange" in name]
