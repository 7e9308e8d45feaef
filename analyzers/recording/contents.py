"""What the paths of a recording hold, as the readers give it: files told by content, run directories by layout."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from analyzers.errors import UnusableInputError
from analyzers.readers.chrome_trace import ChromeTrace, stream_chrome_trace
from analyzers.readers.files import open_file
from analyzers.readers.formats import read_file
from analyzers.readers.load_report import InputFormat, LoadIssue, LoadReport
from analyzers.readers.manifest import DamagedManifestError, read_manifest
from analyzers.readers.observations.counters import CounterReading, between
from analyzers.readers.observations.observation import Observation, ObservedFile
from analyzers.readers.requests import RequestFile, Requests
from analyzers.readers.requests import read as read_requests
from analyzers.readers.responses import read as read_answers
from analyzers.readers.run_records import read_mtp_accuracy, read_resources
from analyzers.readers.statements import StatementFile, Statements
from analyzers.readers.strace import StraceLog, stream_strace
from analyzers.recording.benchmarks import benchmark_name, chosen_benchmark
from analyzers.recording.run_directory import RunFiles, rank_of_log, run_files, without_repeats
from analyzers.rundir import Manifest, MtpAccuracy, ResourceSample
from analyzers.table.callables import callable_of
from analyzers.table.spans import Clock
from analyzers.text.words import counted

# Its category "kernel" is no mark of the serving profiler: every GPU profiler has it too.
_SA_PROFILE_CATEGORIES = frozenset({"scheduler", "worker", "executor", "serving", "request"})


@dataclass
class Contents:
    """Everything read from one path, or from all of a run."""

    traces: list[ChromeTrace] = field(default_factory=list)
    logs: list[StraceLog] = field(default_factory=list)
    requests: list[RequestFile] = field(default_factory=list)
    observed: list[ObservedFile] = field(default_factory=list)
    answers: list[StatementFile] = field(default_factory=list)
    """Files that state what the requests brought."""
    resources: list[ResourceSample] = field(default_factory=list)
    mtp_accuracy: MtpAccuracy | None = None
    manifest: Manifest | None = None
    damaged: list[LoadReport] = field(default_factory=list)
    """Files that the recording has to do without."""
    run_records: list[LoadReport] = field(default_factory=list)
    """Of the small files that a run leaves beside its traces."""
    log_ranks: dict[str, int] = field(default_factory=dict)
    """Path of a log -> the rank that its name names."""
    run_files: list[Path] = field(default_factory=list)
    """Files of a run directory: one launcher on one host wrote them."""
    unread: list[Path] = field(default_factory=list)
    """Files of a directory that were not read."""

    @property
    def reports(self) -> list[LoadReport]:
        """What was read of every file."""
        return [
            *self.damaged,
            *(trace.report for trace in self.traces),
            *(log.report for log in self.logs),
            *(benchmark.report for benchmark in self.benchmarks),
            *(observed.report for observed in self.observed),
            *(answer.report for answer in self.answers),
            *self.run_records,
        ]

    @property
    def statements(self) -> list[Statements]:
        """What files and logs state of the requests, the files first."""
        found = [answer.statements for answer in self.answers] + [log.statements for log in self.logs]
        return [statements for statements in found if statements]

    @property
    def benchmarks(self) -> list[Requests]:
        """The requests of every benchmark of every file."""
        return [benchmark for file in self.requests for benchmark in file.benchmarks]

    @property
    def observations(self) -> list[Observation]:
        """The figures of small files; of two readings of counters, what was counted between them."""
        found: list[Observation] = []
        first: CounterReading | None = None
        for observed in self.observed:
            if not isinstance(observed, CounterReading):
                found.append(observed.observation)
            elif first is None:
                first = observed
                found.append(observed.observation)
            else:
                found.remove(first.observation)
                found.append(between(first, observed))
                first = None
        return found

    @property
    def manifest_ranks(self) -> dict[int, int]:
        """pid -> rank, by the manifest. Ranks in containers may all have the same pid: it names none of them."""
        device_map = self.manifest.device_map if self.manifest is not None else []
        pids = [process.pid for process in device_map]
        return {process.pid: process.rank for process in device_map if pids.count(process.pid) == 1}


def read_path(path: Path) -> Contents:
    """Read a run directory, or one file by what it is.

    Raises:
        UnusableInputError: it does not exist, cannot be read or is none of the known formats.
    """
    if (chosen := chosen_benchmark(path)) is not None:
        return _only_benchmark(path, _read_one(chosen.file), chosen.number)
    return _read_directory(path) if path.is_dir() else _read_one(path)


def by_benchmark(contents: Contents) -> list[tuple[str, Contents]]:
    """What is of one benchmark or none, by name: "" for the whole, or for what reports of several benchmarks leave of it."""
    several = [file for file in contents.requests if len(file.benchmarks) > 1]
    if not several:
        return [("", contents)]
    rest = dataclasses.replace(contents, requests=[file for file in contents.requests if file not in several])
    parts = [("", rest)] if rest.reports or rest.manifest is not None else []
    for file in several:
        for number, benchmark in enumerate(file.benchmarks, 1):
            name = benchmark_name(benchmark.report.path, number)
            parts.append((name, Contents(requests=[RequestFile([benchmark])])))
    return parts


def _only_benchmark(path: Path, contents: Contents, number: int) -> Contents:
    benchmarks = contents.benchmarks
    if number > len(benchmarks):
        there = counted(len(benchmarks), "benchmark") if benchmarks else "no benchmarks"
        raise UnusableInputError(f"{path}: there is no benchmark {number}: the file holds {there}")
    return Contents(requests=[RequestFile([benchmarks[number - 1]])])


def merged(parts: Sequence[tuple[Path, Contents]]) -> Contents:
    """The contents of several paths of one run.

    Raises:
        UnusableInputError: there are two manifests.
    """
    whole = Contents()
    for path, part in parts:
        if part.manifest is not None and whole.manifest is not None:
            raise UnusableInputError(f"{path}: a second run: analyze runs one at a time")
        whole = Contents(
            traces=whole.traces + part.traces,
            logs=whole.logs + part.logs,
            requests=whole.requests + part.requests,
            observed=whole.observed + part.observed,
            answers=whole.answers + part.answers,
            resources=whole.resources + part.resources,
            mtp_accuracy=part.mtp_accuracy or whole.mtp_accuracy,
            manifest=part.manifest or whole.manifest,
            damaged=whole.damaged + part.damaged,
            run_records=whole.run_records + part.run_records,
            log_ranks=whole.log_ranks | part.log_ranks,
            run_files=whole.run_files + part.run_files,
            unread=whole.unread + part.unread,
        )
    return whole


def _read_one(path: Path) -> Contents:
    match read_file(path):
        case ChromeTrace() as trace:
            return Contents(traces=[_on_host_clock(trace)])
        case StraceLog() as log:
            return Contents(logs=[log], log_ranks=_log_ranks([path]))
        case RequestFile() as requests:
            return Contents(requests=[requests])
        case ObservedFile() as observed:
            return Contents(observed=[observed])
        case StatementFile() as answer:
            return Contents(answers=[answer])
        case Manifest() as manifest:
            return Contents(manifest=manifest)


def _read_directory(directory: Path) -> Contents:
    """The files of a run directory that belong to a recording, each record once."""
    files = run_files(directory)
    contents = Contents()
    if files.manifest is not None:
        try:
            contents.manifest = read_manifest(files.manifest)
        except DamagedManifestError as error:
            if files.only_manifest:
                raise
            contents.damaged.append(_damaged(files.manifest, "manifest", error, lost=1))
    contents.run_files = [*files.serving_traces, *files.torch_profiles, *files.fragments, *files.logs]
    _read_serving(files, contents)
    contents.logs = [stream_strace(path, is_log=True) for path in files.rank_logs]
    contents.log_ranks = _log_ranks(files.rank_logs)
    for path in files.logs[len(files.rank_logs) :]:
        contents.logs.append(without_repeats(stream_strace(path, is_log=True), contents.logs))
    if files.requests is not None:
        contents.requests.append(read_requests(open_file(files.requests)))
    contents.answers = [read_answers(open_file(path)) for path in files.answers]
    contents.unread = files.unread
    if files.resources is not None:
        contents.resources, report = read_resources(files.resources)
        contents.run_records.append(report)
    if files.mtp_accuracy is not None:
        contents.mtp_accuracy, report = read_mtp_accuracy(files.mtp_accuracy)
        contents.run_records.append(report)
    return contents


def _read_serving(files: RunFiles, contents: Contents) -> None:
    traces = []
    for path in files.serving_traces:
        try:
            traces.append(_read_serving_trace(path))
        except UnusableInputError as error:
            if not files.fragments:
                raise
            contents.damaged.append(_damaged(path, "chrome_trace", error, lost=0))
    if files.fragments and not any(trace.report.records for trace in traces):
        # Nothing was merged: the fragments hold what the processes wrote.
        traces = [_read_serving_trace(path) for path in files.fragments]
    contents.traces = traces + [_read_torch_profile(path) for path in files.torch_profiles]


def _log_ranks(paths: Sequence[Path]) -> dict[str, int]:
    return {str(path): rank for path in paths if (rank := rank_of_log(path)) is not None}


def _damaged(path: Path, input_format: InputFormat, error: UnusableInputError, *, lost: int) -> LoadReport:
    """The report of a file that the recording has to do without."""
    issue = LoadIssue("malformed", 1, lost, str(error).removeprefix(f"{path}: "))
    return LoadReport(path=str(path), format=input_format, records=1, parsed=0, issues=[issue])


def _read_serving_trace(path: Path) -> ChromeTrace:
    streamed = stream_chrome_trace(path, clock=Clock.HOST)
    if streamed is None:
        raise UnusableInputError(f"{path}: not a trace: no traceEvents")
    return streamed


def _read_torch_profile(path: Path) -> ChromeTrace:
    """A trace of one rank. It counts from a time of its own: only common base times place it."""
    streamed = stream_chrome_trace(path)
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
