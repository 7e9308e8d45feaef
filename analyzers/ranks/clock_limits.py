"""Figures across ranks that the clocks do not support: withheld, or said to be uncalibrated.

A difference between two ranks' times means nothing within the uncertainty of their clocks.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from analyzers.ranks.rank_starts import StartSkew
from analyzers.ranks.skew import Lateness, RankSkew
from analyzers.recording.clocks import ClockAlignment, duration_text
from analyzers.statistics.summary import Summary

Calibration = Literal["calibrated", "uncalibrated", "withheld"]

_NOTHING = Summary(n=0)


def calibration_of(skew: Summary, clocks: ClockAlignment) -> Calibration:
    """What a skew is worth: the clocks are not aligned, or are so worse than its median; or nobody knows how well."""
    if not clocks.comparable:
        return "withheld"
    if clocks.uncertainty_ns is None:
        return "uncalibrated"
    if clocks.uncertainty_ns and skew.p50 is not None and clocks.uncertainty_ns > skew.p50:
        return "withheld"
    return "calibrated"


def calibrate_skew(figures: RankSkew, clocks: ClockAlignment) -> RankSkew:
    """`figures` without the skews that the clocks do not support, and without what follows from them."""
    start, end, step_end = (
        calibration_of(summary, clocks)
        for summary in (figures.runner_start_skew, figures.runner_end_skew, figures.step_end_skew)
    )
    if start == "withheld":
        figures = msgspec.structs.replace(
            figures,
            runner_start_skew=_NOTHING,
            rounds_over_late_start_skew=0,
            late_starts=[],
            last_to_start=_without_counts(figures.last_to_start),
        )
    if end == "withheld":
        figures = msgspec.structs.replace(
            figures,
            runner_end_skew=_NOTHING,
            rounds_over_late_end_skew=0,
            long_tails=[],
            last_to_end=_without_counts(figures.last_to_end),
        )
    if step_end == "withheld":
        figures = msgspec.structs.replace(figures, step_end_skew=_NOTHING)
    withheld = [
        name
        for name, state in (
            ("runner-start skew", start),
            ("runner-end skew", end),
            ("step-end skew", step_end),
        )
        if state == "withheld"
    ]
    return msgspec.structs.replace(figures, clocks=_statement(withheld, clocks))


def calibrate_starts(figures: list[StartSkew], clocks: ClockAlignment) -> list[StartSkew]:
    """Start skews of rank files, without those that the clocks do not support."""
    if not clocks.comparable:
        return []
    return [
        msgspec.structs.replace(entry, skew=_NOTHING)
        if calibration_of(entry.skew, clocks) == "withheld"
        else entry
        for entry in figures
    ]


def _statement(withheld: list[str], clocks: ClockAlignment) -> str:
    """What is to be said about the figures across ranks; "" where nothing is."""
    if not clocks.comparable:
        return "withheld: the ranks' clocks are not aligned"
    if withheld and clocks.uncertainty_ns is not None:
        return (
            f"withheld: {', '.join(withheld)}; the clocks' uncertainty of {duration_text(clocks.uncertainty_ns)} "
            "is larger"
        )
    if clocks.uncertainty_ns is None:
        return "uncalibrated: nothing tells how well the ranks' clocks are aligned"
    return ""


def _without_counts(lateness: Lateness) -> Lateness:
    return msgspec.structs.replace(lateness, counts={}, rounds=0, test=None, median_excess_ns={})
