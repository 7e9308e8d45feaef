"""The report model. All times are ns unless a name says otherwise; a figure that cannot be had is null, never 0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from analyzers.charts.series import ChartSeries
from analyzers.clients.requests import RequestFigures
from analyzers.clients.resources import ResourceGrowth
from analyzers.clients.stated import StatedFigures
from analyzers.ranks.failures import RankFailure
from analyzers.ranks.rank_starts import StartSkew
from analyzers.ranks.rounds import LostRun
from analyzers.ranks.skew import RankSkew
from analyzers.readers.load_report import LoadReport
from analyzers.readers.observations.observation import Observation
from analyzers.recording.clocks import ClockAlignment
from analyzers.recording.rank_map import NamedBy, RankDevice
from analyzers.report.finding import Finding as Finding
from analyzers.report.finding import FindingCode as FindingCode
from analyzers.report.finding import Severity as Severity
from analyzers.report.published import PublishedComparison
from analyzers.rundir import ClientFacts, MtpAccuracy, ServerFacts, TracingSetting
from analyzers.statistics.summary import Summary
from analyzers.steps.bubbles import StepTime
from analyzers.steps.faults import LifecycleFault
from analyzers.steps.joins import Join
from analyzers.steps.lifecycle import CrossProcessPair, Edge
from analyzers.steps.pipeline import Pipeline
from analyzers.steps.request_lives import RequestLives
from analyzers.steps.thread_load import LaneFigures

if TYPE_CHECKING:
    from analyzers.text.tables import Table

SCHEMA_VERSION = 1

TimingSource = Literal["submit_to_completion", "blocking_kernel_span"]
Scope = Literal["all", "steady"]


class RunSummary(msgspec.Struct, frozen=True):
    """What the manifest says about the run."""

    status: str
    profile: str
    ranks: int
    depth: int | None
    error: str | None
    expected_output_tokens: int | None = None
    """What the profile asks of the measured batch."""
    faults: list[str] = []
    """Faults that were injected on request."""
    program_cache: dict[str, int] = {}
    restarts: int = 0
    tracing: dict[str, TracingSetting] = {}
    """How it was traced, by upstream's variables, and what said so: a flag, `--set`, the environment or the profile."""
    server: ServerFacts | None = None
    """The server that was measured; None for the embedded engine."""
    client: ClientFacts | None = None
    """How the client that put the load on kept up; None where nobody watched it."""


class RankNaming(msgspec.Struct, frozen=True):
    """Which ranks were found, and what their names were taken from."""

    ranks: list[int]
    bases: list[NamedBy]
    lives: int = 1
    """How many sets of worker processes came and went; every figure is within one of them."""
    devices: list[RankDevice] = []
    """Every rank, the device that it drives, and the processes that it is in each file."""


class StepFigures(msgspec.Struct, frozen=True):
    """Latency of one callable from one timing source; sources are never mixed."""

    callable: str
    source: TimingSource
    span: str
    """The span or spans the figure is made of."""
    scope: Scope
    latency: Summary
    submit: Summary
    """Duration of the submit spans; n = 0 for blocking runs."""
    wait: Summary
    completion: Summary
    """submit.start to the last node.complete of the run, ns; n = 0 without the scheduler's records. A wait ends only when
    somebody looked."""
    paired_by: dict[str, int]
    """How many pairs each identity made."""


class SpanFigures(msgspec.Struct, frozen=True):
    """Durations of all spans of one name."""

    name: str
    source: Literal["serving", "strace"]
    clock: Literal["host", "device", "file"]
    total_ns: int
    duration: Summary
    self_ns: int | None = None
    """The total without the spans directly inside; None for spans that do not nest on a thread."""
    depth: int | None = None
    """How many spans the outermost of them lies in."""


class LifecycleFigures(msgspec.Struct, frozen=True):
    """Pairs, faults, and what the edges of the window cut."""

    pairs: int
    failed: int
    """Pairs of dispatches that ended with an error: in no latency."""
    faults: list[LifecycleFault]
    edges: list[Edge]
    cross_process: list[CrossProcessPair]
    declared_depth: int | None


class RunReport(msgspec.Struct, frozen=True):
    """One of several runs, measured by itself."""

    name: str
    """Its directory, or its file."""
    report: Report


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that was measured in one recording, or in several runs, each by itself."""

    schema_version: int
    inputs: list[LoadReport]
    filters: list[str]
    """What of the inputs the figures cover; [] for all of it."""
    run: RunSummary | None
    findings: list[Finding]
    records: int
    parsed: int
    lost: int
    """Records that were found but could not be read, and runs without any record."""
    spans: int
    host_window_ns: tuple[int, int] | None
    """[first start, last end) on CLOCK_MONOTONIC."""
    ranks: RankNaming
    lost_runs: list[LostRun]
    """Runs that a rank did and no record tells of."""
    joins: list[Join]
    """What joined rounds to dispatches by their times, or why nothing did."""
    failures: list[RankFailure]
    """Ranks that died, hung or failed."""
    lifecycle: LifecycleFigures
    steps: list[StepFigures]
    pipelines: list[Pipeline]
    step_time: list[StepTime]
    """Where the time between two published steps went."""
    skew: list[RankSkew]
    clocks: ClockAlignment
    """How the times of several ranks were made comparable, and how well."""
    rank_starts: list[StartSkew]
    """Start skew by name over traces of one rank each; empty where their clocks are not aligned."""
    lanes: list[LaneFigures]
    """Threads of the serving trace, and what of their spans overlaps."""
    observations: list[Observation]
    """Figures of small files: step records, counters, samples, event logs."""
    requests: list[RequestFigures]
    request_lives: RequestLives | None
    """The measured requests on their way through the engine; None where nothing is recorded of it."""
    resources: list[ResourceGrowth]
    """Empty for a run too short to tell growth from filling."""
    mtp_accuracy: MtpAccuracy | None
    span_names: list[SpanFigures]
    series: ChartSeries
    """What charts draw."""
    stated: StatedFigures | None = None
    """What the server and its files state of the requests; null, and left out, where a client measured some."""
    published: PublishedComparison | None = None
    """What was published of the run's workload, beside what it measured; null, and left out, where nothing was."""
    runs: list[RunReport] = []
    """Where the inputs are of several runs: each of them, with all figures of its own. [], and left out, for one run."""

    @property
    def parts(self) -> list[Report]:
        """The report of every run: this one, where there is one run."""
        return [run.report for run in self.runs] or [self]

    def tables(self, *, full: bool = True) -> list[Table]:
        """The figures as tables, which every rendering draws; `full=False` leaves out what repeats or completes others.

        Of several runs, those of each, under its name.
        """
        from analyzers.report.tables import report_tables

        return report_tables(self, full=full)

    @property
    def has_data(self) -> bool:
        """Whether there is anything to measure."""
        return (
            self.spans > 0
            or any(item.n for item in self.observations)
            or any(figures.requests for figures in self.requests)
            or self.stated is not None
            or any(run.report.has_data for run in self.runs)
        )
