"""What is said of ranks by as many rounds as there are (case 107)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from analyzers.analysis import analyze
from analyzers.report.model import Finding
from analyzers.statistics.counts import smallest_p_value
from tests.builders.strace import ready, record, write_log

MS = 1_000_000
WORDS = ("persistent", " changes")


def findings(path: Path, ends_ms: Sequence[Sequence[float]]) -> list[Finding]:
    """Of a log in which each rank's runner ends so long after the earliest, round by round."""
    lines = [ready(100 + rank, rank) for rank in range(len(ends_ms[0]))]
    for number, ends in enumerate(ends_ms):
        start = 1000 * MS * (number + 1)
        for rank, end in enumerate(ends):
            lasts = 50 * MS + int(end * MS)
            pid, inv = 100 + rank, number + 1
            lines.append(record("simpler_run.runner_run", start, lasts, pid=pid, inv=inv))
            lines.append(record("chip.run", start, lasts + 1000, pid=pid, inv=inv))
    return analyze([write_log(path / "server.log", *lines)]).findings


def words(found: list[Finding]) -> str:
    return " ".join(f"{finding.title} {finding.evidence} {finding.advice}" for finding in found)


@pytest.mark.parametrize(
    "ends", [[[5, 0], [6, 0], [7, 0]], [[5, 0], [0, 6], [7, 0]], [[9, 0]] * 7, [[0, 9, 0]] * 4]
)
def test_107_too_few_rounds_to_tell(tmp_path: Path, ends: list[list[float]]) -> None:
    found = findings(tmp_path, ends)
    [finding] = [finding for finding in found if finding.code == "too_few_rounds"]
    assert finding.severity == "info"
    assert f"{len(ends)} rounds, too few rounds to tell" in finding.title
    assert not [word for word in WORDS if word in words(found)], words(found)
    # All rounds of one rank: as many outcomes as ranks, of ranks ** rounds.
    assert finding.figures["smallest_p_value"] == pytest.approx(len(ends[0]) ** (1 - len(ends)))


def test_107_a_rank_that_is_last_in_enough_rounds_is_named(tmp_path: Path) -> None:
    [finding] = [finding for finding in findings(tmp_path, [[9, 0]] * 8) if finding.code == "straggler"]
    assert "rank 0 is persistently the last to end" in finding.title


def test_107_the_last_rank_changes_in_enough_rounds(tmp_path: Path) -> None:
    found = findings(tmp_path, [[9, 0], [0, 9]] * 5)
    assert [finding.code for finding in found if "changes" in finding.title] == ["no_persistent_straggler"]


def test_107_nearly_always_the_same_rank_is_no_change(tmp_path: Path) -> None:
    # 8 of 9 rounds: p = 2 * 10 / 2 ** 9 = 0.039, and 89 % of the rounds.
    found = findings(tmp_path, [[9, 0]] * 4 + [[0, 9]] + [[9, 0]] * 4)
    assert "too_few_rounds" in {finding.code for finding in found}
    assert not [word for word in WORDS if word in words(found)], words(found)


@pytest.mark.parametrize(
    ("rounds", "ranks", "p_value"),
    [(3, 2, 0.25), (7, 2, 2 / 128), (8, 2, 2 / 256), (4, 4, 4 / 256), (1, 8, 1)],
)
def test_107_the_smallest_p_value(rounds: int, ranks: int, p_value: float) -> None:
    assert smallest_p_value(rounds, ranks) == pytest.approx(p_value)


def test_107_long_tails_say_in_how_many_their_largest_part_is_the_largest(tmp_path: Path) -> None:
    found = findings(tmp_path, [[9, 0, 0], [8, 0, 0]])
    [finding] = [finding for finding in found if finding.code == "long_tail_split"]
    assert "the runner is the largest part of 2 of 2 long tails" in finding.title


@pytest.mark.parametrize("slow", ["000", "001", "0000000", "000000001"])
def test_107_times_by_step_say_the_same(tmp_path: Path, slow: str) -> None:
    path = tmp_path / "steps.jsonl"
    lines = [
        {"step": step, "ms": {rank: 15 if rank == last else 10 for rank in "01"}}
        for step, last in enumerate(slow)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    [observation] = analyze([path]).observations
    assert observation.notes[0].startswith(
        "too few steps to tell whether one rank is slow: rank 0, slowest in"
    )


@pytest.mark.parametrize("last", [[0, 0], [0, 0, 1], [0] * 3])
def test_107_few_late_arrivals_at_a_collective_tell_nothing(tmp_path: Path, last: list[int]) -> None:
    events = []
    for step, late in enumerate(last):
        for rank in range(4):
            after, lasts = (90, 10) if rank == late else (0, 100 + rank % 2)
            event = {"ph": "X", "name": "all_to_all", "ts": 1000 * step + after, "dur": lasts}
            events.append({**event, "pid": rank, "tid": rank, "args": {"rank": rank, "step": step}})
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(events))
    found = analyze([path]).findings
    assert "too few to tell whether one rank is late" in words(found)
    assert not [word for word in WORDS if word in words(found)], words(found)
