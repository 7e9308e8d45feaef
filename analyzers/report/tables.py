"""The report as tables: what every human rendering draws, in the same order and words."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from functools import partial

import msgspec

from analyzers.clients.requests import RequestFigures
from analyzers.clients.resources import ResourceGrowth
from analyzers.ranks.skew import Lateness, RankSkew
from analyzers.recording.rank_map import RankDevice
from analyzers.report.input_tables import input_tables
from analyzers.report.model import Report, SpanFigures, StepFigures
from analyzers.report.overview import output_tokens, overview
from analyzers.report.published_table import published_table
from analyzers.report.request_lives_table import request_lives_table
from analyzers.report.stated_table import stated_table
from analyzers.statistics.summary import Summary
from analyzers.steps.bubbles import StepTime
from analyzers.steps.faults import LifecycleFault
from analyzers.steps.pipeline import Pipeline
from analyzers.table.callables import is_prefill
from analyzers.text.figures import MILLISECOND, UNAVAILABLE, number, percent
from analyzers.text.tables import CellKind, Column, Row, Table
from analyzers.text.words import counted

TOO_SMALL = "-"
FAULTS_SHOWN = 20
NAMES_SHOWN = 20

_SUMMARY_COLUMNS = (
    Column("n", CellKind.COUNT, dispensable=5),
    Column("mean", CellKind.TIME),
    Column("p50", CellKind.TIME, dispensable=2),
    Column("p95", CellKind.TIME, absent=TOO_SMALL, dispensable=1),
    Column("p99", CellKind.TIME, absent=TOO_SMALL, dispensable=3),
    Column("max", CellKind.TIME, dispensable=4),
)


def report_tables(report: Report, *, full: bool = True) -> list[Table]:
    """The tables that the report has figures for.

    With `full=False` those that repeat or only complete the others are left out: rounds of a callable whose steady
    rounds are drawn, prefill and warm-up beside measured decode, lifecycles without a fault, inputs without a loss,
    and spans by name where steps or ranks are known. Of several runs, those of each, under its name.
    """
    if report.runs:
        return [
            dataclasses.replace(table, title=f"{run.name}: {table.title}")
            for run in report.runs
            for table in report_tables(run.report, full=full)
        ]
    if not full:
        report = _essential(report)
    summary = overview(report)
    tables = [summary] if summary is not None else []
    tables += _told_by_others(report)
    if full or report.lost or summary is None:
        tables.append(_inputs(report))
    for name in dict.fromkeys(figures.callable for figures in report.steps):
        tables.append(_steps(name, [figures for figures in report.steps if figures.callable == name]))
    tables += [_pipeline(pipeline) for pipeline in report.pipelines]
    tables += [_step_time(step_time) for step_time in report.step_time]
    detailed: set[str] = set()
    for skew in report.skew:
        # Who is critical and who is last is drawn once a decode callable: for its steady rounds if there are any.
        in_detail = skew.callable not in detailed and not is_prefill(skew.callable)
        tables += _rank_tables(skew, report, in_detail=in_detail)
        detailed.add(skew.callable)
    tables += _request_tables(report)
    if report.resources:
        tables.append(_resources(report.resources))
    if full or report.lifecycle.faults:
        tables += _lifecycle_tables(report)
    tables += input_tables(report, full=full)
    if report.span_names and (full or not (report.steps or report.skew)):
        tables.append(_span_names(report.span_names))
    return tables


def _request_tables(report: Report) -> list[Table]:
    tables = [table for figures in report.requests for table in _requests(figures)]
    return tables + ([request_lives_table(report.request_lives)] if report.request_lives is not None else [])


def _told_by_others(report: Report) -> list[Table]:
    """What was published of the workload, and what the server states of its requests."""
    tables = [published_table(report.published)] if report.published is not None else []
    return tables + ([stated_table(report.stated)] if report.stated is not None else [])


def _essential(report: Report) -> Report:
    """The report without the figures that the short rendering leaves out."""
    steady = {skew.callable for skew in report.skew if skew.scope == "steady"}
    skew = [figures for figures in report.skew if figures.scope == "steady" or figures.callable not in steady]
    decode = [figures for figures in skew if not is_prefill(figures.callable)]
    measured = [figures for figures in report.requests if figures.phase == "measured"]
    return msgspec.structs.replace(report, skew=decode or skew, requests=measured or report.requests)


def validation_tables(report: Report) -> list[Table]:
    """Completeness and lifecycles only."""
    return [_inputs(report), *_lifecycle_tables(report)]


def _summary_row(label: str, summary: Summary) -> Row:
    """A label and a row of `_SUMMARY_COLUMNS`; a percentile that the sample does not support is a dash."""
    if summary.n == 0:
        return [label, 0, None]
    return [label, summary.n, summary.mean, summary.p50, summary.p95, summary.p99, summary.max]


def _too_small_note(summaries: Iterable[Summary]) -> list[str]:
    small = any(summary.n and summary.p99 is None for summary in summaries)
    return ["-: n too small (p95 needs 20 values, p99 100)"] if small else []


def _inputs(report: Report) -> Table:
    rows: list[Row] = [
        [entry.path, entry.format.replace("_", " "), entry.records, entry.parsed, entry.lost]
        for entry in report.inputs
    ]
    columns = [
        Column("file"),
        Column("format", dispensable=1),
        Column("records", CellKind.COUNT, dispensable=3),
        Column("read", CellKind.COUNT, dispensable=2),
        Column("lost", CellKind.COUNT),
    ]
    notes = [f"{report.parsed} of {report.records} records read, {report.lost} lost; {report.spans} spans"]
    if report.ranks.ranks:
        ranks = ", ".join(map(str, report.ranks.ranks))
        notes.append(f"ranks {ranks} (from {', '.join(report.ranks.bases)})")
    if report.run is not None:
        depth = UNAVAILABLE if report.run.depth is None else str(report.run.depth)
        notes.append(f"run: profile {report.run.profile}, status {report.run.status}, depth {depth}")
    return Table("Inputs", columns, rows, notes)


def _steps(name: str, steps: list[StepFigures]) -> Table:
    rows = []
    notes = _too_small_note(figures.latency for figures in steps)
    for figures in steps:
        rows.append(_summary_row(f"{figures.source}, {figures.scope}", figures.latency))
        if figures.submit.n:
            rows.append(_summary_row(f"  submit span, {figures.scope}", figures.submit))
            rows.append(_summary_row(f"  wait span, {figures.scope}", figures.wait))
        if figures.completion.n:
            rows.append(_summary_row(f"submit to node.complete, {figures.scope}", figures.completion))
        if figures.paired_by and figures.scope == "all":
            pairs = ", ".join(f"{count} by {by}" for by, count in figures.paired_by.items())
            notes.append(f"pairs made: {pairs}")
        if figures.source == "blocking_kernel_span":
            notes.append(f"blocking: duration of {figures.span}")
    if any(figures.completion.n for figures in steps):
        notes.append(
            "a step is complete with the last node.complete of its ranks; its wait ends when somebody looked"
        )
    return Table(f"Step latency: {name} (ms)", [Column("source, steps"), *_SUMMARY_COLUMNS], rows, notes)


def _resources(resources: list[ResourceGrowth]) -> Table:
    rows: list[Row] = [
        [
            growth.process,
            growth.first_rss_bytes / 2**20,
            growth.last_rss_bytes / 2**20,
            growth.rss_growth,
            f"{growth.first_fds} to {growth.last_fds}",
            f"{growth.first_shared_regions} to {growth.last_shared_regions}",
        ]
        for growth in resources
    ]
    columns = [
        Column("process"),
        Column("resident", CellKind.NUMBER, _one_decimal),
        Column("at the end", CellKind.NUMBER, _one_decimal),
        Column("growth", CellKind.SHARE, partial(percent, digits=2, signed=True)),
        Column("descriptors", CellKind.FIGURES),
        Column("shared regions", CellKind.FIGURES),
    ]
    notes = [
        f"from round {resources[0].first_steps} to round {resources[0].last_steps} of the measured batch"
    ]
    return Table("Resources (MiB)", columns, rows, notes)


def _one_decimal(value: float) -> str:
    return f"{value:.1f}"


def _step_time(step_time: StepTime) -> Table:
    rows: list[Row] = [["wall", step_time.wall.mean, step_time.wall.p50, 1.0]]
    for entry in step_time.phases:
        share = (
            entry.charged.mean / step_time.wall.mean if entry.charged.mean and step_time.wall.mean else 0.0
        )
        hidden = [entry.hidden.mean, entry.hidden.p50] if entry.phase != "remainder" else []
        rows.append([f"  {entry.phase}", entry.charged.mean, entry.charged.p50, share, *hidden])
    notes = [
        f"{step_time.wall.n} {'steady ' if step_time.scope == 'steady' else ''}steps, "
        "each from the publication of the one before to its own "
        f"({step_time.published_by}); the means of the phases add up to the wall's",
        "hidden: done before that, behind the step ahead",
    ]
    if not step_time.ranks_known:
        notes.append(
            "no rank's records are joined to these steps: wait is everything from the submit's return"
        )
    if step_time.left_out:
        notes.append("left out: " + ", ".join(f"{count} {why}" for why, count in step_time.left_out.items()))
    columns = [
        Column("phase"),
        Column("mean", CellKind.TIME),
        Column("p50", CellKind.TIME, dispensable=2),
        Column("share", CellKind.SHARE),
        Column("hidden, mean", CellKind.TIME, dispensable=3),
        Column("hidden, p50", CellKind.TIME, dispensable=1),
    ]
    return Table(f"Where a step's time went: {step_time.callable} (ms)", columns, rows, notes)


def _pipeline(pipeline: Pipeline) -> Table:
    overlaps = [
        ("submit(N+1) before wait(N) ends", pipeline.in_flight),
        ("submit(N+1) returns before wait(N) ends", pipeline.returned),
        ("node.submit(N+1) before node.complete(N)", pipeline.scheduled),
        ("node.submit(N+1) returns before node.complete(N)", pipeline.scheduled_returned),
        ("prepare(N+1) during runner_run(N)", pipeline.prepare),
        ("bind(N+1) during runner_run(N)", pipeline.bind),
    ]
    rows: list[Row] = [
        [label, overlap.overlapping, overlap.pairs, overlap.share]
        for label, overlap in overlaps
        if overlap.pairs
    ]
    notes = [pipeline.statement]
    if pipeline.scheduled.pairs and pipeline.in_flight.pairs:
        notes.append("a wait ends when somebody looked: what is in flight is told by the scheduler's records")
    if unknown := [label for label, overlap in overlaps if not overlap.pairs]:
        notes.append(f"unavailable, its records are not there: {', '.join(unknown)}")
    steady = pipeline.steady
    if pipeline.in_flight.pairs:
        left_out = ", ".join(f"{entry.count} {entry.reason}" for entry in steady.left_out) or "none"
        notes.append(f"steady state: {counted(steady.steps, 'step')}; left out: {left_out}")
        if not steady.batch_known:
            notes.append("whether the batch was full is unknown: no request records, or it never was")
    columns = [
        Column("overlap"),
        Column("steps", CellKind.COUNT),
        Column("of", CellKind.COUNT),
        Column("share", CellKind.SHARE),
    ]
    return Table(f"Pipeline: {pipeline.callable}", columns, rows, notes)


def _rank_tables(skew: RankSkew, report: Report, *, in_detail: bool) -> list[Table]:
    figures = [
        ("runner-start skew", skew.runner_start_skew),
        ("runner-end skew", skew.runner_end_skew),
        ("step-end skew", skew.step_end_skew),
        ("rank root (chip.run)", skew.root),
        ("bind", skew.bind),
        ("runner_run", skew.runner_run),
        ("runner-to-validate gap", skew.runner_to_validate_gap),
        ("validate", skew.validate),
        ("host excess", skew.host_excess),
        ("device bubble", skew.device_bubble),
    ]
    notes = [
        f"{counted(skew.rounds, 'round')}, {counted(skew.roots, 'root')} on {counted(len(skew.ranks), 'rank')}, "
        f"matched by {skew.matched_by}; {len(skew.incomplete)} incomplete",
        *_late_note(skew),
        *([report.clocks.statement] if len(skew.ranks) > 1 else []),
        *([skew.clocks] if skew.clocks else []),
        *_too_small_note(summary for _, summary in figures),
    ]
    title = f"Ranks: {skew.callable}, {skew.scope} rounds (ms)"
    columns = [Column("figure"), *_SUMMARY_COLUMNS]
    tables = [Table(title, columns, [_summary_row(*figure) for figure in figures], notes)]
    if len(skew.ranks) > 1 and in_detail:
        tables.append(_critical_rank(skew))
        tables.append(_last_ranks(skew, report.ranks.devices))
    return tables


def _critical_rank(skew: RankSkew) -> Table:
    critical = skew.critical_rank
    rows = [_summary_row("root", critical.root)]
    rows += [_summary_row(f"  {phase}", summary) for phase, summary in critical.phases.items()]
    counts = ", ".join(f"{rank}: {count}" for rank, count in critical.counts.items())
    notes = [f"rounds in which a rank was critical: {counts}"] if counts else []
    title = f"Critical rank: {skew.callable}, {skew.scope} rounds (ms)"
    return Table(title, [Column("phase"), *_SUMMARY_COLUMNS], rows, notes)


def _late_note(skew: RankSkew) -> list[str]:
    """How many starts and ends were late; nothing where no round compares ranks."""
    if not skew.runner_start_skew.n:
        return []
    return [
        f"more than {skew.late_ns / MILLISECOND:g} ms after the median: {counted(len(skew.late_starts), 'start')}, "
        f"{counted(len(skew.long_tails), 'end')}; rounds with such a skew: {skew.rounds_over_late_start_skew} at start, "
        f"{skew.rounds_over_late_end_skew} at end"
    ]


def _last_ranks(skew: RankSkew, devices: Iterable[RankDevice]) -> Table:
    logical: dict[int, set[int | None]] = {}
    physical: dict[int, set[int | None]] = {}
    for entry in devices:
        logical.setdefault(entry.rank, set()).add(entry.logical_device)
        physical.setdefault(entry.rank, set()).add(entry.physical_device)
    rows: list[Row] = [
        [
            rank,
            _one_device(logical.get(rank, set())),
            _one_device(physical.get(rank, set())),
            skew.last_to_start.counts.get(rank, 0),
            skew.last_to_end.counts.get(rank, 0),
            sum(event.rank == rank for event in skew.late_starts),
            sum(event.rank == rank for event in skew.long_tails),
        ]
        for rank in skew.ranks
    ]
    notes = [_p_value(skew.last_to_start), _p_value(skew.last_to_end)]
    title = f"Last ranks: {skew.callable}, {skew.scope} rounds"
    headings = [
        "rank",
        "logical device",
        "physical device",
        "last to start",
        "last to end",
        "late starts",
        "long tails",
    ]
    columns = [Column(heading, CellKind.COUNT) for heading in headings]
    return Table(title, columns, rows, [note for note in notes if note])


def _one_device(devices: set[int | None]) -> int | None:
    """The device that a rank drives, as far as its files name one; None where they differ."""
    known = devices - {None}
    return next(iter(known)) if len(known) == 1 else None


def _p_value(lateness: Lateness) -> str:
    test = lateness.test
    if test is None:
        return ""
    return f"last to {lateness.edge}: p = {test.p_value:.2g} if every rank were equally often last ({test.method})"


def _requests(figures: RequestFigures) -> list[Table]:
    summaries = [
        ("TTFT", figures.ttft),
        ("E2E", figures.e2e),
        ("tpot, per request", figures.tpot),
        ("tpot_incl_first", figures.tpot_incl_first),
        ("step_time", figures.step_time),
    ]
    single = [
        ("tpot, token-weighted (ms)", number(figures.tpot_token_weighted_ns)),
        ("tokens_per_step", number(figures.tokens_per_step, 1)),
        ("effective TPOT (ms)", number(figures.effective_tpot_ns)),
        ("elapsed (ms)", number(figures.elapsed_ns)),
        ("throughput (tokens/s)", number(figures.throughput_per_s, 1)),
        ("peak (tokens/s)", number(figures.peak_per_s, 1)),
        ("full-batch throughput (tokens/s)", number(figures.full_batch_throughput_per_s, 1)),
    ]
    if figures.mismatch_pct is not None:
        single.append(("mismatch_pct, tokens of the text tokenized again (%)", f"{figures.mismatch_pct:.1f}"))
    goodput = figures.goodput
    if goodput is not None:
        limits = ", ".join(f"{metric} <= {number(limit)} ms" for metric, limit in goodput.limits_ns.items())
        single += [
            (f"goodput: {limits}", f"{goodput.met} of {goodput.counted}"),
            ("goodput: not applicable", str(goodput.not_applicable)),
            ("goodput (requests/s)", number(goodput.met_per_s, 1)),
        ]
    mtp = figures.mtp
    if mtp is not None:
        single += [
            ("MTP accepted of proposed", f"{mtp.accepted} of {mtp.proposed}"),
            ("MTP acceptance rate", percent(mtp.acceptance_rate)),
            ("MTP acceptance length", number(mtp.acceptance_length, 1)),
            ("MTP committed = steps + accepted", f"{mtp.committed} = {mtp.steps} + {mtp.accepted}"),
        ]
    notes = [
        f"{counted(figures.requests, 'request')}, {figures.failed} failed, output tokens: {output_tokens(figures)}"
        if figures.tokens_unknown
        else f"{counted(figures.requests, 'request')}, {figures.failed} failed, "
        f"{counted(figures.output_tokens or 0, 'output token')}"
    ]
    if figures.cut:
        notes.append(f"{counted(figures.cut, 'more request')} in flight when the time was up: in no figure")
    if figures.tpot_undefined:
        why = "fewer than two tokens" + (", or nobody knows how many" if figures.tokens_unknown else "")
        notes.append(f"tpot undefined for {counted(figures.tpot_undefined, 'request')} ({why}): left out")
    notes += _too_small_note(summary for _, summary in summaries)
    rows = [_summary_row(label, summary) for label, summary in summaries]
    return [
        Table(f"Requests: {figures.phase} (ms)", [Column("latency"), *_SUMMARY_COLUMNS], rows, notes),
        Table(
            f"Rates: {figures.phase}",
            [Column("figure"), Column("value", CellKind.FIGURES)],
            single,
            [f"peak unavailable: {figures.peak_unavailable}"] if figures.peak_unavailable else [],
        ),
    ]


def _lifecycle_tables(report: Report) -> list[Table]:
    lifecycle = report.lifecycle
    if not lifecycle.pairs and not lifecycle.faults and not lifecycle.edges:
        return []
    rows: list[Row] = [["valid pairs", lifecycle.pairs], ["faults", len(lifecycle.faults)]]
    if lifecycle.failed:
        rows.append(["failed dispatches", lifecycle.failed])
    for kind in ("open_at_start", "open_at_end"):
        rows.append([f"edge: {kind}", sum(edge.kind == kind for edge in lifecycle.edges)])
    depth = UNAVAILABLE if lifecycle.declared_depth is None else str(lifecycle.declared_depth)
    columns = [Column("submit to wait"), Column("count", CellKind.COUNT)]
    tables = [Table("Lifecycles", columns, rows, [f"declared depth: {depth}"])]
    if lifecycle.faults:
        tables.append(_faults(lifecycle.faults))
    return tables


def _faults(faults: list[LifecycleFault]) -> Table:
    rows: list[Row] = [
        [fault.kind, f"{fault.callable} {fault.detail}".strip(), fault.spans[0].start_ns]
        for fault in faults[:FAULTS_SHOWN]
    ]
    more = len(faults) - FAULTS_SHOWN
    notes = [f"and {more} more: see --format json"] if more > 0 else []
    return Table(
        "Lifecycle faults", [Column("kind"), Column("what"), Column("at (ns)", CellKind.COUNT)], rows, notes
    )


def _span_names(figures: list[SpanFigures]) -> Table:
    rows: list[Row] = [
        [
            f"{entry.name} (device clock)" if entry.clock == "device" else entry.name,
            entry.duration.n,
            entry.total_ns,
            entry.self_ns,
            entry.depth,
            entry.duration.mean,
            entry.duration.p50,
            entry.duration.max,
        ]
        for entry in figures[:NAMES_SHOWN]
    ]
    more = len(figures) - NAMES_SHOWN
    notes = [f"and {more} more names: see --format json"] if more > 0 else []
    columns = [
        Column("span"),
        Column("n", CellKind.COUNT, dispensable=6),
        Column("total", CellKind.TIME),
        Column("self", CellKind.TIME, dispensable=5),
        Column("depth", CellKind.COUNT, absent="-", dispensable=3),
        Column("mean", CellKind.TIME, dispensable=2),
        Column("p50", CellKind.TIME, dispensable=1),
        Column("max", CellKind.TIME, dispensable=4),
    ]
    return Table("Spans by name (ms)", columns, rows, notes)
