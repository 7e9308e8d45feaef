"""Figures of the gate in words: percentages, amounts with units, p-values."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.gate.metrics import Metric
from analyzers.gate.model import MetricResult
from analyzers.statistics.rank_tests import median_interval
from analyzers.text.figures import brief_percent
from analyzers.text.words import counted

_TIMES = ("ns", "us", "ms", "s")
"""Units of what takes longer, not just becomes worse."""

percent = brief_percent
count = counted


def amount(value: float, unit: str) -> str:
    """A value with four digits and its unit."""
    text = f"{value:.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"
    return f"{text} {unit}".rstrip()


def p_text(p_value: float) -> str:
    """`p = 0.012`, or `p < 0.0001` for what is smaller."""
    return "p < 0.0001" if p_value < 0.0001 else f"p = {p_value:.2g}"


def change(meaning: Metric, ratio: float, base_median: float, head_median: float) -> str:
    """`tpot is 6.2 % worse (9.95 -> 10.6 ms)`: how the head's metric differs from the base's, and which way that is."""
    moved = percent(abs(ratio - 1))
    word = "worse" if (ratio < 1) == meaning.higher_is_better else "better"
    how = "unchanged" if moved == percent(0.0) else f"{moved} {word}"
    return f"{meaning.name} is {how} ({base_median:.4g} -> {amount(head_median, meaning.unit)})"


def at_most(excludes: float, meaning: Metric) -> str:
    """`at most +1.3 % slower`, or `at least 4 % faster`: what a metric's runs say of its true change."""
    worse, better = ("slower", "faster") if meaning.unit in _TIMES else ("worse", "better")
    if excludes < 0 and percent(excludes) != percent(0.0):
        return f"at least {percent(-excludes)} {better}"
    return f"at most {percent(max(0.0, excludes), signed=True)} {worse}"


def interval_ends(head: Sequence[float]) -> str:
    """` (95 % interval 10.1 to 10.4)`, of the median of what the values were drawn from."""
    interval = median_interval(head)
    if interval.low is None or interval.high is None:
        return f" ({count(len(head), 'run')}: too few for an interval)"
    return f" ({percent(interval.confidence)} interval {interval.low:.4g} to {interval.high:.4g})"


def label(result: MetricResult) -> str:
    """What a table calls a metric: its title, and its name."""
    return f"{result.title} ({result.name})" if result.title else result.name
