"""What the input is: whether it holds anything, what of it was lost, and which lifecycles are not valid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from analyzers.measurement import Measured
from analyzers.readers.load_report import InputFormat, IssueKind, LoadReport
from analyzers.recording.recording import Recording
from analyzers.report.model import Finding, Report
from analyzers.steps.lifecycle import ASSUMED_DEPTH
from analyzers.table.spans import ABSENT
from analyzers.text.words import counted, milliseconds

_REPAIRS: frozenset[IssueKind] = frozenset(
    {
        "unterminated",
        "commas_ignored",
        "commas_missing",
        "glued_lines",
        "invalid_utf8",
        "invalid_escape",
        "attributes_cut",
    }
)
_SPAN_FORMATS: frozenset[InputFormat] = frozenset({"chrome_trace", "strace_log"})
_KINDS: dict[InputFormat, str] = {
    "requests": "requests",
    "manifest": "manifest",
    "resources": "resource samples",
    "mtp_accuracy": "comparison of tokens",
    "observations": "figures",
}
_LOG_LEVEL_ADVICE = "run again with the runtime's log at TIMING level (PYPTO_RUNTIME_LOG=v9)"


def recording(measured: Measured, report: Report) -> Iterable[Finding]:
    """Whether there is anything to measure, and what is missing from it or wrong with it."""
    source = measured.recording
    yield from _no_data(report, source)
    if report.filters:
        title = f"figures cover a part of the recording: {'; '.join(report.filters)}"
        yield Finding("filtered", "info", title, "by the options of this analysis")
    yield from _run_status(report)
    for entry in report.inputs:
        yield from _input(entry)
    yield from _rounded(report)
    for note in source.notes:
        yield Finding("input_note", "info", note, "what is there again is in no figure")
    yield from _lifecycle(report)
    yield from _rank_names(report, source)
    yield from _lost_runs(report, source)


def _no_data(report: Report, recording: Recording) -> Iterable[Finding]:
    if report.has_data:
        return
    if report.filters:
        evidence = f"spans=0 with {'; '.join(report.filters)}"
        yield Finding("no_data", "error", "no data: nothing passes the filters", evidence, "widen them")
        return
    logs = [entry for entry in report.inputs if entry.format == "strace_log"]
    if logs and not any(entry.records for entry in logs):
        ready = len(recording.ready_devices)
        evidence = f"no [STRACE] record in {', '.join(entry.path for entry in logs)}"
        if ready:
            evidence += f", although {counted(ready, 'rank')} {'reports' if ready == 1 else 'report'} ready"
        title = "no data: the log level hides the runtime's timing records"
        if not ready:
            title = "no data: the log has none of the runtime's timing records"
        yield Finding("no_data", "error", title, evidence, _LOG_LEVEL_ADVICE)
        return
    files = ", ".join(entry.path for entry in report.inputs) or ", ".join(recording.paths)
    if not any(entry.format in _SPAN_FORMATS for entry in report.inputs):
        # Nobody looks for spans in a file that holds none by its kind.
        yield _nothing_of_its_kind(report, files)
        return
    yield Finding(
        "no_data", "error", "no data: no spans", f"spans=0 in {files}", "check that profiling was on"
    )


def _nothing_of_its_kind(report: Report, files: str) -> Finding:
    """Why inputs that are neither traces nor logs have nothing to measure."""
    cut = sum(figures.cut for figures in report.requests)
    requests = [entry for entry in report.inputs if entry.format == "requests"]
    if cut:
        title = f"no data: {counted(cut, 'request')}, all of them in flight when the time was up"
        return Finding("no_data", "error", title, files, "let the benchmark run for longer")
    if requests and report.lost:
        invalid = f"{report.lost} of {report.records} requests invalid"
        first = next((issue.where for entry in requests for issue in entry.issues if issue.lost), "")
        return Finding("no_data", "error", f"no data: {invalid}", f"{files}: first at {first}")
    if not report.inputs:
        title = "no data: a manifest alone measures nothing"
        return Finding("no_data", "error", title, files, "name the whole run directory")
    kinds = " and ".join(dict.fromkeys(_KINDS[entry.format] for entry in report.inputs))
    return Finding("no_data", "error", f"no data: no {kinds} to measure", files)


def _run_status(report: Report) -> Iterable[Finding]:
    run = report.run
    if run is not None and run.status != "complete":
        evidence = _in_one_line(run.error) if run.error else "run.json says so"
        title = f"the run is {run.status}: figures cover what was recorded until then"
        yield Finding("run_status", "warning", title, evidence)
    if run is not None and run.faults:
        title = f"faults were injected: {'; '.join(run.faults)}"
        yield Finding(
            "faults_injected",
            "info",
            title,
            "by run --fault, says run.json",
            "take no figure of this run for the engine's",
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
            title = f"{issue.lost} of {counted(entry.records, 'record')} lost: {issue.text}"
            advice = "figures that need them are missing; allow a loss with --max-loss"
            yield Finding("lost_records", "error", title, evidence, advice)
        elif issue.kind in _REPAIRS:
            yield Finding("repaired_input", "warning", f"input repaired: {issue.text}", evidence)
        else:
            yield Finding("input_note", "info", issue.text, evidence)


def _rounded(report: Report) -> Iterable[Finding]:
    """One finding a file whose whole microseconds let spans end behind the ones around them."""
    for file in dict.fromkeys(lane.file for lane in report.lanes if lane.rounded):
        count = sum(lane.rounded for lane in report.lanes if lane.file == file)
        title = f"{counted(count, 'overlap')} of 1 us, in a trace of whole microseconds: taken for rounding, the spans nest"
        evidence = f"{file}: rounded={count}; exports and drawings keep the times of the file"
        yield Finding("input_note", "info", title, evidence)


def _lifecycle(report: Report) -> Iterable[Finding]:
    lifecycle = report.lifecycle
    kinds = Counter(fault.kind for fault in lifecycle.faults)
    for kind, count in kinds.items():
        first = next(fault for fault in lifecycle.faults if fault.kind == kind)
        title = f"{counted(count, 'lifecycle')} not valid: {kind}"
        evidence = f"first: {first.callable} {first.detail}".replace("  ", " ")
        yield Finding(
            "lifecycle_fault", "error", title, evidence, "see the list of faults", spans=first.spans
        )
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
        cut = counted(count, "lifecycle")
        title = f"{cut} cut by the edge of the profile window, left out of latencies ({edge_kind}={count})"
        first_edge = next(edge for edge in lifecycle.edges if edge.kind == edge_kind)
        evidence = f"first: {first_edge.span.name} at {first_edge.span.start_ns} ns"
        yield Finding("edge_of_window", "info", title, evidence)
    by_order = sum(figures.paired_by.get("order", 0) for figures in report.steps if figures.scope == "all")
    if by_order and lifecycle.declared_depth is None:
        title = f"{counted(by_order, 'pair')} made by order, assuming at most {ASSUMED_DEPTH} dispatches in flight"
        evidence = "their spans carry no id and no depth is declared"
        yield Finding(
            "assumed_depth", "info", title, evidence, "analyze the whole run directory, which declares it"
        )


def _rank_names(report: Report, recording: Recording) -> Iterable[Finding]:
    if report.ranks.lives > 1:
        yield Finding(
            "several_lives",
            "info",
            f"{report.ranks.lives} lives: the worker processes come and go, each set of them is measured by itself",
            "; ".join(_lives(recording)),
            "rounds, skews and dispatches in flight are within a life",
        )
    for process in sorted(recording.ranks.silent, key=lambda item: recording.ranks.ranks[item]):
        file, pid = process
        yield Finding(
            "rank_missing",
            "error",
            f"rank {recording.ranks.ranks[process]} (pid {pid}) left no record of a run",
            f"{file} names its process, by a ready line or the head of a torn record",
            "its rounds are incomplete and in no skew",
        )
    if "pid order" in report.ranks.bases:
        unnamed = sum(basis == "pid order" for basis in recording.ranks.basis.values())
        processes_in_all = counted(len(recording.ranks.ranks), "process", "processes")
        yield Finding(
            "rank_names",
            # One process is the same rank whatever it is called.
            "warning" if len(recording.ranks.ranks) > 1 else "info",
            "ranks named by pid order",
            f"nothing in the input names the rank of {unnamed} of {processes_in_all}",
            "keep the `[chip_process pid=.. dev=..] ready` lines, or analyze the whole run directory",
        )
    if recording.shared_pids:
        pids = recording.shared_pids
        ranked = [pid for _, pid in recording.ranks.ranks if pid in pids]
        yield Finding(
            "shared_pids",
            "warning",
            f"{counted(len(ranked), 'process', 'processes')} assumed: files share {counted(len(pids), 'pid')}",
            f"pid {pids[0]} has records in several files that do not follow each other: taken for containers, not for "
            "parts of one log",
            "give the parts of one log as one file, or the whole run directory",
        )
    for rank, processes in recording.ranks.conflicts:
        title = f"rank {rank} is claimed by {counted(len(processes), 'process', 'processes')}"
        evidence = ", ".join(f"pid {pid} in {file}" for file, pid in processes)
        yield Finding("rank_conflict", "error", title, evidence, "analyze the logs of one run at a time")
    if recording.manifest is not None and report.ranks.ranks:
        expected = {process.rank for process in recording.manifest.device_map}
        missing = sorted(expected - set(report.ranks.ranks))
        if missing:
            title = f"no run of {'rank' if len(missing) == 1 else 'ranks'} {', '.join(map(str, missing))} was recorded"
            evidence = f"the manifest names {counted(len(expected), 'rank')}, {len(report.ranks.ranks)} of them with records"
            yield Finding("rank_missing", "error", title, evidence, "skews cover the other ranks only")


def _lives(recording: Recording) -> Iterable[str]:
    """The processes and the time of each life."""
    assigned = recording.ranks
    for life in sorted(set(assigned.lives.values())):
        own = [process for process, of_process in assigned.lives.items() if of_process == life]
        windows = [assigned.windows[process] for process in own if process in assigned.windows]
        first, last = min(start for start, _ in windows), max(end for _, end in windows)
        pids = ", ".join(str(pid) for _, pid in own)
        yield f"pids {pids}: {milliseconds(last - first)} from {first} ns"


def _lost_runs(report: Report, recording: Recording) -> Iterable[Finding]:
    """One finding a rank that did runs of which no record tells."""
    for rank in sorted({run.rank for run in report.lost_runs}):
        lost = [run for run in report.lost_runs if run.rank == rank]
        which = f"first: {lost[0].callable}"
        if lost[0].dispatch_id is not None:
            which += f" dispatch {recording.spans.id_of(lost[0].dispatch_id)}{_step_of(recording, lost[0].dispatch_id)}"
        files = sorted({file for (file, _), of_rank in recording.ranks.ranks.items() if of_rank == rank})
        title = f"rank {rank}: no chip.run record of {len(lost)} of its runs"
        evidence = f"{which}, in {', '.join(files)}"
        yield Finding("lost_records", "error", title, evidence, "allow a loss with --max-loss")


def _step_of(recording: Recording, dispatch_id: int) -> str:
    spans = recording.spans
    steps = spans.step_id[(spans.dispatch_id == dispatch_id) & (spans.step_id != ABSENT)]
    return f" (step {int(steps[0])})" if len(steps) else ""
