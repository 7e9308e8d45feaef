"""Figures of the gate in words: percentages, amounts with units, p-values."""

from __future__ import annotations

from analyzers.gate.model import MetricResult


def percent(share: float, *, signed: bool = False) -> str:
    """A share as a percentage of up to three digits: `2 %`, `+6.18 %`."""
    value = 100 * share
    text = f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 0.005 else "0"
    return f"{'+' if signed and value > 0 and text != '0' else ''}{text} %"


def amount(value: float, unit: str) -> str:
    """A value with four digits and its unit."""
    text = f"{value:.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"
    return f"{text} {unit}".rstrip()


def p_text(p_value: float) -> str:
    """`p = 0.012`, or `p < 0.0001` for what is smaller."""
    return "p < 0.0001" if p_value < 0.0001 else f"p = {p_value:.2g}"


def change(result: MetricResult) -> str:
    """`tpot +6.2 % (9.95 -> 10.6 ms)`: how the head's metric differs from the base's, and which way that is."""
    if result.ratio is None or result.base_median is None or result.head_median is None:
        return result.name
    moved = result.ratio - 1
    shown = percent(moved, signed=True)
    word = ""
    if shown != percent(0.0):
        word = " worse" if (moved < 0) == result.higher_is_better else " better"
    ends = f"{result.base_median:.4g} -> {amount(result.head_median, result.unit)}"
    return f"{result.name} {shown}{word} ({ends})"
