"""Figures of the gate in words: percentages, amounts with units, p-values."""

from __future__ import annotations

from analyzers.gate.model import MetricResult


def percent(share: float, *, signed: bool = False) -> str:
    """A share as a percentage, with two decimals at most: `2 %`, `+6.18 %`, `12.3 %`."""
    value = 100 * share
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    text = f"{round(value, digits) + 0.0:.{digits}f}"
    if digits:
        text = text.rstrip("0").rstrip(".")
    return f"{'+' if signed and float(text) > 0 else ''}{text} %"


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


def count(number: int, what: str) -> str:
    """`1 run`, `3 runs`."""
    return f"{number} {what}{'s' * (number != 1)}"


def label(result: MetricResult) -> str:
    """What a table calls a metric: its title, and its name."""
    return f"{result.title} ({result.name})" if result.title else result.name
