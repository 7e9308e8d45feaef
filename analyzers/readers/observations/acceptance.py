"""The figures of speculative decoding, from whatever counts there are (docs/metrics.md, Requests)."""

from __future__ import annotations

from analyzers.readers.observations.observation import Figure


class AcceptanceFigure(Figure):
    """The bonus token of a step counts in the length and is no draft."""

    STEPS = "steps"
    DRAFTED = "drafted"
    ACCEPTED = "accepted"
    RATE = "acceptance rate"
    LENGTH = "acceptance length"
    PER_STEP = "accepted drafts per step"


def acceptance(steps: float, drafted: float, accepted: float) -> dict[str, float | None]:
    """What the counts come to; no rate is made of counts that are impossible."""
    possible = 0 <= accepted <= drafted
    return {
        AcceptanceFigure.STEPS: steps,
        AcceptanceFigure.DRAFTED: drafted,
        AcceptanceFigure.ACCEPTED: accepted,
        AcceptanceFigure.RATE: accepted / drafted if drafted and possible else None,
        AcceptanceFigure.LENGTH: 1 + accepted / steps if steps and possible else None,
        AcceptanceFigure.PER_STEP: accepted / steps if steps and possible else None,
    }
