"""One recording out of paths: run directories, traces, logs and request records, in any combination."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np

from analyzers.errors import UnusableInputError
from analyzers.readers.chrome_trace import ChromeTrace, stream_chrome_trace
from analyzers.readers.files import open_file
from analyzers.readers.formats import read_file
from analyzers.readers.load_report import InputFormat, LoadIssue, LoadReport
from analyzers.readers.manifest import DamagedManifestError, read_manifest
from analyzers.readers.observations.counters import CounterReading, between
from analyzers.readers.observations.observation import Observation, ObservedFile
from analyzers.readers.requests import Requests, RequestTiming
from analyzers.readers.requests import read as read_requests
from analyzers.readers.run_records import read_mtp_accuracy, read_resources
from analyzers.readers.strace import StraceLog, stream_strace
from analyzers.recording.clocks import ONE_HOST_CLOCK, AlignedClocks, ClockAlignment, align_clocks, shifted
from analyzers.recording.devices import log_devices
from analyzers.recording.log_clocks import process_clocks
from analyzers.recording.rank_files import join_rank_files
from analyzers.recording.rank_naming import RankAssignment, assign_ranks, rank_column
from analyzers.recording.run_directory import (
    RunFiles,
    rank_of_log,
    run_files,
    without_repeats,
)
from analyzers.recording.trace_devices import with_devices
from analyzers.rundir import Manifest, MtpAccuracy, ResourceSample
from analyzers.table.callables import callable_of
from analyzers.table.spans import Clock, SpanTable, concatenate

# Its category "kernel" is no mark of the serving profiler: every GPU profiler has it too.
_SA_PROFILE_CATEGORIES = frozenset({"scheduler", "worker", "executor", "serving", "request"})

Input = TypeVar("Input", ChromeTrace, StraceLog)


@dataclass(frozen=True)
class Recording:
    """Everything read from the given paths."""

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
    observations: list[Observation] = field(default_factory=list)
    clocks: ClockAlignment = ONE_HOST_CLOCK
    """Whether and how times of different ranks may be compared: of the logs, else of traces of one rank each."""
    file_clocks: ClockAlignment = ONE_HOST_CLOCK
    """The same of traces of one rank each."""
    given_ranks: Mapping[str, int] = field(default_factory=dict)
    """Path of a trace -> the rank that the user named."""
    missing_ranks: list[int] = field(default_factory=list)
    """Ranks that the files speak of and none is of."""

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


class _Collector:
    """Reads files one by one; `recording` puts them together."""

    def __init__(self) -> None:
        self.traces: list[ChromeTrace] = []
        self.logs: list[StraceLog] = []
        self.requests: list[Requests] = []
        self.damaged: list[LoadReport] = []
        self.resources: list[ResourceSample] = []
        self.mtp_accuracy: MtpAccuracy | None = None
        self.observations: list[LoadReport] = []
        self.figures: list[Observation] = []
        self._counters: CounterReading | None = None
        """The first of two readings of the same counters."""
        self.manifest: Manifest | None = None
        self.file_ranks: dict[str, int] = {}
        self.manifest_ranks: dict[int, int] = {}
        self._run_files: list[Path] = []
        """Files that the run of the manifest wrote."""

    def read_file(self, path: Path) -> None:
        """Read one file by what it is."""
        match read_file(path):
            case ChromeTrace() as trace:
                self.traces.append(_on_host_clock(trace))
            case StraceLog() as log:
                self.logs.append(log)
                if (rank := rank_of_log(path)) is not None:
                    self.file_ranks[str(path)] = rank
            case Requests() as requests:
                self.requests.append(requests)
            case ObservedFile() as observed:
                self._take_observation(observed)
            case Manifest() as manifest:
                self._take_manifest(manifest, path)

    def _take_observation(self, observed: ObservedFile) -> None:
        self.observations.append(observed.report)
        observation = observed.observation
        if isinstance(observed, CounterReading) and self._counters is not None:
            self.figures.remove(self._counters.observation)
            observation, self._counters = between(self._counters, observed), None
        elif isinstance(observed, CounterReading):
            self._counters = observed
        self.figures.append(observation)

    def _take_manifest(self, manifest: Manifest, path: Path) -> None:
        """Take a manifest and the device map in it."""
        if self.manifest is not None:
            raise UnusableInputError(f"{path}: a second run: analyze runs one at a time")
        self.manifest = manifest
        pids = [process.pid for process in manifest.device_map]
        # Ranks in containers may all have the same pid: it names none of them.
        self.manifest_ranks = {
            process.pid: process.rank for process in manifest.device_map if pids.count(process.pid) == 1
        }

    def read_directory(self, directory: Path) -> None:
        """Read the files of a run directory that belong to a recording, each record once."""
        files: RunFiles = run_files(directory)
        if files.manifest is not None:
            try:
                self._take_manifest(read_manifest(files.manifest), files.manifest)
            except DamagedManifestError as error:
                if files.only_manifest:
                    raise
                self.damaged.append(_damaged(files.manifest, "manifest", error, lost=1))
            else:
                logs = [*files.rank_logs, *([files.server_log] if files.server_log is not None else [])]
                self._run_files = [*files.serving_traces, *files.fragments, *logs]
        self._read_serving(files)
        rank_logs = []
        for path in files.rank_logs:
            rank_logs.append(stream_strace(path, is_log=True))
            if (rank := rank_of_log(path)) is not None:
                self.file_ranks[str(path)] = rank
        self.logs += rank_logs
        if files.server_log is not None:
            server = stream_strace(files.server_log, is_log=True)
            self.logs.append(without_repeats(server, rank_logs))
        if files.requests is not None:
            self.requests.append(read_requests(open_file(files.requests)))
        if files.resources is not None:
            samples, report = read_resources(files.resources)
            self.resources += samples
            self.observations.append(report)
        if files.mtp_accuracy is not None:
            self.mtp_accuracy, report = read_mtp_accuracy(files.mtp_accuracy)
            self.observations.append(report)

    def _read_serving(self, files: RunFiles) -> None:
        traces = []
        for path in files.serving_traces:
            try:
                traces.append(_read_serving_trace(path))
            except UnusableInputError as error:
                if not files.fragments:
                    raise
                self.damaged.append(_damaged(path, "chrome_trace", error, lost=0))
        if files.fragments and not any(trace.report.records for trace in traces):
            # Nothing was merged: the fragments hold what the processes wrote.
            traces = [_read_serving_trace(path) for path in files.fragments]
        self.traces += traces

    def recording(self, paths: Sequence[Path], options: LoadOptions) -> Recording:
        """Put everything together and name the ranks."""
        files = join_rank_files(self.traces, options.ranks, allow_missing=options.allow_missing)
        aligned = align_clocks(process_clocks(self.logs, files.traces, self.manifest, self._run_files))
        traces = [with_devices(_on_common_clock(trace, aligned)) for trace in files.traces]
        logs = [_on_common_clock(log, aligned) for log in self.logs]
        ranks = assign_ranks(logs, manifest_ranks=self.manifest_ranks, file_ranks=self.file_ranks)
        ranks = dataclasses.replace(ranks, devices=log_devices(logs, ranks.ranks, self.manifest))
        spans = [trace.spans for trace in traces] + [rank_column(log.spans, ranks) for log in logs]
        return Recording(
            paths=tuple(str(path) for path in paths),
            spans=concatenate(spans),
            invalid=concatenate([trace.invalid for trace in traces] + [log.invalid for log in logs]),
            requests=[timing for requests in self.requests for timing in requests.timings],
            requests_have_phases=any(requests.has_phases for requests in self.requests)
            or self.manifest is not None,
            reports=[
                *self.damaged,
                *(trace.report for trace in self.traces),
                *(log.report for log in self.logs),
                *(requests.report for requests in self.requests),
                *self.observations,
            ],
            ranks=ranks,
            ready_devices={pid: device for log in self.logs for pid, device in log.ready_devices.items()},
            manifest=self.manifest,
            resources=self.resources,
            mtp_accuracy=self.mtp_accuracy,
            observations=self.figures,
            clocks=aligned.alignment if self.logs else files.clocks,
            file_clocks=files.clocks,
            given_ranks=options.ranks,
            missing_ranks=files.missing,
        )


def load_recording(paths: Iterable[str | Path], options: LoadOptions | None = None) -> Recording:
    """Read run directories, traces, logs and request records into one recording.

    Raises:
        UnusableInputError: a path does not exist, cannot be read or is none of the known formats; a path given twice;
            the ranks or time bases of several traces contradict each other.
    """
    given = [Path(path) for path in paths]
    if not given:
        raise UnusableInputError("nothing to read: name a run directory, a trace, a log or request records")
    repeated = next((path for index, path in enumerate(given) if path in given[:index]), None)
    if repeated is not None:
        raise UnusableInputError(f"{repeated}: named twice: its records would count twice")
    collector = _Collector()
    for path in given:
        if path.is_dir():
            collector.read_directory(path)
        else:
            collector.read_file(path)
    return collector.recording(given, options or LoadOptions())


def _on_common_clock(read: Input, clocks: AlignedClocks) -> Input:
    return dataclasses.replace(read, spans=shifted(read.spans, clocks), invalid=shifted(read.invalid, clocks))


def _damaged(path: Path, input_format: InputFormat, error: UnusableInputError, *, lost: int) -> LoadReport:
    """The report of a file that the recording has to do without."""
    issue = LoadIssue("malformed", 1, lost, str(error).removeprefix(f"{path}: "))
    return LoadReport(path=str(path), format=input_format, records=1, parsed=0, issues=[issue])


def _read_serving_trace(path: Path) -> ChromeTrace:
    streamed = stream_chrome_trace(path, clock=Clock.HOST)
    if streamed is None:
        raise UnusableInputError(f"{path}: not a trace: no traceEvents")
    return streamed


def _on_host_clock(trace: ChromeTrace) -> ChromeTrace:
    """Recognize the serving profiler's own trace: its clock is CLOCK_MONOTONIC. Any other keeps a clock of its own."""
    spans = trace.spans
    is_kernel = np.array([label == "kernel" for label in spans.categories], dtype=np.bool_)
    dispatches = spans.where_name(lambda name: callable_of(name) is not None)
    has_dispatches = len(spans) > 0 and bool((dispatches & is_kernel[spans.category]).any())
    if _SA_PROFILE_CATEGORIES.isdisjoint(spans.categories) and not has_dispatches:
        return trace
    clock = np.broadcast_to(np.int8(Clock.HOST), len(spans))
    return dataclasses.replace(trace, spans=spans.with_clock(clock))
