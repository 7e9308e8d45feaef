"""The records of a comparison: side A is the base, B what is compared with it. Changes are B - A, ratios B / A.

The sample is the run: one value a run. Everything that prints a comparison draws `Comparison`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from analyzers.gate.model import Difference
from analyzers.statistics.confidence_interval import ConfidenceInterval
from analyzers.statistics.summary import Summary
from analyzers.steps.bubbles import PublishedBy, StepPhase

SCHEMA_VERSION = 1

SideName = Literal["A", "B"]


class SideDescription(msgspec.Struct, frozen=True):
    """The runs of one side."""

    runs: list[str]
    """The path of each run."""
    machine: str | None
    """None for a machine that nobody named, or that differs from run to run."""
    revision: str | None
    """The source revision of all of its runs; None where they do not name one, or several."""
    pipeline: str | None
    """What the pipeline of its first run did, in words; None where nothing tells."""
    warnings: list[str]
    """What makes its figures doubtful: runs that did not complete, lost records."""


class MetricChange(msgspec.Struct, frozen=True):
    """One metric that both sides have."""

    name: str
    unit: str
    higher_is_better: bool
    a: list[float]
    """One value for each run that has the figure."""
    b: list[float]
    a_median: float
    b_median: float
    ratio: float | None
    """Hodges-Lehmann; None where a value is not positive."""
    interval: ConfidenceInterval | None
    """Of the ratio; None with one run a side. Its ends are None where so few runs bound nothing."""
    p_value: float | None
    """Two-sided Mann-Whitney; None with one run a side."""
    effect: float | None
    """Share of pairs of runs in which B is larger, ties as a half; None with one run a side."""


class Change(msgspec.Struct, frozen=True):
    """A time in ns on both sides: means over the runs of each run's mean, so that changes of parts add up."""

    a: float
    b: float
    change: float
    ratio: float | None
    """None where A's time is 0."""
    p_value: float | None
    """Two-sided Mann-Whitney over the runs; None with one run a side."""


class PhaseChange(msgspec.Struct, frozen=True):
    """One phase of a step."""

    phase: StepPhase
    time: Change


class StepTimeChange(msgspec.Struct, frozen=True):
    """Where the change of the time between two published steps lies; the phases' changes add up to `wall`'s."""

    callable: str
    scope: Literal["all", "steady"]
    published_by: PublishedBy
    a_runs: int
    """How many runs the figures of A are of."""
    b_runs: int
    a_steps: int
    b_steps: int
    wall: Change
    phases: list[PhaseChange]
    folded: dict[StepPhase, StepPhase]
    """Phases that one side has no records of -> the phase that their time is in on both sides."""
    statement: str
    """One sentence for people: which phases moved."""


class RankChange(msgspec.Struct, frozen=True):
    """The runs of one rank; None for what a side has no records of."""

    rank: int
    runner_run: Change | None
    root: Change | None


RankFigureName = Literal[
    "runner-start skew",
    "runner-end skew",
    "step-end skew",
    "critical rank",
    "bind",
    "runner_run",
    "runner-to-validate gap",
    "validate",
    "host excess",
    "device bubble",
]


class RankFigure(msgspec.Struct, frozen=True):
    """How far the ranks are apart, or what the runs of all of them consist of (docs/metrics.md, Ranks)."""

    figure: RankFigureName
    time: Change


class RankComparison(msgspec.Struct, frozen=True):
    """One callable rank by rank."""

    callable: str
    scope: Literal["all", "steady"]
    a_runs: int
    b_runs: int
    ranks: list[RankChange]
    missing_ranks: dict[SideName, list[int]]
    """Ranks that only the other side has."""
    moved: list[int]
    """Ranks whose `runner_run` changed unlike the others'."""
    figures: list[RankFigure]
    statement: str
    """One sentence for people: which ranks moved."""


class SpanChange(msgspec.Struct, frozen=True):
    """All spans of one name; counts and times of a run, as means over the runs."""

    name: str
    source: Literal["serving", "strace"]
    a_spans: float
    b_spans: float
    total: Change
    mean: Change


class DistributionPair(msgspec.Struct, frozen=True):
    """Steps or requests within one run a side, in ns: a description; they are no sample of runs."""

    figure: str
    a: Summary
    b: Summary


class Comparison(msgspec.Struct, frozen=True):
    """What changed from A to B, and where."""

    schema_version: int
    a: SideDescription
    b: SideDescription
    differences: list[Difference]
    """What of the runs' settings differs; without `--allow-different` there is none."""
    not_checked: list[str]
    """Settings that a side does not name, so that nobody knows whether they are equal."""
    statement: str
    """One sentence for people: what a token and a step cost now."""
    metrics: list[MetricChange]
    only_a: list[str]
    """Metrics that B does not have."""
    only_b: list[str]
    step_time: list[StepTimeChange]
    ranks: list[RankComparison]
    span_names: list[SpanChange]
    """Spans of the names that both sides have, the largest change of the total first."""
    distributions: list[DistributionPair]
    """Only with one run a side."""
    certainty: list[str]
    """What so many runs can tell, and what they cannot."""
    notes: list[str]
    """Why something is missing."""
