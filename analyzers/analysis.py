"""From paths to a report and its verdict: read, measure once, report, judge."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from analyzers.findings import find
from analyzers.findings.runs import several_runs
from analyzers.measurement import AnalysisOptions, Measured, measure
from analyzers.recording.filters import FilterError
from analyzers.recording.recording import Recording, Runs, load_runs
from analyzers.report.build import build_report
from analyzers.report.finding import UNSOUND
from analyzers.report.joined import join_reports
from analyzers.report.model import Report, RunReport

_INVALID = frozenset({"rank_failed", "trace_missing", "tokens_contradict"})
"""Findings of errors with which a recording is not what it should be."""


@dataclass(frozen=True)
class Verdict:
    """The exit code a report deserves and why (README.md, Exit codes)."""

    exit_code: int
    reason: str


def analyze(paths: Iterable[str | Path], options: AnalysisOptions | None = None) -> Report:
    """Read `paths` (run directories, traces, logs, request records) and measure everything in them.

    Raises:
        UnusableInputError: a path cannot be read or is none of the known formats.
    """
    return analyze_runs(load_runs(paths), options)


def analyze_runs(runs: Runs, options: AnalysisOptions | None = None) -> Report:
    """Measure runs that were already read, each by itself, and report them together.

    Raises:
        FilterError: one of them has nothing of what a filter asks for.
    """
    if len(runs.recordings) == 1:
        return analyze_recording(runs.recordings[0], options)
    reports = []
    for recording in runs.recordings:
        try:
            reports.append(RunReport(recording.name, analyze_recording(recording, options)))
        except FilterError as error:
            raise FilterError(f"{recording.name}: {error}") from error
    return join_reports(reports, [several_runs([run.name for run in reports], runs.evidence)])


def analyze_recording(recording: Recording, options: AnalysisOptions | None = None) -> Report:
    """Measure a recording that was already read.

    Raises:
        FilterError: the recording has nothing of what a filter asks for.
    """
    return report_of(measure(recording, options))


def report_of(measured: Measured) -> Report:
    """The report of a recording that was measured: every figure, and what is to be said about them."""
    report = build_report(measured)
    return msgspec.structs.replace(report, findings=find(measured, report))


def judge(report: Report, *, strict: bool = False, max_loss: int = 0) -> Verdict:
    """The exit code: 4 for loss beyond `max_loss`, a trace that is missing and a rank that failed, 3 without data, 1 when
    every request failed or MTP changed what was generated, else 0.

    When strict, lifecycle faults, repaired input, and ranks or rounds that are not whole are 4 too.
    """
    if report.lost > max_loss:
        first = next((f"; {f.title}" for f in report.findings if f.code == "lost_records"), "")
        return Verdict(4, f"records lost: {report.lost}, allowed: {max_loss} (--max-loss){first}")
    if not report.has_data:
        return Verdict(3, next((f.title for f in report.findings if f.code == "no_data"), "no data"))
    gone = next((finding for finding in report.findings if finding.code in _INVALID), None)
    if gone is not None:
        return Verdict(4, gone.title)
    if strict and report.lifecycle.faults:
        return Verdict(4, f"{len(report.lifecycle.faults)} lifecycle faults (--strict)")
    unsound = [
        finding for finding in report.findings if finding.code in UNSOUND and finding.severity != "info"
    ]
    if strict and unsound:
        return Verdict(4, f"{unsound[0].title} (--strict)")
    for part in report.parts:
        measured = [figures for figures in part.requests if figures.phase == "measured"]
        failed = sum(figures.failed for figures in measured)
        if failed and all(figures.failed == figures.requests for figures in measured):
            return Verdict(1, f"failed={failed} of {failed}: every request failed")
        if part.mtp_accuracy is not None and part.mtp_accuracy.different_requests:
            return Verdict(
                1, next(f"{f.title}: {f.evidence}" for f in part.findings if f.code == "mtp_accuracy")
            )
    return Verdict(0, "ok")
