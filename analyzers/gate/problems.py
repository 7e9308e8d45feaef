"""What keeps two sides from being compared at all, before any metric is looked at (docs/gating.md, Verdicts)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from analyzers.gate.comparability import UNKNOWN, describe
from analyzers.gate.metric_pairs import Pair, values_of, without_values
from analyzers.gate.model import Difference, Leniency, Samples, Verdict


@dataclass(frozen=True)
class Problem:
    """The verdict that it leads to, and the reason for people."""

    verdict: Verdict
    reason: str

    @property
    def is_of_data(self) -> bool:
        """Whether values are missing, rather than not to be compared."""
        return self.verdict in ("NO-DATA", "INVALID")


def without_failed(
    base: Samples | None, head: Samples, leniency: Leniency
) -> tuple[Samples | None, Samples, list[str]]:
    """Both sides without their failed runs, where the comparison leaves those out, and what to say about it."""
    if not leniency.drop_failed:
        return base, head, []
    kept_head, said = _without_failed(head, "candidate")
    if base is None:
        return None, kept_head, said
    kept_base, said_base = _without_failed(base, "baseline")
    return kept_base, kept_head, [*said_base, *said]


def _without_failed(side: Samples, label: str) -> tuple[Samples, list[str]]:
    if not side.failed and not side.invalid:
        return side, []
    # Such a run has no values.
    metrics: dict[str, list[float | None]] = {
        name: [*values_of(values)] for name, values in side.metrics.items()
    }
    kept = msgspec.structs.replace(side, metrics=metrics, failed=[], invalid=[], runs=[], digests=[])
    told = [f"{label}: left out {_failed_runs(side)}"] if side.failed else []
    return kept, [*told, *(f"{label}: left out a run: {text}" for text in side.invalid)]


def find_problem(
    base: Samples | None,
    head: Samples,
    leniency: Leniency,
    pairs: Sequence[Pair],
    found: Sequence[Difference],
    *,
    stored: bool,
) -> Problem | None:
    """The first thing that keeps the sides from being compared; None where nothing does.

    `found` are the differences of their configurations and machines. Without a base only the head can be a problem.
    """
    judged = [pair for pair in pairs if pair.asked is not None]
    named = [pair for pair in judged if pair.head is not None]
    for label, side in (("candidate", head), ("baseline", base)):
        if side is not None and side.invalid:
            return Problem("INVALID", _invalid_runs(side, label, judged, is_base=side is base))
    if head.failed:
        return Problem("NO-DATA", f"no data: the candidate has {_failed_runs(head)}")
    if base is None:
        return None
    if not any(pair.base is not None and pair.head is not None for pair in judged):
        return Problem("NOT-COMPARABLE", _nothing_in_common(judged))
    if all(without_values(pair.head) for pair in named):
        return Problem("NO-DATA", f"no data: the candidate has no value of {_names(named)}")
    if base.failed:
        return Problem("NOT-COMPARABLE", f"not comparable: the baseline has {_failed_runs(base)}")
    if (shared := _shared_run(base, head)) is not None:
        return Problem("NOT-COMPARABLE", f"not comparable: {shared} is a run of both sides")
    refused = [item for item in found if not _is_tolerated(item, stored=stored)]
    if refused and not leniency.allow_different:
        return Problem("NOT-COMPARABLE", f"not comparable: {describe(refused)}")
    return None


def _is_tolerated(item: Difference, *, stored: bool) -> bool:
    """Interleaved runs are of one profile and machine: a key that one revision alone knows is no other configuration."""
    return not stored and UNKNOWN in (item.base, item.head)


def _shared_run(base: Samples, head: Samples) -> str | None:
    """A run that is on both sides, and so would speak for itself: by its digest, or its place and values."""
    of_base = set(base.digests)
    for label, digest in zip(head.runs, head.digests, strict=False):
        if digest in of_base:
            return label
    for label in dict.fromkeys(base.runs):
        if label in head.runs and _values_of_run(base, label) == _values_of_run(head, label):
            return label
    return None


def _values_of_run(side: Samples, label: str) -> dict[str, float]:
    position = side.runs.index(label)
    at = {name: values[position] for name, values in side.metrics.items() if len(values) == len(side.runs)}
    return {name: value for name, value in at.items() if value is not None}


def _invalid_runs(side: Samples, label: str, judged: Sequence[Pair], *, is_base: bool) -> str:
    """That requests of the side cannot be, and what is left of its metrics."""
    more = f" (and {len(side.invalid) - 1} more such runs)" if len(side.invalid) > 1 else ""
    told = f"{side.invalid[0]}{more}"
    if all(without_values(pair.base if is_base else pair.head) for pair in judged):
        names = _names(judged) or "no metric"
        return f"{names} has no valid samples: {told}"
    return f"the {label} has an invalid run: {told}"


def _failed_runs(side: Samples) -> str:
    more = f" and {len(side.failed) - 1} more" if len(side.failed) > 1 else ""
    return f"a failed run: {side.failed[0]}{more}"


def _nothing_in_common(judged: Sequence[Pair]) -> str:
    bases = _names([pair for pair in judged if pair.base is not None]) or "nothing that is judged"
    heads = _names([pair for pair in judged if pair.head is not None]) or "nothing that is judged"
    return f"no common metric between baseline and candidate: the baseline has {bases}, the candidate {heads}"


def _names(pairs: Sequence[Pair]) -> str:
    return ", ".join(pair.name for pair in pairs[:5]) + (", ..." if len(pairs) > 5 else "")
