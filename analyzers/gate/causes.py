"""Why time per output token moved: it is about step time / tokens per step, and one factor or both did."""

from __future__ import annotations

import math
from collections.abc import Sequence

from analyzers.gate.metrics import canonical, split_tag
from analyzers.gate.model import MetricResult
from analyzers.statistics.confidence_interval import ConfidenceInterval

CARRIES = 1 / 3
"""Share of the logarithm of tpot's change from which a factor is a cause."""

_FACTORS = {"step_time": ("step time", 1), "acceptance_length": ("acceptance length", -1)}
_WITHOUT_MTP = {"tokens_per_step": ("tokens per step", -1)}


def find_causes(results: Sequence[MetricResult]) -> list[str]:
    """The factors that moved with tpot: significantly (their 95 % interval leaves out 1), and by a third of its change.

    [] where tpot did not move significantly, or its factors are not known. Tokens per step speak where there is no
    acceptance length.
    """
    by_key = {canonical(result.name): result for result in results}
    causes: list[str] = []
    for key, tpot in by_key.items():
        stem, tag = split_tag(key)
        if stem != "tpot" or tpot.ratio is None or not _moved(tpot.interval):
            continue
        acceptance = by_key.get(f"acceptance_length{tag}")
        has_mtp = acceptance is not None and acceptance.ratio is not None
        factors = _FACTORS if has_mtp else _FACTORS | _WITHOUT_MTP
        for name, (words, sign) in factors.items():
            factor = by_key.get(name + tag)
            if factor is None or factor.ratio is None or not _moved(factor.interval):
                continue
            if sign * math.log(factor.ratio) / math.log(tpot.ratio) >= CARRIES:
                causes.append(words)
    return list(dict.fromkeys(causes))


def _moved(interval: ConfidenceInterval | None) -> bool:
    if interval is None or interval.low is None or interval.high is None:
        return False
    return interval.low > 1 or interval.high < 1
