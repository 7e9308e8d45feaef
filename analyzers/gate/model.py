"""The records of the gate: samples of runs, the policy that judges them, and the result. One value a run, no unit mixed.

Everything that prints a verdict (terminal, Markdown, JSON, JUnit, annotations, the pytest plugin) reads `GateResult`.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from analyzers.statistics.rank_tests import Interval

Verdict = Literal["PASS", "FAIL", "NOT-COMPARABLE", "NO-DATA", "UNDECIDED"]

EXIT_CODES: dict[Verdict, int] = {"PASS": 0, "FAIL": 1, "NO-DATA": 3, "NOT-COMPARABLE": 5, "UNDECIDED": 5}


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


class MetricPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked of one metric."""

    max_regression: float | None = 0.02
    """Ratio - 1 (in the direction that is worse) from which a significant change fails; None judges no change."""
    limit: float | None = None
    """Absolute bound on the median of the head, in the metric's unit: at most it, or at least it where higher is better."""


class GatePolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is judged, and with which certainty (docs/gating.md)."""

    metrics: dict[str, MetricPolicy]
    stage_runs: int = 10
    """Runs a side in each of the two stages."""
    stage_one_p: float = 0.05
    """Below it, or with a ratio beyond the threshold, stage one asks for stage two."""
    fail_p: float = 0.01
    """Below it, and beyond the threshold, a change fails. Holm-adjusted over the metrics."""
    allow_new: bool = False
    """A metric that the baseline does not have is listed, not judged; else it is not comparable."""
    allow_different: bool = False
    """A difference in configuration or machine is a warning; else it is not comparable."""
    drop_failed: bool = False
    """Failed runs are left out with a warning; else they are no data."""
    judge_others: bool = False
    """Metrics that only a samples file names are judged too, as nobody chose any."""


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
    interval: Interval | None = None
    p_value: float | None = None
    """One-sided, that the head is worse."""
    adjusted_p: float | None = None
    """Holm over the judged metrics."""
    effect: float | None = None
    """Share of pairs in which the head is worse."""
    max_regression: float | None = None
    limit: float | None = None
    minimum_detectable: float | None = None
    """Smallest regression that so many runs with this noise catch with 90 % probability; None where unknown."""
    base_outliers: int | None = None
    """0 also where a spread of 0 disables the rule: `notes` says so. None without usable values."""
    head_outliers: int | None = None
    improved: bool = False
    """Significantly better, with the certainty that a failure needs."""
    head_interval: Interval | None = None
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
