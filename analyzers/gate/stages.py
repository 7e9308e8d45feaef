"""How many runs a gate makes before it must have decided, and how its error rates are shared between its looks.

Who looks at the figures after every stage has as many chances to be misled. So every look gets an equal part of the
error that is allowed (Bonferroni), and what is promised holds for all of them together, whatever the noise.
"""

from __future__ import annotations

from dataclasses import dataclass

from analyzers.gate.model import GatePolicy

CONFIDENCE = 0.95
"""With which a PASS excludes a regression, and keeps an absolute limit."""
STAGES = 4
"""Stages of a gate whose policy sets no `max_runs`."""


@dataclass(frozen=True)
class Stage:
    """After which stage, of how many, the runs are judged. Stored runs are judged once."""

    number: int = 1
    of: int = 1

    @property
    def is_last(self) -> bool:
        """Whether no more runs can follow."""
        return self.number == self.of

    @property
    def may_fail(self) -> bool:
        """Whether a regression can be said: never after the first of several stages, which asks for more runs."""
        return self.number > 1 or self.of == 1

    @property
    def fail_looks(self) -> int:
        """At how many looks of the gate a regression can be said: p-values are multiplied by it."""
        return max(1, self.of - 1)

    @property
    def pass_error(self) -> float:
        """The probability with which the bound of this look may be wrong."""
        return (1 - CONFIDENCE) / self.of


def stage_sizes(policy: GatePolicy) -> list[int]:
    """Runs a side of each stage, `max_runs` together at most: the last stage may be smaller."""
    size = policy.stage_runs
    most = STAGES * size if policy.max_runs is None else policy.max_runs
    return [min(size, most - made) for made in range(0, most, size)]
