"""The pieces that every human rendering is made of: tables of text, and figures as text."""

from __future__ import annotations

from dataclasses import dataclass, field

UNAVAILABLE = "unavailable"
MILLISECOND = 1e6


@dataclass(frozen=True)
class Table:
    """One table; the first column is text, the others numbers. `notes` stand below it."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)


def number(value: float | None, unit: float = MILLISECOND) -> str:
    """A figure in `unit` with three decimals; `unavailable` when there is none."""
    return UNAVAILABLE if value is None else f"{value / unit:.3f}"


def percent(value: float | None) -> str:
    """A share as a percentage with one decimal; `unavailable` when there is none."""
    return UNAVAILABLE if value is None else f"{100 * value:.1f} %"


def device_number(device: int | None) -> str:
    """The number of a device; `unavailable` where nothing names it."""
    return UNAVAILABLE if device is None else str(device)
