"""Robust outlier tests for a handful of ranks and for long samples. Pure functions of numbers.

The three-sigma rule cannot fire here: of n values none lies more than (n - 1) / sqrt(n) standard deviations from the
mean, which is 2.47 for 8 ranks.

Scales are median absolute deviations (MAD). Where more than half of the values are equal the MAD is 0, which is no scale,
and what is to be done depends on the use: `modified_z` falls back on the mean deviation, for a lone slow one among
equals must be seen; `outliers` gives up, for runs of a quantized metric would otherwise all be outliers but the most
frequent; whoever states a spread (`scaled_mad`) states the 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

import numpy as np
import numpy.typing as npt

DIXON_CRITICAL = {3: 0.994, 4: 0.926, 5: 0.821, 6: 0.740, 7: 0.680, 8: 0.634, 9: 0.598, 10: 0.568}
"""n -> critical r10 at 99 %, two-sided (Rorabacher, Analytical Chemistry 63, 1991, table 1)."""

MODIFIED_Z = 3.5
"""|modified z| above which a value is an outlier (Iglewicz and Hoaglin, 1993)."""

NORMAL_QUARTILE = 0.6744897501960817
"""The median of |x| for a standard normal x."""

MAD_TO_SIGMA = 1.4826
"""Makes a median absolute deviation a standard deviation, where the noise is normal: 1 / `NORMAL_QUARTILE`, rounded."""

_MEAN_DEVIATION_TO_SIGMA = 1.2533
"""The same for the mean absolute deviation: sqrt(pi / 2), rounded."""


def scaled_mad(values: npt.ArrayLike) -> float:
    """1.4826 MAD of a sample that is not empty, in its unit: a standard deviation that outliers leave alone."""
    sample = np.asarray(values, dtype=np.float64)
    return MAD_TO_SIGMA * float(np.median(np.abs(sample - np.median(sample))))


def modified_z(values: Sequence[float]) -> list[float]:
    """(x - median) / (1.4826 MAD) of every value.

    Where more than half of them are equal, MAD is 0 and 1.2533 times the mean deviation from the median stands in;
    where all are, every score is 0.
    """
    centre = median(values)
    deviations = [abs(value - centre) for value in values]
    scale = MAD_TO_SIGMA * median(deviations) or _MEAN_DEVIATION_TO_SIGMA * fmean(deviations)
    return [(value - centre) / scale if scale else 0.0 for value in values]


def outliers(values: Sequence[float]) -> list[int] | None:
    """Positions of values far from the median, by their modified z; None where the MAD is 0."""
    sample = np.asarray(values, dtype=np.float64)
    scale = scaled_mad(sample)
    if scale == 0:
        return None
    # Dividing by a tiny scale would overflow.
    return np.flatnonzero(np.abs(sample - np.median(sample)) > MODIFIED_Z * scale).tolist()


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
