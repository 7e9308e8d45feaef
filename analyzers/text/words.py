"""Figures and lists in sentences."""

from __future__ import annotations

from collections.abc import Sequence

_NAMES_SHOWN = 8


def milliseconds(nanoseconds: float) -> str:
    """`1.234 ms`."""
    return f"{nanoseconds / 1e6:.3f} ms"


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 step`, `2 steps`; `plural` where an s is not enough."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def listed(parts: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def some_of(names: Sequence[str]) -> str:
    """`a, b, c`, and `, ...` behind the first few where there are many."""
    return ", ".join(names[:_NAMES_SHOWN]) + (", ..." if len(names) > _NAMES_SHOWN else "")
