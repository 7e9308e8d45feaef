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
from analyzers.readers.requests import RequestTiming
from analyzers.readers.statements import Statements
from analyzers.readers.strace import StraceLog
from analyzers.recording.clocks import ONE_HOST_CLOCK, AlignedClocks, ClockAlignment, align_clocks, shifted
from analyzers.recording.contents import Contents, merged, read_path
from analyzers.recording.devices import log_devices
from analyzers.recording.log_clocks import process_clocks
from analyzers.recording.rank_files import join_rank_files
from analyzers.recording.rank_naming import RankAssignment, assign_ranks, rank_column
from analyzers.recording.runs import (
    Claims,
    Split,
    home_of,
    log_claims,
    run_claim,
    split_into_runs,
    trace_claims,
)
from analyzers.recording.trace_devices import with_devices
from analyzers.rundir import Manifest, MtpAccuracy, ResourceSample
from analyzers.table.spans import SpanTable, concatenate

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
    missing_ranks: list[int] = field(default_factory=list)
    """Ranks that the files speak of and none is of."""
    statements: list[Statements] = field(default_factory=list)
    """What files and logs state of the requests."""
    unread: list[Path] = field(default_factory=list)
    """Files of a directory that were not read."""

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
                "common: name the files of one run (`dsv4bench analyze` takes several, and measures each by itself)"
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
    homes = [home_of(path) for path in given]
    split = Split([[0]], "")
    if len(given) > 1:
        # The steps of the only trace are nobody else's: they need not be looked at one by one.
        several_traces = sum(bool(part.traces) for part in contents) > 1
        claims = [
            _claims(part, home, options, several_traces=several_traces)
            for part, home in zip(contents, homes, strict=True)
        ]
        split = split_into_runs([home.resolve() for home in homes], claims)
    recordings = []
    for indices in split.runs:
        own = [given[index] for index in indices]
        whole = merged([(given[index], contents[index]) for index in indices])
        name = str(own[0] if len(own) == 1 else homes[indices[0]])
        recordings.append(_recording(whole, own, options, name=name))
    return Runs(recordings, split.evidence)


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


def _recording(contents: Contents, paths: Sequence[Path], options: LoadOptions, *, name: str) -> Recording:
    """Put the contents of a run together and name the ranks."""
    given_ranks = {
        trace.report.path: options.ranks[trace.report.path]
        for trace in contents.traces
        if trace.report.path in options.ranks
    }
    files = join_rank_files(contents.traces, given_ranks, allow_missing=options.allow_missing)
    manifest = contents.manifest
    aligned = align_clocks(process_clocks(contents.logs, files.traces, manifest, contents.run_files))
    traces = [with_devices(_on_common_clock(trace, aligned)) for trace in files.traces]
    logs = [_on_common_clock(log, aligned) for log in contents.logs]
    ranks = assign_ranks(logs, manifest_ranks=contents.manifest_ranks, file_ranks=contents.log_ranks)
    ranks = dataclasses.replace(ranks, devices=log_devices(logs, ranks.ranks, manifest))
    spans = [trace.spans for trace in traces] + [rank_column(log.spans, ranks) for log in logs]
    return Recording(
        name=name,
        paths=tuple(str(path) for path in paths),
        spans=concatenate(spans),
        invalid=concatenate([trace.invalid for trace in traces] + [log.invalid for log in logs]),
        requests=[timing for requests in contents.requests for timing in requests.timings],
        requests_have_phases=any(requests.has_phases for requests in contents.requests)
        or manifest is not None,
        reports=contents.reports,
        ranks=ranks,
        ready_devices={pid: device for log in logs for pid, device in log.ready_devices.items()},
        manifest=manifest,
        resources=contents.resources,
        mtp_accuracy=contents.mtp_accuracy,
        observations=contents.observations,
        clocks=aligned.alignment if logs else files.clocks,
        file_clocks=files.clocks,
        given_ranks=given_ranks,
        missing_ranks=files.missing,
        statements=contents.statements,
        unread=contents.unread,
    )


def _on_common_clock(read: Input, clocks: AlignedClocks) -> Input:
    return dataclasses.replace(read, spans=shifted(read.spans, clocks), invalid=shifted(read.invalid, clocks))
