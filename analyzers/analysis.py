"""From paths to a report: read, pair, match, measure. The one entry point of the analyzers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from analyzers.charts.clock_limits import calibrate_series, calibrate_skew, calibrate_starts
from analyzers.charts.series import measure_series
from analyzers.clients.goodput import Slos
from analyzers.clients.requests import full_batch_window, measure_requests
from analyzers.clients.resources import measure_resources
from analyzers.findings import Measured, find
from analyzers.findings.runs import several_runs
from analyzers.ranks.rank_starts import measure_rank_starts
from analyzers.ranks.rounds import LostRun, lost_runs, match_rounds, rank_runs
from analyzers.ranks.skew import LATE_NS, measure_skew
from analyzers.recording.filters import EVERYTHING, FilterError, Filters, apply_filters
from analyzers.recording.rank_map import map_ranks
from analyzers.recording.recording import Recording, Runs, load_runs
from analyzers.report.finding import UNSOUND
from analyzers.report.joined import join_reports
from analyzers.report.model import (
    SCHEMA_VERSION,
    LifecycleFigures,
    RankNaming,
    Report,
    RunReport,
    RunSummary,
    Scope,
    SpanFigures,
    StepFigures,
)
from analyzers.statistics.summary import Summary, exact_sum, summarize
from analyzers.steps.blocking import blocking_runs, durations_of
from analyzers.steps.bubbles import decode_callables, measure_step_time
from analyzers.steps.lifecycle import Lifecycle, check_lifecycles
from analyzers.steps.pipeline import PipelineResult, check_preparation, measure_pipeline
from analyzers.steps.steps import Steps
from analyzers.steps.thread_load import measure_lanes
from analyzers.table.callables import SUBMIT, WAIT, DispatchNames, is_prefill
from analyzers.table.nesting import RowNesting
from analyzers.table.spans import ABSENT, Clock, Kind, Mask, Source, SpanTable

TRUNCATED_NAMES = "(names the runtime cut)"

_CLOCK_NAMES: dict[int, Literal["host", "device", "file"]] = {
    Clock.HOST: "host",
    Clock.DEVICE: "device",
    Clock.FILE: "file",
}


@dataclass(frozen=True)
class AnalysisOptions:
    """What a user can choose about the figures."""

    late_ns: int = LATE_NS
    """How far after its round's median a rank is late."""
    filters: Filters = EVERYTHING
    """What of the recording is measured."""
    include_warmup: bool = False
    """Count warm-up requests among the measured ones."""
    slos: Slos | None = None
    """Latencies that requests are held against."""


@dataclass(frozen=True)
class Verdict:
    """The exit code a report deserves and why (design.md, Command line)."""

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
    options = options or AnalysisOptions()
    if options.include_warmup:
        requests = [dataclasses.replace(timing, phase="measured") for timing in recording.requests]
        recording = dataclasses.replace(recording, requests=requests)
    window = full_batch_window([timing for timing in recording.requests if timing.phase == "measured"])
    recording = apply_filters(recording, options.filters)
    spans = recording.spans
    depth = recording.manifest.depth if recording.manifest is not None else None
    lifecycle = check_lifecycles(spans, recording.invalid, depth=depth)
    if depth is not None:
        lifecycle.faults += check_preparation(spans, depth)
    runs, without_root = rank_runs(spans, DispatchNames(spans))
    matching = match_rounds(runs, without_root)
    without_record = lost_runs(matching, _completed(recording, lifecycle))
    pipelines = [
        measure_pipeline(name, spans, lifecycle, matching, full_batch=window)
        for name in decode_callables(lifecycle, matching)
    ]
    # Of some of the ranks, none can tell which one a step waited for.
    step_times = [
        split
        for result in pipelines
        if options.filters.ranks is None
        and recording.clocks.method != "not aligned"
        and (split := measure_step_time(result, lifecycle, matching)) is not None
    ]
    steady = {key for result in pipelines for key in result.steady_steps.dispatch_id.tolist()} - {ABSENT}
    skew = [
        calibrate_skew(figures, recording.clocks)
        for figures in measure_skew(matching, late_ns=options.late_ns, steady_dispatches=steady or None)
    ]
    kinds = spans.kind != Kind.INSTANT
    lanes, nesting = measure_lanes(spans)
    report = Report(
        schema_version=SCHEMA_VERSION,
        inputs=recording.reports,
        filters=options.filters.statements,
        run=_run_summary(recording),
        findings=[],
        records=sum(entry.records for entry in recording.reports),
        parsed=sum(entry.parsed for entry in recording.reports),
        lost=_lost(recording, without_record),
        spans=int(kinds.sum()),
        host_window_ns=spans.window(Clock.HOST, kinds),
        ranks=_rank_naming(recording),
        lost_runs=without_record,
        lifecycle=LifecycleFigures(
            pairs=len(lifecycle.steps),
            faults=lifecycle.faults,
            failed=len(lifecycle.failed),
            edges=lifecycle.edges,
            cross_process=lifecycle.cross_process,
            declared_depth=depth,
        ),
        steps=_step_figures(lifecycle, pipelines) + _blocking_figures(spans),
        pipelines=[result.figures for result in pipelines if result.figures.has_figures],
        step_time=step_times,
        skew=skew,
        clocks=recording.clocks,
        rank_starts=calibrate_starts(measure_rank_starts(spans), recording.file_clocks),
        lanes=lanes,
        observations=recording.observations,
        requests=measure_requests(recording.requests, options.slos),
        resources=measure_resources(recording.resources),
        mtp_accuracy=recording.mtp_accuracy,
        span_names=_span_figures(spans, kinds, nesting),
        series=calibrate_series(
            measure_series(
                spans, lifecycle, matching, pipelines, recording.requests, late_ns=options.late_ns
            ),
            skew,
        ),
    )
    measured = Measured(report, recording, lifecycle, matching, pipelines)
    return msgspec.structs.replace(report, findings=find(measured))


def judge(report: Report, *, strict: bool = False, max_loss: int = 0) -> Verdict:
    """The exit code: 4 for loss beyond `max_loss`, 3 without data, 1 when every request failed or MTP changed
    what was generated, else 0.

    When strict, lifecycle faults, repaired input, and ranks or rounds that are not whole are 4 too.
    """
    if report.lost > max_loss:
        first = next((f"; {f.title}" for f in report.findings if f.code == "lost_records"), "")
        return Verdict(4, f"records lost: {report.lost}, allowed: {max_loss} (--max-loss){first}")
    if not report.has_data:
        return Verdict(3, next((f.title for f in report.findings if f.code == "no_data"), "no data"))
    if strict and report.lifecycle.faults:
        return Verdict(4, f"{len(report.lifecycle.faults)} lifecycle faults (--strict)")
    unsound = [
        finding for finding in report.findings if finding.code in UNSOUND and finding.severity != "info"
    ]
    if strict and unsound:
        return Verdict(4, f"{unsound[0].title} (--strict)")
    for part in report.parts:
        measured = [figures for figures in part.requests if figures.phase == "measured"]
        if measured and all(figures.failed == figures.requests for figures in measured):
            failed = sum(figures.failed for figures in measured)
            return Verdict(1, f"failed={failed} of {failed}: every request failed")
        if part.mtp_accuracy is not None and part.mtp_accuracy.different_requests:
            return Verdict(
                1, next(f"{f.title}: {f.evidence}" for f in part.findings if f.code == "mtp_accuracy")
            )
    return Verdict(0, "ok")


def _completed(recording: Recording, lifecycle: Lifecycle) -> set[int]:
    """Dispatches that every rank is known to have done; in a run that failed, a wait may have ended in the failure."""
    if recording.manifest is not None and recording.manifest.status != "complete":
        return set()
    return set(lifecycle.steps.dispatch_id.tolist()) - {ABSENT}


def _lost(recording: Recording, without_record: list[LostRun]) -> int:
    """Records lost: what the readers counted, and the runs that even a record lost by a reader does not explain."""
    unreadable = sum(entry.lost for entry in recording.reports if entry.format == "strace_log")
    return recording.lost + max(0, len(without_record) - unreadable)


def _rank_naming(recording: Recording) -> RankNaming:
    """The ranks of logs and of traces, what names them, and their devices."""
    devices = map_ranks(recording.spans, recording.ranks.basis, recording.given_ranks)
    of_traces = {entry.named_by for entry in devices} - set(recording.ranks.bases)
    return RankNaming(
        ranks=sorted(set(recording.ranks.ranks.values()) | {entry.rank for entry in devices}),
        bases=[*recording.ranks.bases, *sorted(of_traces)],
        devices=devices,
    )


def _run_summary(recording: Recording) -> RunSummary | None:
    manifest = recording.manifest
    if manifest is None:
        return None
    return RunSummary(
        status=manifest.status,
        profile=str(manifest.profile.get("name", "")),
        ranks=len(manifest.device_map),
        depth=manifest.depth,
        error=manifest.error,
        expected_output_tokens=manifest.expected_output_tokens,
        faults=manifest.faults,
        program_cache=manifest.program_cache,
        restarts=manifest.restarts,
    )


def _step_figures(lifecycle: Lifecycle, pipelines: list[PipelineResult]) -> list[StepFigures]:
    """Submit-to-completion of every callable; the steady steps of a decode callable first."""
    steady = {result.figures.callable: result.steady_steps for result in pipelines}
    by_callable = {name: lifecycle.of(name) for name in lifecycle.steps.callables}
    figures = []
    for name, steps in sorted(by_callable.items(), key=lambda entry: (is_prefill(entry[0]), -len(entry[1]))):
        scopes: list[tuple[Scope, Steps | None]] = [("steady", steady.get(name)), ("all", steps)]
        for scope, chosen in scopes:
            if chosen is not None and len(chosen):
                figures.append(
                    StepFigures(
                        callable=name,
                        source="submit_to_completion",
                        span=f"{name}{SUBMIT} to {name}{WAIT}",
                        scope=scope,
                        latency=summarize(chosen.submit_to_completion_ns),
                        submit=summarize(chosen.submit_end_ns - chosen.start_ns),
                        wait=summarize(chosen.end_ns - chosen.wait_start_ns),
                        paired_by=chosen.paired_by_counts,
                    )
                )
    return figures


def _blocking_figures(spans: SpanTable) -> list[StepFigures]:
    """Blocking runs, by the name of their span."""
    return [
        StepFigures(
            callable=name,
            source="blocking_kernel_span",
            span=label,
            scope="all",
            latency=summarize(durations_of(spans, label)),
            submit=Summary(n=0),
            wait=Summary(n=0),
            paired_by={},
        )
        for name, label in blocking_runs(spans).items()
    ]


def _span_figures(spans: SpanTable, counted: Mask, nesting: RowNesting) -> list[SpanFigures]:
    """Durations by name of the rows `counted`, the largest total first; names the runtime cut are one group."""
    labels = [TRUNCATED_NAMES if label.endswith("~") else label for label in spans.names]
    codes: dict[str, int] = {}
    of_name = np.array([codes.setdefault(label, len(codes)) for label in labels], dtype=np.int32)
    distinct = list(codes)
    # In place and in 32 bits: for a large trace every temporary column counts.
    group = of_name[spans.name] if len(spans) else np.empty(0, dtype=np.int32)
    group *= len(Source) * len(Clock)
    group += spans.source * np.int8(len(Clock)) + spans.clock
    group[~counted] = ABSENT
    order = np.argsort(group, kind="stable")
    group = group[order]
    starts = np.flatnonzero(np.diff(group, prepend=ABSENT))
    bounds = [*starts.tolist(), len(order)]
    figures = []
    for start, end in pairwise(bounds):
        key = int(group[start])
        durations = spans.duration_ns[order[start:end]]
        own, depth = nesting.self_ns[order[start:end]], nesting.depth[order[start:end]]
        nests = bool((own != ABSENT).all())
        name, source, clock = (
            key // len(Clock) // len(Source),
            key // len(Clock) % len(Source),
            key % len(Clock),
        )
        figures.append(
            SpanFigures(
                name=distinct[name],
                source="serving" if source == Source.SERVING else "strace",
                clock=_CLOCK_NAMES[clock],
                total_ns=exact_sum(durations),
                duration=summarize(durations),
                self_ns=exact_sum(own) if nests else None,
                depth=int(depth.min()) if nests else None,
            )
        )
    return sorted(figures, key=lambda entry: (-entry.total_ns, entry.name))
