"""One figure of two sides as a change: values of runs in, ratio, interval and p-value out."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.compare.model import Change, MetricChange
from analyzers.statistics.rank_tests import (
    common_language_effect,
    hodges_lehmann_ratio,
    ratio_interval,
    two_sided_p,
)
from analyzers.statistics.summary import percentile
from analyzers.text.figures import percent

ALIKE = 0.01
"""Changes below this share are called none in words; the figures stand beside them."""
SIGNIFICANT = 0.05
"""p-value from which on a change is not told from noise, in words."""


def metric_change(
    name: str, unit: str, a: Sequence[float], b: Sequence[float], *, higher_is_better: bool
) -> MetricChange:
    """The change of one metric from the runs `a` to the runs `b`, both of at least one finite value."""
    positive = min(*a, *b) > 0
    tested = is_tested(a, b)
    return MetricChange(
        name=name,
        unit=unit,
        higher_is_better=higher_is_better,
        a=list(a),
        b=list(b),
        a_median=percentile(a, 50),
        b_median=percentile(b, 50),
        ratio=hodges_lehmann_ratio(b, a) if positive else None,
        interval=ratio_interval(b, a) if positive and tested else None,
        p_value=two_sided_p(a, b) if tested else None,
        effect=common_language_effect(b, a) if tested else None,
    )


def time_change(a: Sequence[float], b: Sequence[float]) -> Change:
    """The change of the mean over runs, so that changes of parts add up to that of the whole."""
    before, after = sum(a) / len(a), sum(b) / len(b)
    return Change(
        a=before,
        b=after,
        change=after - before,
        ratio=after / before if before > 0 else None,
        p_value=two_sided_p(a, b) if is_tested(a, b) else None,
    )


def is_tested(a: Sequence[float], b: Sequence[float]) -> bool:
    """Whether there is a sample of runs on both sides: one run a side is no sample, whatever it holds."""
    return len(a) > 1 and len(b) > 1


def in_percent(ratio: float) -> str:
    """A ratio as a change: `+10.0 %`."""
    text = percent(ratio - 1, signed=True)
    return "+0.0 %" if text == "-0.0 %" else text
