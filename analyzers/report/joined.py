"""One report of several runs: what was read and found of all of them, and the figures of each by itself."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from analyzers.charts.series import ChartSeries
from analyzers.recording.clocks import ClockAlignment
from analyzers.report.finding import Finding, in_order
from analyzers.report.model import (
    SCHEMA_VERSION,
    LifecycleFigures,
    RankNaming,
    Report,
    RunReport,
)


def join_reports(runs: Sequence[RunReport], findings: Sequence[Finding]) -> Report:
    """The report of `runs`; `findings` are of all of them together, and each run adds its own under its name.

    Records, losses, faults and spans are counted over all runs. Every other figure is of one run, and in its report:
    a rank, a step or a clock of one run is none of another's.
    """
    reports = [run.report for run in runs]
    own = [
        msgspec.structs.replace(finding, title=f"{run.name}: {finding.title}")
        for run in runs
        for finding in run.report.findings
    ]
    lifecycles = [report.lifecycle for report in reports]
    return Report(
        schema_version=SCHEMA_VERSION,
        inputs=[entry for report in reports for entry in report.inputs],
        filters=reports[0].filters,
        run=None,
        findings=in_order([*findings, *own]),
        records=sum(report.records for report in reports),
        parsed=sum(report.parsed for report in reports),
        lost=sum(report.lost for report in reports),
        spans=sum(report.spans for report in reports),
        host_window_ns=None,
        ranks=RankNaming(ranks=[], bases=[]),
        lost_runs=[lost for report in reports for lost in report.lost_runs],
        joins=[],
        failures=[failure for report in reports for failure in report.failures],
        lifecycle=LifecycleFigures(
            pairs=sum(lifecycle.pairs for lifecycle in lifecycles),
            failed=sum(lifecycle.failed for lifecycle in lifecycles),
            faults=list(itertools.chain.from_iterable(lifecycle.faults for lifecycle in lifecycles)),
            edges=list(itertools.chain.from_iterable(lifecycle.edges for lifecycle in lifecycles)),
            cross_process=[pair for lifecycle in lifecycles for pair in lifecycle.cross_process],
            declared_depth=None,
        ),
        steps=[],
        pipelines=[],
        step_time=[],
        skew=[],
        clocks=ClockAlignment("not aligned", evidence=f"{len(runs)} runs, each on clocks of its own"),
        rank_starts=[],
        lanes=[],
        observations=[],
        requests=[],
        request_lives=None,
        resources=[],
        mtp_accuracy=None,
        span_names=[],
        series=ChartSeries([], [], [], [], None, []),
        runs=list(runs),
    )
