"""Summaries of samples. Pure functions of numbers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

P95_NEEDS = 20
P99_NEEDS = 100


class Summary(msgspec.Struct, frozen=True):
    """A sample in figures; its unit is that of the values it was made of.

    Percentiles interpolate linearly between order statistics (docs/metrics.md). A figure the
    sample does not support is None: everything for n = 0, p95 below 20 values, p99 below 100.
    """

    n: int
    mean: float | None = None
    min: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


def summarize(values: Sequence[float] | npt.NDArray[np.number]) -> Summary:
    """The `Summary` of `values`; sums of integers are exact."""
    sample = np.asarray(values)
    n = len(sample)
    if n == 0:
        return Summary(n=0)
    least, most = float(sample.min()), float(sample.max())
    if n == 1:
        return Summary(n=1, mean=least, min=least, p50=least, max=most)
    percents = [50, *([95] if n >= P95_NEEDS else []), *([99] if n >= P99_NEEDS else [])]
    found = dict(zip(percents, np.percentile(sample.astype(np.float64), percents).tolist(), strict=True))
    return Summary(
        n=n,
        mean=(exact_sum(sample) if sample.dtype == np.int64 else sum(sample.tolist())) / n,
        min=least,
        p50=found[50],
        p95=found.get(95),
        p99=found.get(99),
        max=most,
    )


def exact_sum(sample: npt.NDArray[np.int64]) -> int:
    """The sum of a non-empty sample, however large it is."""
    fits = max(-int(sample.min()), int(sample.max())) < 2**62 // len(sample)
    return int(sample.sum()) if fits else sum(sample.tolist())


def percentile(values: Sequence[float] | npt.NDArray[np.number], percent: float) -> float:
    """The percentile of a non-empty sample by linear interpolation at rank (n - 1) * percent / 100."""
    return float(np.percentile(np.asarray(values, dtype=np.float64), percent))
