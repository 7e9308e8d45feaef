"""Goodput: how many requests met the latencies that a user promises (docs/metrics.md, Requests)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import msgspec

from analyzers.errors import AnalyzerError

SloMetric = Literal["ttft", "tpot", "e2e"]
Slos = Mapping[SloMetric, int]
"""Latency -> the most ns it may take."""

_SLO = re.compile(r"\s*(\w+)\s*=\s*(\d+(?:\.\d+)?)\s*", re.ASCII)


class SloError(AnalyzerError):
    """An objective that cannot be understood."""

    exit_code = 2


class Goodput(msgspec.Struct, frozen=True):
    """Requests against the objectives: `met` of `counted` meet each of them that was asked for."""

    limits_ns: dict[SloMetric, int]
    met: int
    counted: int
    """Requests for which every latency is defined, and failed ones, which meet nothing."""
    not_applicable: int
    """Requests with a latency that is undefined, such as the tpot of one token: neither met nor missed."""
    met_per_s: float | None
    """`met` over the elapsed time."""


def parse_slos(text: str) -> dict[SloMetric, int]:
    """Objectives such as `ttft=500,tpot=20.5`, in ms.

    Raises:
        SloError: no such latency, no number, or one given twice.
    """
    found: dict[SloMetric, int] = {}
    metrics: dict[str, SloMetric] = {metric: metric for metric in get_args(SloMetric)}
    for part in text.split(","):
        match = _SLO.fullmatch(part)
        metric = metrics.get(match[1].lower()) if match else None
        if match is None or metric is None:
            raise SloError(
                f"{part.strip()!r} is no objective: give {', '.join(metrics)} in ms, as in tpot=20.5"
            )
        if metric in found:
            raise SloError(f"{metric} is given twice")
        found[metric] = round(float(match[2]) * 1e6)
    return found


def measure_goodput(
    latencies: Sequence[Mapping[SloMetric, float | None] | None], limits: Slos, elapsed_ns: int | None
) -> Goodput:
    """Compare the latencies of each request, None for a failed one, with their limits."""
    met = counted = not_applicable = 0
    for request in latencies:
        values = [None if request is None else request[metric] for metric in limits]
        if request is not None and None in values:
            not_applicable += 1
            continue
        counted += 1
        met += all(
            value is not None and value <= limit for value, limit in zip(values, limits.values(), strict=True)
        )
    per_s = met * 1e9 / elapsed_ns if elapsed_ns else None
    return Goodput(dict(limits), met, counted, not_applicable, per_s)
