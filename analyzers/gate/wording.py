"""Figures of the gate in words: percentages, amounts with units, p-values."""

from __future__ import annotations

from analyzers.gate.model import MetricResult
from analyzers.text.figures import brief_percent
from analyzers.text.words import counted

percent = brief_percent
count = counted


def amount(value: float, unit: str) -> str:
    """A value with four digits and its unit."""
    text = f"{value:.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"
    return f"{text} {unit}".rstrip()


def p_text(p_value: float) -> str:
    """`p = 0.012`, or `p < 0.0001` for what is smaller."""
    return "p < 0.0001" if p_value < 0.0001 else f"p = {p_value:.2g}"


def change(result: MetricResult) -> str:
    """`tpot is 6.2 % worse (9.95 -> 10.6 ms)`: how the head's metric differs from the base's, and which way that is."""
    if result.ratio is None or result.base_median is None or result.head_median is None:
        return result.name
    moved = percent(abs(result.ratio - 1))
    word = "worse" if (result.ratio < 1) == result.higher_is_better else "better"
    how = "unchanged" if moved == percent(0.0) else f"{moved} {word}"
    return f"{result.name} is {how} ({result.base_median:.4g} -> {amount(result.head_median, result.unit)})"


def label(result: MetricResult) -> str:
    """What a table calls a metric: its title, and its name."""
    return f"{result.title} ({result.name})" if result.title else result.name
