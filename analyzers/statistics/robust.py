"""Robust outlier tests for a handful of ranks and for long samples. Pure functions of numbers.

The three-sigma rule cannot fire here: of n values none lies more than (n - 1) / sqrt(n) standard deviations from the
mean, which is 2.47 for 8 ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

DIXON_CRITICAL = {3: 0.994, 4: 0.926, 5: 0.821, 6: 0.740, 7: 0.680, 8: 0.634, 9: 0.598, 10: 0.568}
"""n -> critical r10 at 99 %, two-sided (Rorabacher, Analytical Chemistry 63, 1991, table 1)."""

MODIFIED_Z = 3.5
"""|modified z| above which a value is an outlier (Iglewicz and Hoaglin, 1993)."""

_MAD_TO_SIGMA = 1.4826
_MEAN_DEVIATION_TO_SIGMA = 1.2533


def modified_z(values: Sequence[float]) -> list[float]:
    """(x - median) / (1.4826 MAD) of every value.

    Where more than half of them are equal, MAD is 0 and 1.2533 times the mean deviation from the median stands in;
    where all are, every score is 0.
    """
    centre = median(values)
    deviations = [abs(value - centre) for value in values]
    scale = _MAD_TO_SIGMA * median(deviations) or _MEAN_DEVIATION_TO_SIGMA * fmean(deviations)
    return [(value - centre) / scale if scale else 0.0 for value in values]


def lowest_outlier(values: Sequence[float]) -> int | None:
    """Index of the smallest value if it is an outlier: by Dixon's r10 for 3 to 10 values, else by its modified z."""
    if len(values) < min(DIXON_CRITICAL):
        return None
    ordered = sorted(values)
    index = min(range(len(values)), key=values.__getitem__)
    spread = ordered[-1] - ordered[0]
    critical = DIXON_CRITICAL.get(len(values))
    if critical is None:
        return index if modified_z(values)[index] < -MODIFIED_Z else None
    return index if spread > 0 and (ordered[1] - ordered[0]) / spread > critical else None
