"""The directory of a run, ours or upstream's (docs/formats.md): which of its files to read, and each record once."""

from __future__ import annotations

import dataclasses
import filecmp
import os
import re
from collections.abc import Iterable, Sequence
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
_TRACE_HOMES = ("sa_profile", "serving-trace", "profile_out", "")
"""Where the serving profiler's output lies: ours, that of upstream's profiling, its default, and alone."""

_PROFILES = ("*.json", "*.json.gz")

MOST_FILES = 1000
"""Files of a directory beyond which those that were not read are no longer counted."""


@dataclass(frozen=True)
class RunFiles:
    """The files of one directory that a recording is made of."""

    manifest: Path | None
    serving_traces: list[Path]
    torch_profiles: list[Path]
    """Traces of torch.profiler, one a rank, each on a clock of its own."""
    fragments: list[Path]
    rank_logs: list[Path]
    server_log: Path | None
    run_log: Path | None
    """None also where it is a copy of the server's log."""
    requests: Path | None
    answers: list[Path]
    """Files that state what the requests brought; only where no client measured it."""
    resources: Path | None
    mtp_accuracy: Path | None
    unread: list[Path]
    """Every other file of the directory, as far as `MOST_FILES`."""

    @property
    def only_manifest(self) -> bool:
        """Whether nothing but the manifest is there."""
        traces = (*self.serving_traces, *self.torch_profiles, *self.fragments)
        return not (traces or self.logs or self.requests or self.answers)

    @property
    def logs(self) -> list[Path]:
        """Every log, those of ranks first."""
        return [*self.rank_logs, *(path for path in (self.server_log, self.run_log) if path is not None)]


def run_files(directory: Path) -> RunFiles:
    """Find what is there of a run directory, of the serving profiler's output, or of a directory of rank logs.

    Raises:
        UnusableInputError: nothing of any of them is there.
    """
    run = RunDirectory(directory)
    homes = [directory / home for home in _TRACE_HOMES]
    traces = [path for home in homes if (path := home / "trace.json").is_file()][:1]
    profiles = sorted(path for pattern in _PROFILES for path in run.torch_profiles.glob(pattern))
    fragments = next((found for home in homes if (found := _fragments(home))), [])
    logs = sorted(run.strace.glob("rank-*.log")) or sorted(directory.glob("rank-*.log"))
    ranked = [(rank, path) for path in logs if (rank := rank_of_log(path)) is not None]
    server_log, run_log, requests = map(_if_file, (run.server_log, run.run_log, run.requests))
    answers = [run.performance_summary, run.responses, run.completion_response] if requests is None else []
    is_copy = server_log is not None and run_log is not None and _are_equal(server_log, run_log)
    files = RunFiles(
        manifest=_if_file(run.manifest),
        serving_traces=traces,
        torch_profiles=profiles,
        fragments=fragments,
        rank_logs=[path for _, path in sorted(ranked)],
        server_log=server_log,
        run_log=None if is_copy else run_log,
        requests=requests,
        answers=[path for path in answers if path.is_file()],
        resources=_if_file(run.resources),
        mtp_accuracy=_if_file(run.mtp_accuracy),
        unread=[],
    )
    if files.manifest is None and files.only_manifest:
        raise UnusableInputError(
            f"{directory}: not a run directory: none of run.json, sa_profile/, serving-trace/, strace/rank-*.log, "
            "server.log, run.log, requests.jsonl, responses.json, performance_summary.json, trace.json and fragments/ "
            "is in it"
        )
    read = [
        files.manifest,
        *traces,
        *profiles,
        *files.logs,
        requests,
        *files.answers,
        files.resources,
        files.mtp_accuracy,
    ]
    read += [run_log] if is_copy else []
    read += [] if traces else fragments
    return dataclasses.replace(files, unread=_others(directory, {path for path in read if path is not None}))


def _fragments(home: Path) -> list[Path]:
    """What the processes wrote that `trace.json` in the same place is merged from."""
    return next(
        (
            found
            for pattern in ("fragments/*.jsonl", "trace.json.fragments/*.jsonl", "trace.*.jsonl")
            if (found := sorted(home.glob(pattern)))
        ),
        [],
    )


def _are_equal(first: Path, second: Path) -> bool:
    try:
        return filecmp.cmp(first, second, shallow=False)
    except OSError as error:
        raise UnusableInputError(
            f"{error.filename or first}: cannot be read: {error.strerror or error}"
        ) from error


def _others(directory: Path, read: Iterable[Path]) -> list[Path]:
    """The files below a directory that are none of `read`, by name; links to what lies in it are no further files."""
    known = {path.resolve() for path in read}
    root = directory.resolve()
    found: list[Path] = []
    for place, folders, names in os.walk(directory):
        folders.sort()
        for name in sorted(names):
            path = Path(place, name)
            target = path.resolve()
            if target in known or (path.is_symlink() and target.is_relative_to(root)):
                continue
            found.append(path)
            if len(found) > MOST_FILES:
                return found
    return found


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
