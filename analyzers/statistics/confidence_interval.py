"""An interval with its confidence: what records of results hold, without what computes it."""

from __future__ import annotations

import msgspec


class ConfidenceInterval(msgspec.Struct, frozen=True):
    """An interval, and the confidence that it reaches; None on a side that the sample is too small to bound."""

    low: float | None
    high: float | None
    confidence: float
