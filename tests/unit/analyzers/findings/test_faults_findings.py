"""What an analysis says of a recording that a fault has damaged."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from analyzers.analysis import analyze, judge
from analyzers.ranks.rounds import LostRun
from analyzers.report.model import Report
from analyzers.rundir import Manifest, RunDirectory, RunStatus
from tests.builders import chrome, strace
from tests.builders.manifests import device_map, write_manifest

ROUNDS = 6
CALLABLE = "deepseek_v4_decode"


def record(rank: int, number: int) -> str:
    run: dict[str, Any] = {"dispatch_id": 40 + number, "run_id": 40 + number}
    run |= {"slot_id": number % 2, "generation": number}
    return strace.record("chip.run", 1000 * number, 500, pid=10 + rank, inv=number, **run)


def spans() -> Iterator[dict[str, Any]]:
    """A submit and a wait of every round, in us."""
    for number in range(1, ROUNDS + 1):
        submit, wait = (number, number + 1), (number + 1, number + 2)
        yield from chrome.dispatch(submit, wait, program=CALLABLE, step_id=number, dispatch_id=40 + number)


def write_run(
    root: Path,
    lost: tuple[int, int],
    *,
    torn: bool = False,
    status: RunStatus = "complete",
    serving: bool = True,
) -> RunDirectory:
    """Two ranks and six rounds; `lost` = (rank, round) has no record, or half of one."""
    run = RunDirectory(root)
    run.strace.mkdir(parents=True)
    for rank in (0, 1):
        lines = ""
        for number in range(1, ROUNDS + 1):
            line = record(rank, number)
            if (rank, number) != lost:
                lines += line + "\n"
            elif torn:
                lines += line.partition(" dur=")[0]
        run.rank_log(rank).write_text(lines)
    if serving:
        chrome.write_trace(run.serving_trace, spans())
    faults = ["rank=1,step=2,kind=drop-strace (dispatch 43)"]
    write_manifest(run, status=status, device_map=device_map((0, 1)), faults=faults)
    return run


def texts(report: Report, code: str) -> list[tuple[str, str, str]]:
    return [(f.severity, f.title, f.evidence) for f in report.findings if f.code == code]


def test_a_run_without_a_record_is_lost_and_named_by_rank_dispatch_and_step(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", lost=(1, 3))
    report = analyze([run.root])
    assert report.lost_runs == [LostRun(1, CALLABLE, 43)]
    assert report.lost == 1
    assert texts(report, "lost_records") == [
        (
            "error",
            "rank 1: no chip.run record of 1 of its runs",
            f"first: {CALLABLE} dispatch 43 (step 3), in {run.rank_log(1)}",
        )
    ]
    assert texts(report, "incomplete_rounds") == [
        ("warning", f"{CALLABLE}: 1 of 6 rounds incomplete", "first: round 2 (run 43) without rank 1")
    ]
    assert texts(report, "faults_injected") == [
        (
            "info",
            "faults were injected: rank=1,step=2,kind=drop-strace (dispatch 43)",
            "by run --fault, says run.json",
        )
    ]
    verdict = judge(report)
    assert (verdict.exit_code, verdict.reason) == (
        4,
        "records lost: 1, allowed: 0 (--max-loss); rank 1: no chip.run record of 1 of its runs",
    )
    assert judge(report, max_loss=1).exit_code == 0


def test_a_torn_root_is_one_lost_record_not_two(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", lost=(1, 3), torn=True)
    report = analyze([run.root])
    assert report.lost_runs == [LostRun(1, CALLABLE, 43)]
    assert report.lost == 1
    first, second = texts(report, "lost_records")
    assert first == (
        "error",
        "1 of 6 records lost: records torn by another writer",
        f"{run.rank_log(1)}: torn_record=1, first at line 3",
    )
    assert second[1] == "rank 1: no chip.run record of 1 of its runs"


def test_the_last_run_is_lost_when_its_dispatch_is_known_to_be_complete(tmp_path: Path) -> None:
    assert analyze([write_run(tmp_path / "known", lost=(0, ROUNDS)).root]).lost_runs == [
        LostRun(0, CALLABLE, 40 + ROUNDS)
    ]
    unknown = analyze([write_run(tmp_path / "unknown", lost=(0, ROUNDS), serving=False).root])
    assert unknown.lost_runs == []
    assert [(severity, title) for severity, title, _ in texts(unknown, "incomplete_rounds")] == [
        ("info", "hid ab: 1 of 6 rounds incomplete")
    ]


def test_in_a_run_that_failed_the_last_dispatch_may_have_ended_in_the_failure(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", lost=(0, ROUNDS), status="incomplete")
    assert analyze([run.root]).lost_runs == []


def test_the_error_of_a_run_is_told_without_its_traceback(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", lost=(0, ROUNDS), status="incomplete")
    manifest = msgspec.json.decode(run.manifest.read_bytes(), type=Manifest)
    error = "decode step 6: rank 0 raised in dispatch 46 (x):\nTraceback:\n  File\nValueError: bad\n"
    run.manifest.write_bytes(msgspec.json.encode(msgspec.structs.replace(manifest, error=error)))
    assert texts(analyze([run.root]), "run_status") == [
        (
            "warning",
            "the run is incomplete: figures cover what was recorded until then",
            "decode step 6: rank 0 raised in dispatch 46 (x): ValueError: bad",
        )
    ]
