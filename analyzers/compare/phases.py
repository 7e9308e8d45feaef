"""Where the change of a step's time lies, phase by phase (docs/findings.md, Bubbles and the critical path)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from analyzers.compare.changes import ALIKE, in_percent, time_change
from analyzers.compare.model import Change, PhaseChange, StepTimeChange
from analyzers.steps.bubbles import PHASE_ORDER, StepPhase, StepTime

_INTO_WAIT: tuple[StepPhase, ...] = ("queue", "bind", "runner", "validate")
"""What ranks' records tell apart between submit and wait; without them all of it is wait."""
_SHOWN_SHARE = 0.1
"""Phases with less than this share of the wall's change are not named in the sentence."""


def compare_step_time(
    a: Sequence[Sequence[StepTime]], b: Sequence[Sequence[StepTime]]
) -> tuple[list[StepTimeChange], list[str]]:
    """Every decode callable that both sides have, and why one that a side has is not compared.

    `a` and `b` hold the figures of each run. Runs without the callable are left out and counted in the result.
    """
    changes, notes = [], []
    names = list(dict.fromkeys(item.callable for run in a for item in run))
    others = list(dict.fromkeys(item.callable for run in b for item in run))
    pairs = pair_callables(names, others)
    for name, other in pairs.items():
        before = [item for run in a for item in run if item.callable == name]
        after = [item for run in b for item in run if item.callable == other]
        why = _incomparable(before, after)
        if why:
            notes.append(f"Step time of {name} is not compared phase by phase: {why}.")
        else:
            changes.append(_compare(name, before, after))
        if name != other:
            notes.append(f"The only decode callable of each side is compared: {name} of A with {other} of B.")
    for name, side in [(n, "A") for n in names if n not in pairs] + [
        (n, "B") for n in others if n not in pairs.values()
    ]:
        notes.append(f"Only {side} has the decode callable {name}: its steps are not compared.")
    return changes, notes


def pair_callables(a: Sequence[str], b: Sequence[str]) -> dict[str, str]:
    """Name of A -> the same callable of B: the same name; two lone ones that are named apart are the same too.

    Logs without names carry a hash in its place, which every build changes.
    """
    if len(a) == len(b) == 1:
        return {a[0]: b[0]}
    return {name: name for name in a if name in b}


def _incomparable(a: Sequence[StepTime], b: Sequence[StepTime]) -> str | None:
    """Why the steps of the two sides are not measured alike; None where they are."""
    published = sorted({item.published_by for item in [*a, *b]})
    if len(published) > 1:
        return f"a step ends at {' in some runs, at '.join(published)} in others"
    if len({item.scope for item in [*a, *b]}) > 1:
        return "some runs have steady steps and others have none"
    return None


def _compare(name: str, a: Sequence[StepTime], b: Sequence[StepTime]) -> StepTimeChange:
    folded = _folded([*a, *b])
    before, after = [_means(item, folded) for item in a], [_means(item, folded) for item in b]
    present = [phase for phase in PHASE_ORDER if any(phase in run for run in [*before, *after])]
    wall = time_change([item.wall.mean or 0.0 for item in a], [item.wall.mean or 0.0 for item in b])
    phases = [
        PhaseChange(
            phase,
            time_change([run.get(phase, 0.0) for run in before], [run.get(phase, 0.0) for run in after]),
        )
        for phase in present
    ]
    return StepTimeChange(
        callable=name,
        scope=a[0].scope,
        published_by=a[0].published_by,
        a_runs=len(a),
        b_runs=len(b),
        a_steps=sum(item.wall.n for item in a),
        b_steps=sum(item.wall.n for item in b),
        wall=wall,
        phases=phases,
        folded=folded,
        statement=_statement(wall, phases),
    )


def _folded(runs: Sequence[StepTime]) -> dict[StepPhase, StepPhase]:
    """Phases that only some runs have records of, and where the others count their time."""
    folded: dict[StepPhase, StepPhase] = {}
    if len({run.ranks_known for run in runs}) > 1:
        folded.update(dict.fromkeys(_INTO_WAIT, "wait"))
    present = Counter(entry.phase for run in runs for entry in run.phases)
    for phase, count in present.items():
        if count < len(runs) and phase != "remainder" and phase not in folded.values():
            folded.setdefault(phase, "remainder")
    return {phase: folded[phase] for phase in PHASE_ORDER if phase in folded}


def _means(run: StepTime, folded: Mapping[StepPhase, StepPhase]) -> dict[StepPhase, float]:
    """The mean of every phase of one run in ns; they add up to that of its wall."""
    means: dict[StepPhase, float] = {}
    for entry in run.phases:
        phase = folded.get(entry.phase, entry.phase)
        means[phase] = means.get(phase, 0.0) + (entry.charged.mean or 0.0)
    return means


def _statement(wall: Change, phases: Sequence[PhaseChange]) -> str:
    least = ALIKE * wall.a
    moved = sorted(
        (
            entry
            for entry in phases
            if abs(entry.time.change) >= max(_SHOWN_SHARE * abs(wall.change), least / 2)
        ),
        key=lambda entry: -abs(entry.time.change),
    )
    parts = ", ".join(f"{entry.phase} {_signed(entry.time.change)} ms" for entry in moved[:3])
    spans = f"{wall.a / 1e6:.3f} to {wall.b / 1e6:.3f} ms"
    if wall.ratio is not None and abs(wall.change) < least:
        alike = f"From step to step as long as before ({spans}, {in_percent(wall.ratio)})"
        return f"{alike}; inside it moved: {parts}." if parts else f"{alike}, and no phase moved."
    percent = f", {in_percent(wall.ratio)}" if wall.ratio is not None else ""
    longer = "longer" if wall.change > 0 else "shorter"
    time = f"{abs(wall.change) / 1e6:.3f} ms {longer} ({spans}{percent})"
    return f"From step to step {time}: {parts or 'spread over the phases'}."


def _signed(time_ns: float) -> str:
    return f"{time_ns / 1e6:+.3f}"
