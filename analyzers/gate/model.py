"""The records of the gate: samples of runs, the policy that judges them, and the result. One value a run, no unit mixed.

Everything that prints a verdict (terminal, Markdown, JSON, JUnit, annotations, the pytest plugin) reads `GateResult`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from analyzers.statistics.confidence_interval import ConfidenceInterval

Verdict = Literal["PASS", "FAIL", "NOT-COMPARABLE", "INVALID", "NO-DATA", "UNDECIDED"]

EXIT_CODES: dict[Verdict, int] = {
    "PASS": 0,
    "FAIL": 1,
    "NO-DATA": 3,
    "INVALID": 4,
    "NOT-COMPARABLE": 5,
    "UNDECIDED": 5,
}

WORST_FIRST: tuple[Verdict, ...] = ("FAIL", "NOT-COMPARABLE", "INVALID", "NO-DATA", "UNDECIDED", "PASS")


class Samples(msgspec.Struct, frozen=True):
    """One side of a comparison: for each metric one value a run, in the order of the runs.

    Also the form of a samples file (docs/gating.md): `{"config": {...}, "machine": "...", "metrics": {"tpot_ms":
    [...]}}`. `config` and `machine` are compared key by key; None is a machine that nobody named.
    """

    metrics: dict[str, list[float | None]]
    """None for a run that has no such figure."""
    config: dict[str, Any] = {}
    machine: str | None = None
    runs: list[str] = []
    """Where each value is from: a run directory or a label; [] for a plain samples file."""
    warnings: list[str] = []
    """What moved while the runs were made: load, frequency, temperature, a dirty tree."""
    source: str = ""
    """The file, directory or command, for people."""
    failed: list[str] = []
    """Runs that did not end well, each with its reason: their values count only where the policy says so."""
    revision: str | None = None
    """Source revision of the runs, where all are of one."""
    saved: str | None = None
    """When a baseline was saved, ISO 8601 in UTC."""
    busy: bool = False
    """Whether others are known to have used the machine while the runs were made."""
    invalid: list[str] = []
    """Runs that hold requests which cannot be, each with how many: they have no values."""
    digests: list[str] = []
    """What each run shares with its copies alone, in the order of `runs`; [] where nobody knows."""


Share = Annotated[float, msgspec.Meta(ge=0, description="a share of 0 or more, as 0.02")]
Amount = Annotated[float, msgspec.Meta(gt=0, description="a number above 0 in the metric's unit")]
Probability = Annotated[float, msgspec.Meta(gt=0, lt=1, description="a probability between 0 and 1")]
Runs = Annotated[int, msgspec.Meta(ge=1, description="a whole number of at least 1")]


class MetricPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked of one metric: `[gate.metrics.<name>]`."""

    max_regression: Share | None = 0.02
    """Ratio - 1 (in the direction that is worse) from which a significant change fails; None judges no change."""
    limit: Amount | None = None
    """Absolute bound on the median of the head, in the metric's unit: at most it, or at least it where higher is better."""
    excluded: Share | None = None
    """The regression that a PASS excludes; None for that of the whole gate."""
    better: Annotated[Literal["more", "less"], msgspec.Meta(description='"more" or "less"')] | None = None
    """Which direction is better, for a metric whose name does not tell."""


class GatePolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is judged, and with which certainty: the keys of `[gate]` in a profile and elsewhere (docs/gating.md).

    The descriptions of the types are the words with which a wrong value is refused (`analyzers.gate.policy`).
    """

    metrics: (
        Annotated[
            dict[str, MetricPolicy],
            msgspec.Meta(description="a table of metrics, as {tpot = {max_regression = 0.02, limit = 60.0}}"),
        ]
        | None
    ) = None
    """What is judged; None: tpot may regress by 2 %, and what only a samples file names may as well."""
    excluded: Share = 0.1
    """The regression that a PASS excludes at 95 %, but never less than what a metric is allowed."""
    stage_runs: Runs = 10
    """Runs a side in each stage."""
    max_runs: Runs | None = None
    """Runs a side at most; None for four stages."""
    stage_one_p: Probability = 0.05
    """Below it, or with a ratio beyond the threshold, stage one asks for stage two."""
    fail_p: Probability = 0.01
    """Below it, and beyond the threshold, a change fails. Holm-adjusted over the metrics, and over the stages."""
    judge_others: bool | None = None
    """Whether metrics that only a samples file names are judged too; None: where no metric is named."""


class Leniency(msgspec.Struct, frozen=True):
    """What one comparison may overlook, with a warning: said on the command line, never in a file."""

    allow_new: bool = False
    """A metric that the baseline does not have is listed, not judged; else it is not comparable."""
    allow_different: bool = False
    """A difference in configuration or machine is a warning; else it is not comparable."""
    drop_failed: bool = False
    """Failed runs are left out with a warning; else they are no data."""


class MetricResult(msgspec.Struct, frozen=True):
    """One metric: both medians, the change, and what it means. Ratios are head / base as measured."""

    name: str
    unit: str
    higher_is_better: bool
    verdict: Verdict
    reason: str
    """One sentence for people: what was found, against which threshold."""
    base_runs: int
    head_runs: int
    base_median: float | None = None
    head_median: float | None = None
    ratio: float | None = None
    """Hodges-Lehmann."""
    interval: ConfidenceInterval | None = None
    p_value: float | None = None
    """One-sided, that the head is worse."""
    adjusted_p: float | None = None
    """Of all looks together: Holm over the judged metrics, times the stages in which a regression may fail."""
    effect: float | None = None
    """Share of pairs in which the head is worse."""
    max_regression: float | None = None
    excluded: float | None = None
    """The regression that a PASS must exclude."""
    excludes: float | None = None
    """The regression that these runs exclude: at 95 %, the head is worse by this share at most; below 0, better by at
    least as much. None where the runs are too few to exclude any."""
    runs_needed: int | None = None
    """Of an UNDECIDED metric: about so many runs a side exclude `excluded` at this noise. None where unknown."""
    limit: float | None = None
    head_bound: float | None = None
    """At 95 %, the median of the head is at most this (at least, where higher is better), in the metric's unit, for an
    absolute limit. None where the runs are too few."""
    minimum_detectable: float | None = None
    """Smallest regression that so many runs with this noise catch with 90 % probability; None where unknown."""
    base_outliers: int | None = None
    """0 also where a spread of 0 disables the rule: `notes` says so. None without usable values."""
    head_outliers: int | None = None
    improved: bool = False
    """Significantly better, with the certainty that a failure needs."""
    head_interval: ConfidenceInterval | None = None
    """Of the head's median, in the metric's unit, for an absolute limit."""
    title: str = ""
    """What the name means, for people."""
    notes: list[str] = []
    judged: bool = True
    """False for a metric that is shown beside the judged ones only."""


class Difference(msgspec.Struct, frozen=True):
    """One thing in which the two sides differ."""

    key: str
    base: str
    head: str


class GateResult(msgspec.Struct, frozen=True):
    """The verdict, and all that supports it."""

    schema_version: int
    verdict: Verdict
    headline: str
    """One sentence for people: the verdict and its cause."""
    base: str
    head: str
    method: str
    """How the runs were made and judged: interleaved or stored, stages, test."""
    metrics: list[MetricResult]
    """The judged ones first."""
    causes: list[str] = []
    """Which factor moved: `step time`, `acceptance length`, ...; [] where none did or none is known."""
    differences: list[Difference] = []
    warnings: list[str] = []
    new_metrics: list[str] = []
    base_machine: str | None = None
    head_machine: str | None = None

    @property
    def exit_code(self) -> int:
        """The exit code of the command (docs/gating.md): only PASS is 0."""
        return EXIT_CODES[self.verdict]


SCHEMA_VERSION = 1
