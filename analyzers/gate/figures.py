"""The figures of each metric of two sides, whatever they mean: medians, the rank test, what its runs exclude."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from analyzers.gate.metric_pairs import Pair, first_bad, values_of
from analyzers.gate.model import GatePolicy, MetricPolicy, MetricResult, Verdict
from analyzers.gate.policy import excluded_regression
from analyzers.gate.power import minimum_detectable
from analyzers.gate.stages import Stage
from analyzers.statistics.rank_tests import (
    hodges_lehmann_ratio,
    holm,
    mann_whitney,
    median_at_most,
    median_interval,
    ratio_at_most,
    ratio_interval,
)
from analyzers.statistics.robust import outliers

_RUNS_WITH_OUTLIERS = 3
"""Among fewer runs none is an outlier."""


@dataclass(frozen=True)
class RankFigures:
    """The rank test of one pair, in the direction that is worse."""

    ratio: float
    """head / base."""
    p_value: float
    better_p: float
    effect: float
    excludes: float | None
    """At 95 %, over all looks, the head is worse by this share at most; None where so few runs bound nothing."""


@dataclass(frozen=True)
class PairFigures:
    """The values of one metric, and what follows from them."""

    pair: Pair
    base: list[float]
    head: list[float]
    test: RankFigures | None
    """None where the sides must not be compared, or hold values that cannot be."""
    holm_p: float | None
    """Adjusted over the metrics; None for one whose change is not judged."""
    tests: int
    """How many changes are judged together."""

    @property
    def usable_base(self) -> bool:
        """Whether the base holds positive numbers, and nothing else."""
        return bool(self.base) and first_bad(self.base) is None

    @property
    def usable_head(self) -> bool:
        """The same of the head."""
        return bool(self.head) and first_bad(self.head) is None


def measure_pairs(pairs: Sequence[Pair], stage: Stage, *, comparable: bool) -> list[PairFigures]:
    """The figures of every pair; the p-values are adjusted together. Nothing is tested unless `comparable`."""
    # A ratio of what cannot be compared would be taken for one.
    tests = {pair.key: test for pair in pairs if comparable and (test := _test(pair, stage)) is not None}
    counted = [
        pair.key
        for pair in pairs
        if pair.key in tests and pair.asked is not None and pair.asked.max_regression is not None
    ]
    adjusted = dict(zip(counted, holm([tests[key].p_value for key in counted]), strict=True))
    return [
        PairFigures(
            pair,
            values_of(pair.base),
            values_of(pair.head),
            tests.get(pair.key),
            adjusted.get(pair.key),
            len(counted),
        )
        for pair in pairs
    ]


def worse_by(ratio: float, *, higher_is_better: bool) -> float:
    """The share by which a ratio head / base is worse; below 0 where it is better."""
    return (1 / ratio if higher_is_better else ratio) - 1


def looks_at_failure(stage: Stage) -> int:
    """By how much p-values of this look are multiplied: 1 where no regression can be said yet."""
    return stage.fail_looks if stage.may_fail else 1


def result_of(
    figures: PairFigures,
    policy: GatePolicy,
    stage: Stage,
    verdict: Verdict,
    reason: str,
    runs_needed: int | None = None,
) -> MetricResult:
    """The record of a metric: its figures, and the verdict with its reason."""
    pair, test, base, head = figures.pair, figures.test, figures.base, figures.head
    meaning = pair.meaning
    asked = pair.asked or MetricPolicy(max_regression=None)
    base_outliers = outliers(base) if figures.usable_base else []
    head_outliers = outliers(head) if figures.usable_head else []
    detectable = None
    if test is not None and figures.holm_p is not None and asked.max_regression is not None:
        # Holm's most severe step: with it the metric is caught whatever the others do.
        p_value = policy.fail_p / (figures.tests * looks_at_failure(stage))
        detectable = minimum_detectable(head, base, asked.max_regression, p_value)
    has_limit = asked.limit is not None and figures.usable_head
    return MetricResult(
        name=pair.name,
        unit=meaning.unit,
        higher_is_better=meaning.higher_is_better,
        verdict=verdict,
        reason=reason,
        base_runs=len(base),
        head_runs=len(head),
        base_median=median(base) if figures.usable_base else None,
        head_median=median(head) if figures.usable_head else None,
        ratio=test.ratio if test is not None else None,
        interval=ratio_interval(head, base) if test is not None else None,
        p_value=test.p_value if test is not None else None,
        adjusted_p=adjusted_p(figures, stage),
        effect=test.effect if test is not None else None,
        max_regression=asked.max_regression,
        excluded=excluded_regression(policy, asked) if asked.max_regression is not None else None,
        excludes=test.excludes if test is not None else None,
        runs_needed=runs_needed,
        limit=asked.limit,
        head_bound=median_bound(head, stage, higher_is_better=meaning.higher_is_better)
        if has_limit
        else None,
        minimum_detectable=detectable,
        base_outliers=len(base_outliers or ()) if figures.usable_base else None,
        head_outliers=len(head_outliers or ()) if figures.usable_head else None,
        improved=test is not None and test.better_p < policy.fail_p,
        head_interval=median_interval(head) if has_limit else None,
        title=meaning.title,
        notes=_notes(
            base_outliers is None and len(base) >= _RUNS_WITH_OUTLIERS,
            head_outliers is None and len(head) >= _RUNS_WITH_OUTLIERS,
        ),
        judged=pair.asked is not None,
    )


def adjusted_p(figures: PairFigures, stage: Stage) -> float | None:
    """The p-value that is compared with `fail_p`: adjusted over the metrics and over the looks."""
    return None if figures.holm_p is None else min(1.0, figures.holm_p * looks_at_failure(stage))


def median_bound(values: Sequence[float], stage: Stage, *, higher_is_better: bool) -> float | None:
    """At 95 %, the median is at most this, or at least this where higher is better; None for too few values."""
    if not higher_is_better:
        return median_at_most(values, stage.pass_error)
    bound = median_at_most([-value for value in values], stage.pass_error)
    return None if bound is None else -bound


def _test(pair: Pair, stage: Stage) -> RankFigures | None:
    """The test of a pair whose values allow one."""
    base, head = values_of(pair.base), values_of(pair.head)
    if not base or not head or first_bad(pair.base or []) or first_bad(pair.head or []):
        return None
    worse, better = (base, head) if pair.meaning.higher_is_better else (head, base)
    test = mann_whitney(worse, better)
    bound = ratio_at_most(worse, better, stage.pass_error)
    return RankFigures(
        ratio=hodges_lehmann_ratio(head, base),
        p_value=test.p_value,
        better_p=mann_whitney(better, worse).p_value,
        effect=test.u / (len(base) * len(head)),
        excludes=None if bound is None else bound - 1,
    )


def _notes(base_constant: bool, head_constant: bool) -> list[str]:
    """What to know about the outlier counts of sides in which most values are equal."""
    constant = [name for name, is_it in (("baseline", base_constant), ("candidate", head_constant)) if is_it]
    if not constant:
        return []
    return [f"outliers = 0 in the {' and the '.join(constant)}: a zero MAD disables the outlier rule"]
