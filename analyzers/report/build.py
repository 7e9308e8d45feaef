"""From one measurement to a report with every figure; findings are made of it afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Literal

import msgspec
import numpy as np

from analyzers.charts.series import measure_series
from analyzers.clients.requests import measure_requests
from analyzers.clients.resources import measure_resources
from analyzers.clients.stated import StatedFigures, measure_stated
from analyzers.measurement import Measured
from analyzers.ranks.clock_limits import calibrate_starts
from analyzers.ranks.rank_starts import measure_rank_starts
from analyzers.ranks.rounds import LostRun
from analyzers.recording.rank_map import map_ranks
from analyzers.recording.recording import Recording
from analyzers.report.model import (
    SCHEMA_VERSION,
    LifecycleFigures,
    RankNaming,
    Report,
    RunSummary,
    Scope,
    SpanFigures,
    StepFigures,
)
from analyzers.report.published import PublishedComparison, beside_published
from analyzers.statistics.summary import Summary, exact_sum, summarize
from analyzers.steps.blocking import blocking_runs, durations_of
from analyzers.steps.bubbles import StepTime, measure_step_time
from analyzers.steps.joins import completions
from analyzers.steps.steps import Steps
from analyzers.steps.thread_load import measure_lanes
from analyzers.table.callables import SUBMIT, WAIT, is_prefill
from analyzers.table.nesting import RowNesting
from analyzers.table.spans import ABSENT, Clock, Kind, Mask, Source, SpanTable

TRUNCATED_NAMES = "(names the runtime cut)"

_CLOCK_NAMES: dict[int, Literal["host", "device", "file"]] = {
    Clock.HOST: "host",
    Clock.DEVICE: "device",
    Clock.FILE: "file",
}


def build_report(measured: Measured) -> Report:
    """Every figure of a measured recording; its list of findings is empty."""
    recording, lifecycle, options = measured.recording, measured.lifecycle, measured.options
    spans = recording.spans
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
        lost=_lost(recording, measured.lost_runs),
        spans=int(kinds.sum()),
        host_window_ns=spans.window(Clock.HOST, kinds),
        ranks=_rank_naming(recording),
        lost_runs=measured.lost_runs,
        joins=measured.joins,
        failures=measured.failures,
        lifecycle=LifecycleFigures(
            pairs=len(lifecycle.steps),
            faults=lifecycle.faults,
            failed=len(lifecycle.failed),
            edges=lifecycle.edges,
            cross_process=lifecycle.cross_process,
            declared_depth=lifecycle.depth,
        ),
        steps=_step_figures(measured) + _blocking_figures(spans),
        pipelines=[result.figures for result in measured.pipelines if result.figures.has_figures],
        step_time=_step_times(measured),
        skew=measured.skew,
        clocks=recording.clocks,
        rank_starts=calibrate_starts(measure_rank_starts(spans), recording.file_clocks),
        lanes=lanes,
        observations=recording.observations,
        requests=measure_requests(recording.requests, options.slos),
        request_lives=measured.joined_requests.figures,
        resources=measure_resources(recording.resources),
        mtp_accuracy=recording.mtp_accuracy,
        span_names=_span_figures(spans, kinds, nesting),
        series=measure_series(measured),
        stated=_stated(measured),
    )
    return msgspec.structs.replace(report, published=_published(measured, report))


def _published(measured: Measured, report: Report) -> PublishedComparison | None:
    """What was published of the run's workload; it is of all of the run, never of a part."""
    manifest = measured.recording.manifest
    if manifest is None or measured.options.filters.statements:
        return None
    return beside_published(report, manifest.profile)


def _stated(measured: Measured) -> StatedFigures | None:
    """What is stated of the requests, where nobody measured them; it is of all of them, never of a part."""
    if measured.recording.requests or measured.options.filters.statements:
        return None
    return measure_stated(measured.recording.statements)


def _step_times(measured: Measured) -> list[StepTime]:
    """How the time of a step is split. Of some of the ranks, none can tell which one a step waited for."""
    if measured.options.filters.ranks is not None or not measured.recording.clocks.comparable:
        return []
    splits = (
        measure_step_time(result, measured.lifecycle, measured.matching) for result in measured.pipelines
    )
    return [split for split in splits if split is not None]


def _lost(recording: Recording, without_record: list[LostRun]) -> int:
    """Records lost: what the readers counted, and the runs that even a record lost by a reader does not explain."""
    unreadable = sum(entry.lost for entry in recording.reports if entry.format == "strace_log")
    return recording.lost + max(0, len(without_record) - unreadable)


def _rank_naming(recording: Recording) -> RankNaming:
    """The ranks of logs and of traces, what names them, and their devices."""
    devices = map_ranks(recording.spans, recording.ranks, recording.given_ranks)
    of_traces = {entry.named_by for entry in devices} - set(recording.ranks.bases)
    return RankNaming(
        ranks=sorted(set(recording.ranks.ranks.values()) | {entry.rank for entry in devices}),
        bases=[*recording.ranks.bases, *sorted(of_traces)],
        lives=max(recording.ranks.lives.values(), default=0) + 1,
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
        tracing=manifest.tracing,
        server=manifest.server,
        client=manifest.client,
    )


def _completion(completed: Mapping[tuple[object, int], int], steps: Steps) -> Summary:
    if not completed:
        return Summary(n=0)
    pids = [process[1] for process in steps.endpoints.processes]
    columns = steps.process.tolist(), steps.dispatch_id.tolist(), steps.start_ns.tolist()
    ends = [
        (completed.get((pids[process], dispatch)), start)
        for process, dispatch, start in zip(*columns, strict=True)
    ]
    return summarize([end - start for end, start in ends if end is not None])


def _step_figures(measured: Measured) -> list[StepFigures]:
    """Submit-to-completion of every callable; the steady steps of a decode callable first."""
    lifecycle = measured.lifecycle
    completed = completions(measured.recording.spans, measured.schedule)
    steady = {result.figures.callable: result.steady_steps for result in measured.pipelines}
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
                        completion=_completion(completed, chosen),
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
            completion=Summary(n=0),
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
