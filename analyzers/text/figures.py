"""Figures as text: times, shares, and what is not there."""

from __future__ import annotations

UNAVAILABLE = "unavailable"
MILLISECOND = 1e6


def number(value: float | None, unit: float = MILLISECOND) -> str:
    """A figure in `unit` with three decimals; `unavailable` when there is none."""
    return UNAVAILABLE if value is None else f"{value / unit:.3f}"


def percent(share: float | None, digits: int = 1, *, signed: bool = False) -> str:
    """A share as a percentage with so many decimals, `12.3 %` or `+0.42 %`; `unavailable` when there is none."""
    return UNAVAILABLE if share is None else f"{100 * share:{'+' if signed else ''}.{digits}f} %"


def brief_percent(share: float, *, signed: bool = False) -> str:
    """A share as a percentage, with two decimals at most: `2 %`, `+6.18 %`, `12.3 %`."""
    value = 100 * share
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    text = f"{round(value, digits) + 0.0:.{digits}f}"
    if digits:
        text = text.rstrip("0").rstrip(".")
    return f"{'+' if signed and float(text) > 0 else ''}{text} %"
