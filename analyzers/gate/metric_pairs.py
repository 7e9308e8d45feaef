"""Which values of both sides belong together, which metrics are judged, and whether their values can be."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from analyzers.gate.metrics import REGISTRY, Metric, canonical, metric, split_tag
from analyzers.gate.model import GatePolicy, MetricPolicy, Samples
from analyzers.gate.policy import judged_metrics, judges_others

BESIDE_TPOT = ("step_time", "acceptance_length", "tokens_per_step")
"""Always shown beside tpot: it is about step time / tokens per step."""
EXPLANATIONS = ("host_time", "critical_rank")
"""Shown where known: what of a step the host and the slowest rank take."""

Values = list[float | None]


@dataclass(frozen=True)
class Pair:
    """One metric of both sides: None for a side that does not name it."""

    name: str
    key: str
    base: Values | None
    head: Values | None
    asked: MetricPolicy | None
    """None for a metric that is shown only."""

    @property
    def meaning(self) -> Metric:
        """What the metric means, in the direction that its name or the policy says.

        Raises:
            UnusableInputError: neither says which direction is better.
        """
        return metric(self.name, self.asked.better if self.asked is not None else None)


def pair_metrics(base: Samples | None, head: Samples, policy: GatePolicy) -> list[Pair]:
    """Every metric that is judged, in the policy's order, then those shown beside them.

    Names meet by what they mean: `tpot` of a run is `tpot_ms` of a samples file. A metric of the policy covers those
    that differ from it by a tag: `tpot` judges `tpot_ms[bs=16]`.
    """
    sides = (base.metrics if base else {}, head.metrics)
    ambiguous = {key for side in sides for key, count in Counter(map(canonical, side)).items() if count > 1}
    bases, heads = (_by_key(side, ambiguous) for side in sides)
    keys = list(dict.fromkeys([*bases, *heads]))
    judged = _judged(keys, policy, [name for side in (bases, heads) for name, _ in side.values()])
    if judges_others(policy) and not any(key in bases or key in heads for key in judged):
        # Nobody chose a metric, and the one judged by default is on neither side: judge what is there.
        judged = {key: MetricPolicy() for key in keys}
    shown = [key for key in _shown(judged) if key in bases and key in heads and key not in judged]
    pairs = []
    for key in [*judged, *shown]:
        names = [side[key][0] for side in (bases, heads) if key in side]
        name = names[0] if len(set(names)) == 1 else key
        pairs.append(
            Pair(
                name,
                key,
                bases[key][1] if key in bases else None,
                heads[key][1] if key in heads else None,
                judged.get(key),
            )
        )
    return pairs


def _by_key(metrics: dict[str, Values], ambiguous: set[str]) -> dict[str, tuple[str, Values]]:
    """Metrics by what they mean; where one side has two names of one meaning, by their own names."""
    return {
        name if (key := canonical(name)) in ambiguous else key: (name, values)
        for name, values in metrics.items()
    }


def _judged(keys: list[str], policy: GatePolicy, names: list[str]) -> dict[str, MetricPolicy]:
    """Key -> what is asked of it; a metric of the policy that no side has keeps its own name."""
    exact = {canonical(name): asked for name, asked in judged_metrics(policy).items()}
    judged: dict[str, MetricPolicy] = {}
    for name, asked in exact.items():
        covered = [
            key
            for key in keys
            if (meant := canonical(key)) == name or (meant not in exact and split_tag(meant)[0] == name)
        ]
        judged |= dict.fromkeys(covered or [name], asked)
    if judges_others(policy):
        # A run's samples name the whole registry; any other spelling was written to be judged.
        written = {canonical(name) for name in names if name not in REGISTRY}
        judged |= {key: MetricPolicy() for key in keys if canonical(key) in written and key not in judged}
    return judged


def _shown(judged: dict[str, MetricPolicy]) -> list[str]:
    tags = dict.fromkeys(split_tag(key)[1] for key in judged)
    return [name + tag for tag in tags for name in (*BESIDE_TPOT, *EXPLANATIONS)]


def values_of(values: Sequence[float | None] | None) -> list[float]:
    """The values that are there, good or not."""
    return [value for value in values or () if value is not None]


def without_values(values: Sequence[float | None] | None) -> bool:
    """Whether a side has nothing at all."""
    return not values_of(values)


def first_bad(values: Sequence[float | None]) -> str | None:
    """Where a value is that is not positive and finite: `run 3: 0`; None where all are."""
    for index, value in enumerate(values, 1):
        if value is None:
            return f"run {index}: none"
        if not (math.isfinite(value) and value > 0):
            return f"run {index}: {value:g}"
    return None
