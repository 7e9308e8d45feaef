"""Recordings out of paths: run directories, traces, logs and request records, in any combination; one a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from analyzers.errors import UnusableInputError
from analyzers.readers.chrome_trace import ChromeTrace
from analyzers.readers.load_report import LoadReport
from analyzers.readers.observations.observation import Observation
from analyzers.readers.request_timing import RequestTiming
from analyzers.readers.requests import Requests
from analyzers.readers.statements import Statements
from analyzers.readers.strace import StraceLog
from analyzers.recording.clocks import ONE_HOST_CLOCK, AlignedClocks, ClockAlignment, align_clocks, shifted
from analyzers.recording.contents import Contents, by_benchmark, merged, read_path
from analyzers.recording.copies import Copy, copies_among, notes_on
from analyzers.recording.devices import log_devices
from analyzers.recording.log_clocks import process_clocks
from analyzers.recording.rank_files import join_rank_files
from analyzers.recording.rank_naming import RankAssignment, assign_ranks, rank_column
from analyzers.recording.repeated_spans import without_repeats
from analyzers.recording.rotated_logs import join_rotated, shared_pids
from analyzers.recording.runs import (
    Claims,
    Split,
    home_of,
    in_one_run_directory,
    log_claims,
    run_claim,
    split_into_runs,
    trace_claims,
)
from analyzers.recording.trace_devices import with_devices
from analyzers.rundir import Manifest, MtpAccuracy, ResourceSample
from analyzers.table.spans import SpanTable, concatenate
from analyzers.text.words import counted

Input = TypeVar("Input", ChromeTrace, StraceLog)


@dataclass(frozen=True)
class Recording:
    """Everything read of one run."""

    paths: tuple[str, ...]
    spans: SpanTable
    """Serving and STRACE spans, ranks assigned."""
    invalid: SpanTable
    """Spans with a negative duration: for the lifecycle check alone."""
    requests: list[RequestTiming]
    requests_have_phases: bool
    reports: list[LoadReport]
    ranks: RankAssignment
    ready_devices: dict[int, int]
    manifest: Manifest | None
    resources: list[ResourceSample]
    mtp_accuracy: MtpAccuracy | None
    name: str = ""
    """What tells it from other runs: its directory, or its file."""
    observations: list[Observation] = field(default_factory=list)
    clocks: ClockAlignment = ONE_HOST_CLOCK
    """Whether and how times of different ranks may be compared: of the logs, else of traces of one rank each."""
    file_clocks: ClockAlignment = ONE_HOST_CLOCK
    """The same of traces of one rank each."""
    given_ranks: Mapping[str, int] = field(default_factory=dict)
    """Path of a trace -> the rank that the user named."""
    exits: Mapping[int, str] = field(default_factory=dict)
    """pid -> how it exited before it had completed its run, as the runtime's log says."""
    timed_out_ns: int | None = None
    """When the last wait that timed out had, at the earliest; None where no log says so."""
    shared_pids: list[int] = field(default_factory=list)
    """Pids that processes of several files have, taken for processes of their own."""
    missing_ranks: list[int] = field(default_factory=list)
    """Ranks that the files speak of and none is of."""
    statements: list[Statements] = field(default_factory=list)
    """What files and logs state of the requests."""
    unread: list[Path] = field(default_factory=list)
    """Files of a directory that were not read."""
    notes: list[str] = field(default_factory=list)
    """What to know of how its files were put together."""

    @property
    def lost(self) -> int:
        """Records that were found but are in no figure."""
        return sum(report.lost for report in self.reports)


@dataclass(frozen=True)
class LoadOptions:
    """What a user says about the files."""

    ranks: Mapping[str, int] = field(default_factory=dict)
    """Path of a trace -> the rank it is of."""
    allow_missing: bool = False
    """Go on although ranks of the world are missing or claimed twice."""
    one_clock: bool = False
    """All files are of one host: their times may be compared though nothing in them shows it."""


@dataclass(frozen=True)
class Runs:
    """The recordings of everything given, one a run: nothing is matched or compared across them."""

    recordings: list[Recording]
    evidence: str
    """What sets the runs apart, in words; "" for one run."""

    def only(self) -> Recording:
        """The recording of the one run there is.

        Raises:
            UnusableInputError: there are several.
        """
        if len(self.recordings) > 1:
            names = ", ".join(recording.name for recording in self.recordings)
            raise UnusableInputError(
                f"{names}: {len(self.recordings)} runs ({self.evidence}), whose steps and times have nothing in "
                "common: name one of them, or the files of one (`dsv4bench analyze` measures each by itself)"
            )
        return self.recordings[0]


def load_runs(paths: Iterable[str | Path], options: LoadOptions | None = None) -> Runs:
    """Read run directories, traces, logs and request records, and put together what is of one run.

    Raises:
        UnusableInputError: a path does not exist, cannot be read or is none of the known formats; a path given twice;
            the ranks or time bases of several traces contradict each other.
    """
    options = options or LoadOptions()
    given = [Path(path) for path in paths]
    if not given:
        raise UnusableInputError("nothing to read: name a run directory, a trace, a log or request records")
    repeated = next((path for index, path in enumerate(given) if path in given[:index]), None)
    if repeated is not None:
        raise UnusableInputError(f"{repeated}: named twice: its records would count twice")
    contents = [read_path(path) for path in given]
    _check_given_ranks(contents, options.ranks)
    given, contents, copies = _once(given, contents)
    split = _split(given, contents, options)
    recordings: list[Recording] = []
    evidence = split.evidence
    for indices in split.runs:
        own = [given[index] for index in indices]
        whole = merged([(given[index], contents[index]) for index in indices])
        name = str(own[0] if len(own) == 1 else home_of(own[0]))
        notes = notes_on(copy for copy in copies if copy.of in own)
        parts = by_benchmark(whole)
        if len(parts) > 1:
            evidence = "; ".join(filter(None, [evidence, "a report holds several benchmarks"]))
        recordings += [
            _recording(part, own, options, name=benchmark or name, notes=notes) for benchmark, part in parts
        ]
    return Runs(recordings, evidence)


def _once(
    paths: Sequence[Path], contents: Sequence[Contents]
) -> tuple[list[Path], list[Contents], list[Copy]]:
    """The paths and their contents without those that hold the run of another."""
    # Two readings of counters that did not move are two readings all the same.
    copies = [
        copy
        for copy in (copies_among(paths) if len(paths) > 1 else ())
        if not contents[paths.index(copy.path)].observed
    ]
    left_out = {copy.path for copy in copies}
    kept = [index for index, path in enumerate(paths) if path not in left_out]
    return [paths[index] for index in kept], [contents[index] for index in kept], copies


def _split(paths: Sequence[Path], contents: Sequence[Contents], options: LoadOptions) -> Split:
    """Which of the paths are of one run."""
    if len(paths) == 1:
        return Split([[0]], "")
    homes = [home_of(path) for path in paths]
    # The steps of the only trace are nobody else's: they need not be looked at one by one.
    several_traces = sum(bool(part.traces) for part in contents) > 1
    claims = [
        _claims(part, home, options, several_traces=several_traces)
        for part, home in zip(contents, homes, strict=True)
    ]
    return split_into_runs([home.resolve() for home in homes], claims)


def load_recording(paths: Iterable[str | Path], options: LoadOptions | None = None) -> Recording:
    """Read the inputs of one run into one recording; see `load_runs`.

    Raises:
        UnusableInputError: as `load_runs` does, or the inputs are of several runs.
    """
    return load_runs(paths, options).only()


def _check_given_ranks(contents: Sequence[Contents], ranks: Mapping[str, int]) -> None:
    traces = {trace.report.path for part in contents for trace in part.traces}
    unknown = sorted(set(ranks) - traces)
    if unknown:
        raise UnusableInputError(f"--rank {unknown[0]}: no such trace was given")


def _claims(contents: Contents, home: Path, options: LoadOptions, *, several_traces: bool) -> Claims:
    """What of a run the contents of one path have."""
    claims = dict(run_claim(home))
    for log in contents.logs:
        claims.update(log_claims(log, contents.log_ranks.get(log.report.path)))
    for trace in contents.traces if several_traces else ():
        rank = options.ranks.get(trace.report.path, trace.rank)
        for key, records in trace_claims(trace.spans, rank).items():
            claims[key] = claims.get(key, frozenset()) | records
    return claims


def _recording(
    contents: Contents, paths: Sequence[Path], options: LoadOptions, *, name: str, notes: Sequence[str]
) -> Recording:
    """Put the contents of a run together and name the ranks."""
    given_ranks = {
        trace.report.path: options.ranks[trace.report.path]
        for trace in contents.traces
        if trace.report.path in options.ranks
    }
    once, repeated_spans = without_repeats(contents.traces)
    files = join_rank_files(once, given_ranks, allow_missing=options.allow_missing)
    manifest = contents.manifest
    if len(contents.logs) > 1 and not contents.log_ranks:
        contents.logs = join_rotated(contents.logs)
    clocks = process_clocks(
        contents.logs,
        files.traces,
        manifest,
        [*contents.run_files, *in_one_run_directory([path for path in paths if not path.is_dir()])],
        one_clock=options.one_clock,
    )
    aligned = align_clocks(clocks)
    traces = [with_devices(_on_common_clock(trace, aligned)) for trace in files.traces]
    logs = [_on_common_clock(log, aligned) for log in contents.logs]
    comparable = aligned.alignment.comparable
    ranks = assign_ranks(
        logs, manifest_ranks=contents.manifest_ranks, file_ranks=contents.log_ranks, one_clock=comparable
    )
    ranks = dataclasses.replace(ranks, devices=log_devices(logs, ranks.ranks, manifest))
    requests, repeats = _requests_once(contents.benchmarks)
    spans = [trace.spans for trace in traces] + [rank_column(log.spans, ranks) for log in logs]
    return Recording(
        name=name,
        paths=tuple(str(path) for path in paths),
        spans=concatenate(spans),
        invalid=concatenate([trace.invalid for trace in traces] + [log.invalid for log in logs]),
        requests=requests,
        requests_have_phases=any(benchmark.has_phases for benchmark in contents.benchmarks)
        or manifest is not None,
        reports=contents.reports,
        ranks=ranks,
        ready_devices={pid: device for log in logs for pid, device in log.ready_devices.items()},
        manifest=manifest,
        exits={pid: how for log in logs for pid, how in log.processes.exits.items()},
        timed_out_ns=max(
            (log.processes.timed_out_ns for log in logs if log.processes.timed_out_ns is not None),
            default=None,
        ),
        resources=contents.resources,
        mtp_accuracy=contents.mtp_accuracy,
        observations=contents.observations,
        clocks=aligned.alignment if logs else files.clocks,
        file_clocks=files.clocks,
        given_ranks=given_ranks,
        shared_pids=shared_pids(contents.logs) if not contents.log_ranks else [],
        missing_ranks=files.missing,
        statements=contents.statements,
        unread=contents.unread,
        notes=[*notes, *repeated_spans, *repeats],
    )


def _requests_once(benchmarks: Sequence[Requests]) -> tuple[list[RequestTiming], list[str]]:
    """The requests of several files, and what to say of those that more than one holds.

    Clients may count from the same number on: only what is the same in everything is one request.
    """
    timings: list[RequestTiming] = []
    notes = []
    for benchmark in benchmarks:
        before = set(timings) if timings else set()
        new = [timing for timing in benchmark.timings if timing.identity is None or timing not in before]
        if repeated := len(benchmark.timings) - len(new):
            told = counted(repeated, "request")
            notes.append(f"{benchmark.report.path}: {told} that another file holds too: counted once")
        timings += new
    return timings, notes


def _on_common_clock(read: Input, clocks: AlignedClocks) -> Input:
    return dataclasses.replace(read, spans=shifted(read.spans, clocks), invalid=shifted(read.invalid, clocks))
