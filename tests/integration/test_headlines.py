"""Four runs of the command, and the first finding of each: a collapsed pipeline, a slow rank, slow ranks in turn, none.

The delays are far above what the ranks of a busy two-core host vary by, and every rank has as much to do.
"""

import re
from pathlib import Path

import pytest

from analyzers.analysis import analyze
from analyzers.report.model import Report
from tests.integration.command import SMALL, manifest_of, run

# Four real runs: minutes on a slow machine.
pytestmark = pytest.mark.slow

STEPS = 24
"""About so many decode steps: without drafts, one for each output token but the first."""

PERFORMANCE = {
    "pipeline_collapsed",
    "synchronous_fallback",
    "straggler",
    "slow_rank_in_exchange",
    "no_persistent_straggler",
    "cold_start",
    "late_ranks",
    "host_bound",
    "acceptance_fell",
    "lost_records",
}


def report_of(environment: dict[str, str], out: Path, *faults: str) -> Report:
    """The report of a run with four ranks and a request each."""
    completed = run(
        environment,
        *("run", "gbs32-mtp1", *SMALL, "--out", out, "--set", "load.requests=4"),
        *("--set", f"load.output_tokens={STEPS + 1}", "--set", "engine.mtp=0"),
        *(argument for fault in faults for argument in ("--fault", fault)),
    )
    assert completed.returncode == 0, completed.stderr
    assert len(manifest_of(out).faults) == len(faults)
    report = analyze([out])
    # What the command prints first is the same headline.
    first = report.findings[0]
    assert completed.stdout.startswith(f"{first.severity}: {first.title}")
    return report


def warned(report: Report) -> set[str]:
    """What the report warns of, by code."""
    return {finding.code for finding in report.findings if finding.severity != "info"}


def test_a_serialised_engine_has_a_collapsed_pipeline_and_the_device_lane_is_named(
    environment: dict[str, str], tmp_path: Path
) -> None:
    report = report_of(environment, tmp_path / "run", "kind=serialise")
    headline = report.findings[0]
    assert (headline.code, headline.severity) == ("pipeline_collapsed", "warning")
    assert headline.title.endswith("; the device lane waits for the step ahead")
    assert headline.figures["submitted_early"] <= 0.1 * headline.figures["pairs"]
    # A host that has nothing to do behind the device may well be what takes most of a small model's step.
    assert warned(report) & PERFORMANCE <= {"pipeline_collapsed", "host_bound"}


def test_a_slow_rank_is_named(environment: dict[str, str], tmp_path: Path) -> None:
    report = report_of(environment, tmp_path / "run", "rank=2,kind=slow:100ms")
    headline = report.findings[0]
    assert (headline.code, headline.severity) == ("straggler", "warning")
    assert "rank 2 is persistently the last to end" in headline.title
    assert headline.figures["p_value"] < 0.01
    assert warned(report) & PERFORMANCE == {"straggler"}


def test_slow_ranks_in_turn_are_no_persistent_straggler(environment: dict[str, str], tmp_path: Path) -> None:
    report = report_of(environment, tmp_path / "run", "rank=rotate,kind=slow:100ms")
    headline = report.findings[0]
    assert (headline.code, headline.severity) == ("no_persistent_straggler", "warning")
    assert re.search(r"in \d+ % of the rounds one rank is far behind the others", headline.title)
    assert headline.figures["p_value"] >= 0.01
    assert warned(report) & PERFORMANCE == {"no_persistent_straggler"}


def test_a_healthy_run_is_called_healthy(environment: dict[str, str], tmp_path: Path) -> None:
    report = report_of(environment, tmp_path / "run")
    headline = report.findings[0]
    assert warned(report) == set()
    assert headline.code == "healthy"
    assert headline.title == "healthy: two in flight, no rank persistently late, nothing lost"
