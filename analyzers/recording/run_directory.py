"""A run directory (docs/formats.md, Run directory): which of its files to read, and how to count each record once."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from analyzers.errors import UnusableInputError
from analyzers.readers.load_report import LoadIssue
from analyzers.readers.strace import StraceLog
from analyzers.rundir import RunDirectory
from analyzers.table.spans import SpanTable

_RANK_LOG = re.compile(r"rank-(\d{1,6})\.log")


@dataclass(frozen=True)
class RunFiles:
    """The files of one directory that a recording is made of."""

    manifest: Path | None
    serving_traces: list[Path]
    fragments: list[Path]
    rank_logs: list[Path]
    server_log: Path | None
    requests: Path | None
    resources: Path | None
    mtp_accuracy: Path | None

    @property
    def only_manifest(self) -> bool:
        """Whether nothing but the manifest is there."""
        return not (
            self.serving_traces or self.fragments or self.rank_logs or self.server_log or self.requests
        )


def run_files(directory: Path) -> RunFiles:
    """Find what is there of a run directory, of the serving profiler's output, or of a directory of rank logs.

    Raises:
        UnusableInputError: nothing of any of them is there.
    """
    run = RunDirectory(directory)
    traces = [path for path in (run.serving_trace, directory / "trace.json") if path.is_file()][:1]
    fragments = sorted(run.fragments.glob("*.jsonl")) or sorted((directory / "fragments").glob("*.jsonl"))
    fragments = fragments or sorted(directory.glob("trace.*.jsonl"))
    logs = sorted(run.strace.glob("rank-*.log")) or sorted(directory.glob("rank-*.log"))
    ranked = [(rank, path) for path in logs if (rank := rank_of_log(path)) is not None]
    files = RunFiles(
        manifest=_if_file(run.manifest),
        serving_traces=traces,
        fragments=fragments,
        rank_logs=[path for _, path in sorted(ranked)],
        server_log=_if_file(run.server_log),
        requests=_if_file(run.requests),
        resources=_if_file(run.resources),
        mtp_accuracy=_if_file(run.mtp_accuracy),
    )
    if not any((files.manifest, traces, fragments, files.rank_logs, files.server_log, files.requests)):
        raise UnusableInputError(
            f"{directory}: not a run directory: none of run.json, sa_profile/, strace/rank-*.log, server.log, "
            "requests.jsonl, trace.json and fragments/ is in it"
        )
    return files


def rank_of_log(path: Path) -> int | None:
    """The rank in `rank-<r>.log`; None for any other name."""
    match = _RANK_LOG.fullmatch(path.name)
    return int(match[1]) if match else None


def without_repeats(server: StraceLog, rank_logs: Sequence[StraceLog]) -> StraceLog:
    """`server` without the records that a rank's own log holds, so that each counts once.

    The report counts the remaining records. What only `server` holds of a rank joins that rank's process. A
    record torn in `server` is no loss when its process has a log of its own: that one is the measure.
    """
    if not rank_logs:
        return server
    held: set[tuple[object, ...]] = set()
    file_of_pid: dict[int, str | None] = {}
    for log in rank_logs:
        held.update(_record_keys(log.spans))
        for lane in log.spans.lanes:
            if isinstance(lane.pid, int):
                file = file_of_pid.setdefault(lane.pid, lane.file)
                # Equal pids in two rank logs are processes of two containers: they name no file.
                file_of_pid[lane.pid] = file if file == lane.file else None
    keys = _record_keys(server.spans)
    new = np.fromiter((key not in held for key in keys), dtype=np.bool_, count=len(keys))
    lanes = tuple(
        lane._replace(file=file_of_pid.get(lane.pid) or lane.file) if isinstance(lane.pid, int) else lane
        for lane in server.spans.lanes
    )
    forgiven = sum(file_of_pid.get(pid) is not None for pid in server.torn_pids)
    issues = [
        LoadIssue(issue.kind, issue.count - forgiven, issue.lost - forgiven, issue.where)
        if issue.kind == "torn_record"
        else issue
        for issue in server.report.issues
    ]
    repeated = int((~new).sum())
    report = msgspec.structs.replace(
        server.report,
        records=server.report.records - repeated - forgiven,
        parsed=server.report.parsed - repeated,
        issues=[issue for issue in issues if issue.count > 0],
    )
    spans = dataclasses.replace(server.spans, lanes=lanes).select(new)
    return dataclasses.replace(server, spans=spans, report=report)


def _record_keys(spans: SpanTable) -> list[tuple[object, ...]]:
    """What tells one record from another, whatever file it stands in."""
    pids = [(lane.pid, lane.tid) for lane in spans.lanes]
    return [
        (pids[lane], name, start, duration, invocation)
        for lane, name, start, duration, invocation in zip(
            spans.lane.tolist(),
            spans.iter_names(),
            spans.start_ns.tolist(),
            spans.duration_ns.tolist(),
            spans.invocation.tolist(),
            strict=True,
        )
    ]


def _if_file(path: Path) -> Path | None:
    return path if path.is_file() else None
