"""What a report's reader should know: findings out of figures, with their evidence and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from analyzers.lifecycle import ASSUMED_DEPTH
from analyzers.pipeline import Pipeline
from analyzers.readers.load import IssueKind, LoadReport
from analyzers.readers.recording import Recording
from analyzers.report.model import Finding, FindingCode, Report, Severity
from analyzers.requests import RequestFigures
from analyzers.resources import GROWTH_LIMIT
from analyzers.skew import Lateness, RankSkew
from analyzers.spans import ABSENT
from analyzers.statistics import summarize

STRAGGLER_P_VALUE = 0.01
COLD_START_RATIO = 3
"""How many times slower than the rest a first wave must be to be reported."""

_REPAIRS: frozenset[IssueKind] = frozenset(
    {"unterminated", "commas_ignored", "commas_missing", "glued_lines", "invalid_utf8", "attributes_cut"}
)
_SEVERITY_ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}
_LOG_LEVEL_ADVICE = "run again with the runtime's log at TIMING level (PYPTO_RUNTIME_LOG=v9)"


def find(report: Report, recording: Recording, *, not_overlapping: int) -> list[Finding]:
    """All findings of a report (whose own list is not yet filled), most severe first."""
    findings = [
        *_no_data(report, recording),
        *_run_status(report),
        *(finding for entry in report.inputs for finding in _input(entry)),
        *_lifecycle(report),
        *(finding for pipeline in report.pipelines for finding in _pipeline(pipeline)),
        *_rank_names(report, recording),
        *_lost_runs(report, recording),
        *_rounds(report, not_overlapping),
        *(finding for skew in _headline(report.skew) for finding in _lateness(skew)),
        *(finding for figures in report.requests for finding in _requests(figures)),
        *_cold_start(recording),
        *_resources(report),
        *_mtp_accuracy(report),
    ]
    return sorted(findings, key=lambda finding: _SEVERITY_ORDER[finding.severity])


def milliseconds(nanoseconds: float) -> str:
    """`1.234 ms`."""
    return f"{nanoseconds / 1e6:.3f} ms"


def _no_data(report: Report, recording: Recording) -> Iterable[Finding]:
    if report.has_data:
        return
    logs = [entry for entry in report.inputs if entry.format == "strace_log"]
    if logs and not any(entry.records for entry in logs):
        ready = len(recording.ready_devices)
        evidence = f"no [STRACE] record in {', '.join(entry.path for entry in logs)}"
        if ready:
            evidence += f", although {ready} ranks report ready"
        title = "no data: the log level hides the runtime's timing records"
        yield Finding("no_data", "error", title, evidence, _LOG_LEVEL_ADVICE)
        return
    evidence = f"spans=0 in {', '.join(entry.path for entry in report.inputs) or ', '.join(recording.paths)}"
    yield Finding("no_data", "error", "no data: no spans", evidence, "check that profiling was on")


def _run_status(report: Report) -> Iterable[Finding]:
    run = report.run
    if run is not None and run.status != "complete":
        evidence = _in_one_line(run.error) if run.error else "run.json says so"
        title = f"the run is {run.status}: figures cover what was recorded until then"
        yield Finding("run_status", "warning", title, evidence)
    if run is not None and run.faults:
        title = f"faults were injected: {'; '.join(run.faults)}"
        yield Finding(
            "faults_injected", "info", title, "run.json", "take no figure of this run for the engine's"
        )


def _in_one_line(error: str) -> str:
    """What failed and why: the first line of an error, and the last where a traceback lies between them."""
    lines = error.strip().splitlines()
    return lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}"


def _input(entry: LoadReport) -> Iterable[Finding]:
    for issue in entry.issues:
        evidence = f"{entry.path}: {issue.kind}={issue.count}"
        if issue.where:
            evidence += f", first at {issue.where}"
        if issue.lost:
            title = f"{issue.lost} of {entry.records} records lost: {issue.text}"
            advice = "figures that need them are missing; allow a loss with --max-loss"
            yield Finding("lost_records", "error", title, evidence, advice)
        elif issue.kind in _REPAIRS:
            yield Finding("repaired_input", "warning", f"input repaired: {issue.text}", evidence)
        else:
            yield Finding("input_note", "info", issue.text, evidence)


def _lifecycle(report: Report) -> Iterable[Finding]:
    lifecycle = report.lifecycle
    kinds = Counter(fault.kind for fault in lifecycle.faults)
    for kind, count in kinds.items():
        first = next(fault for fault in lifecycle.faults if fault.kind == kind)
        title = f"lifecycle fault {kind}: {count}"
        evidence = f"first: {first.callable} {first.detail}".replace("  ", " ")
        yield Finding("lifecycle_fault", "error", title, evidence, "see the list of faults")
    violations = [pair for pair in lifecycle.cross_process if pair.violates_causality]
    if violations:
        first_pair = violations[0]
        yield Finding(
            "clocks_not_comparable",
            "error",
            f"clocks not comparable: causality_violations={len(violations)}",
            f"{first_pair.id}: wait end - submit start = {first_pair.wait_end_minus_submit_start_ns / 1000:g} us",
            "latency across these processes is withheld: record both ends on one host clock",
        )
    edges = Counter(edge.kind for edge in lifecycle.edges)
    for edge_kind, count in edges.items():
        title = f"{edge_kind}={count}: lifecycles cut by the profile window, left out of latencies"
        first_edge = next(edge for edge in lifecycle.edges if edge.kind == edge_kind)
        evidence = f"first: {first_edge.span.name} at {first_edge.span.start_ns} ns"
        yield Finding("edge_of_window", "info", title, evidence)
    by_order = sum(figures.paired_by.get("order", 0) for figures in report.steps if figures.scope == "all")
    if by_order and lifecycle.declared_depth is None:
        title = f"{by_order} pairs made by order, assuming at most {ASSUMED_DEPTH} dispatches in flight"
        evidence = "their spans carry no id and no depth is declared"
        yield Finding("assumed_depth", "info", title, evidence)


def _pipeline(pipeline: Pipeline) -> Iterable[Finding]:
    collapsed = pipeline.state == "collapsed"
    code: FindingCode = "pipeline_collapsed" if collapsed else "pipeline"
    advice = (
        "look for what each submit waits for: a predecessor's metadata, a slot, the worker"
        if collapsed
        else ""
    )
    title = f"{pipeline.callable}: {pipeline.statement}"
    cadence = pipeline.cadence.p50
    evidence = f"median cadence {milliseconds(cadence)}" if cadence is not None else "cadence unavailable"
    yield Finding(code, "warning" if collapsed else "info", title, evidence, advice)


def _rank_names(report: Report, recording: Recording) -> Iterable[Finding]:
    if "pid order" in report.ranks.bases:
        unnamed = sum(basis == "pid order" for basis in recording.ranks.basis.values())
        yield Finding(
            "rank_names",
            "warning",
            "ranks named by pid order",
            f"nothing in the input names the rank of {unnamed} of {len(recording.ranks.ranks)} processes",
            "keep the `[chip_process pid=.. dev=..] ready` lines, or analyze the whole run directory",
        )
    for rank, processes in recording.ranks.conflicts:
        title = f"rank {rank} is claimed by {len(processes)} processes"
        evidence = ", ".join(f"pid {pid} in {file}" for file, pid in processes)
        yield Finding("rank_conflict", "error", title, evidence, "analyze the logs of one run at a time")
    if recording.manifest is not None and report.ranks.ranks:
        expected = {process.rank for process in recording.manifest.device_map}
        missing = sorted(expected - set(report.ranks.ranks))
        if missing:
            title = f"no run of rank {', '.join(map(str, missing))} was recorded"
            evidence = f"the manifest names {len(expected)} ranks, {len(report.ranks.ranks)} have records"
            yield Finding("rank_missing", "error", title, evidence, "skews cover the other ranks only")


def _lost_runs(report: Report, recording: Recording) -> Iterable[Finding]:
    """One finding a rank that did runs of which no record tells."""
    for rank in sorted({run.rank for run in report.lost_runs}):
        lost = [run for run in report.lost_runs if run.rank == rank]
        which = f"first: {lost[0].callable}"
        if lost[0].dispatch_id is not None:
            which += f" dispatch {lost[0].dispatch_id}{_step_of(recording, lost[0].dispatch_id)}"
        files = sorted({file for (file, _), of_rank in recording.ranks.ranks.items() if of_rank == rank})
        title = f"rank {rank}: no chip.run record of {len(lost)} of its runs"
        evidence = f"{which}, in {', '.join(files)}"
        yield Finding("lost_records", "error", title, evidence, "allow a loss with --max-loss")


def _step_of(recording: Recording, dispatch_id: int) -> str:
    spans = recording.spans
    steps = spans.step_id[(spans.dispatch_id == dispatch_id) & (spans.step_id != ABSENT)]
    return f" (step {int(steps[0])})" if len(steps) else ""


def _headline(figures: list[RankSkew]) -> list[RankSkew]:
    """One entry a callable: its steady rounds where there are any."""
    chosen: dict[str, RankSkew] = {}
    for entry in figures:
        chosen.setdefault(entry.callable, entry)
    return list(chosen.values())


def _rounds(report: Report, not_overlapping: int) -> Iterable[Finding]:
    if any(entry.matched_by == "order" and len(entry.ranks) > 1 for entry in report.skew):
        yield Finding(
            "matched_by_order",
            "warning",
            "rounds matched across ranks by order alone",
            f"runs carry neither shared ids nor invocations; in {not_overlapping} rounds the runs do not overlap",
            "a lost record would shift later rounds: read these skews with care",
        )
    for entry in report.skew:
        if entry.scope == "all" and entry.incomplete:
            first = entry.incomplete[0]
            lost = any(run.callable == entry.callable for run in report.lost_runs)
            severity: Severity = "warning" if lost or entry.matched_by == "order" else "info"
            title = f"{entry.callable}: {len(entry.incomplete)} of {entry.rounds} rounds incomplete"
            evidence = f"first: round {first.round} without rank {', '.join(map(str, first.missing_ranks))}"
            if severity == "info":
                evidence += "; the edge of the recording cuts them"
            yield Finding("incomplete_rounds", severity, title, evidence, "their skews are left out")


def _lateness(skew: RankSkew) -> Iterable[Finding]:
    late = len(skew.late_starts) + len(skew.long_tails)
    if late:
        title = (
            f"{skew.callable} ({skew.scope} rounds): {len(skew.late_starts)} late starts, "
            f"{len(skew.long_tails)} long tails of more than {milliseconds(skew.late_ns)}"
        )
        worst = max([*skew.late_starts, *skew.long_tails], key=lambda event: event.after_median_ns)
        evidence = (
            f"worst: rank {worst.rank} in round {worst.round}, {milliseconds(worst.after_median_ns)} late"
        )
        yield Finding("late_ranks", "warning", title, evidence)
    for lateness in (skew.last_to_start, skew.last_to_end):
        yield from _straggler(skew, lateness, late)


def _straggler(skew: RankSkew, lateness: Lateness, late: int) -> Iterable[Finding]:
    test = lateness.test
    if test is None:
        return
    rank, count = max(lateness.counts.items(), key=lambda entry: (entry[1], -entry[0]))
    verb = f"{lateness.edge}s last in {count} of {lateness.rounds} rounds"
    excess = lateness.median_excess_ns[rank]
    evidence = f"{verb}, by {milliseconds(excess)} after the median; p = {test.p_value:.2g} ({test.method})"
    if test.p_value < STRAGGLER_P_VALUE:
        severity: Severity = "warning" if excess > skew.late_ns else "info"
        title = f"{skew.callable}: rank {rank} is persistently the last to {lateness.edge}"
        advice = "look at that device and at the host core of its process" if severity == "warning" else ""
        yield Finding("straggler", severity, title, evidence, advice)
    elif late and lateness.edge == "end" and lateness.rounds >= len(skew.ranks):
        title = f"{skew.callable}: no persistent straggler, the last rank changes"
        yield Finding("no_persistent_straggler", "info", title, f"rank {rank} {evidence}")


def _resources(report: Report) -> Iterable[Finding]:
    for growth in report.resources:
        during = f"from round {growth.first_steps} to round {growth.last_steps}"
        if growth.rss_growth > GROWTH_LIMIT:
            title = f"{growth.process}: resident memory grew by {100 * growth.rss_growth:.1f} % {during}"
            evidence = f"{growth.first_rss_bytes / 2**20:.1f} to {growth.last_rss_bytes / 2**20:.1f} MiB"
            yield Finding("resource_growth", "warning", title, evidence, "see resources.jsonl for its course")
        for what, first, last in (
            ("open file descriptors", growth.first_fds, growth.last_fds),
            ("shared-memory regions", growth.first_shared_regions, growth.last_shared_regions),
        ):
            if last > first:
                title = f"{growth.process}: {last - first} more {what} {during}"
                yield Finding("resource_growth", "warning", title, f"{first} to {last}")


def _mtp_accuracy(report: Report) -> Iterable[Finding]:
    accuracy = report.mtp_accuracy
    if accuracy is None:
        return
    compared = f"{accuracy.requests} requests, {accuracy.tokens} tokens, engine.mtp = {accuracy.mtp} and 0"
    difference = accuracy.first_difference
    if difference is None:
        yield Finding("mtp_accuracy", "info", "MTP on and off generate the same tokens", compared)
        return
    first, second = (
        "the end" if token is None else f"token {token}"
        for token in (difference.with_mtp, difference.without_mtp)
    )
    title = f"MTP changes the tokens of {accuracy.different_requests} of {accuracy.requests} requests"
    evidence = f"first: {difference.request_id}, output position {difference.position}: {first} with MTP, {second} without"
    yield Finding(
        "mtp_accuracy", "error", title, evidence, "compare requests.jsonl with a run at engine.mtp=0"
    )


def _cold_start(recording: Recording) -> Iterable[Finding]:
    """Requests sent before any answered, in a file that does not set warm-up apart, and much slower than the rest."""
    if recording.requests_have_phases:
        return
    ttfts = [
        (timing.send_ns, timing.first_ns)
        for timing in recording.requests
        if timing.send_ns is not None and timing.first_ns is not None
    ]
    first_answer = min((first for _, first in ttfts), default=0)
    wave = summarize([first - send for send, first in ttfts if send <= first_answer]).p50
    rest = summarize([first - send for send, first in ttfts if send > first_answer]).p50
    if wave is None or not rest or wave < COLD_START_RATIO * rest:
        return
    title = f"first wave is {wave / rest:.0f}x the median: cold start inside the sample?"
    evidence = f"median TTFT {milliseconds(wave)} before the first answer, {milliseconds(rest)} after it"
    yield Finding("cold_start", "warning", title, evidence, "mark warm-up requests with a phase")


def _requests(figures: RequestFigures) -> Iterable[Finding]:
    if figures.failed:
        severity: Severity = "error" if figures.failed == figures.requests else "warning"
        title = f"failed={figures.failed} of {figures.requests} {figures.phase} requests"
        yield Finding("requests_failed", severity, title, "failed requests are in no latency")
    mtp = figures.mtp
    if mtp is not None and mtp.impossible:
        title = f"impossible MTP counts in {len(mtp.impossible)} requests: no acceptance rate is made of them"
        evidence = f"first: request {mtp.impossible[0]} accepted more drafts than were proposed"
        yield Finding("mtp_impossible", "error", title, evidence, "check for counter resets")
    if mtp is not None and mtp.identity_broken:
        title = f"1 + steps + accepted differs from the tokens of {len(mtp.identity_broken)} requests"
        yield Finding("mtp_identity", "warning", title, f"first: request {mtp.identity_broken[0]}")
