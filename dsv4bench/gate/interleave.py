"""Runs of two sides in ABBA order, stage after stage, and the verdict on them.

ABBA (base, head, head, base, ...) puts a steady drift of the machine on both sides alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import msgspec

from analyzers.gate.comparability import said, short_machine
from analyzers.gate.machine import busy_before, was_busy, what_moved
from analyzers.gate.model import (
    SCHEMA_VERSION,
    Difference,
    GatePolicy,
    GateResult,
    Leniency,
    Samples,
    Verdict,
)
from analyzers.gate.samples import join_samples, write_samples
from analyzers.gate.stages import Stage, stage_sizes
from analyzers.gate.verdict import STRICT, decide
from analyzers.gate.wording import count
from analyzers.statistics.rank_tests import smallest_p_value
from dsv4bench.errors import EngineError, RunInterruptedError
from dsv4bench.gate.execute import RunOutcome, execute
from dsv4bench.gate.sides import NAMES, Name, Side
from dsv4bench.load.settings import PROMPT_KINDS

MOST_FAILURES = 3
"""After so many failed runs of the head, no more are made: the verdict stands."""

_PROMPTS = {f"load.{key}" for key in PROMPT_KINDS}


class GateObserver(Protocol):
    """Is told how a gate goes; the command line prints it."""

    def begins(self, label: str, number: int, total: int) -> None:
        """Run `number` of `total` of this stage begins; 0 is a warm-up."""
        ...

    def ended(self, outcome: RunOutcome) -> None:
        """The run ended, with figures or without."""
        ...

    def says(self, text: str) -> None:
        """Something else to tell: a stage, a decision."""
        ...


def abba(pairs: int) -> Iterator[Name]:
    """The order of `pairs` runs a side."""
    for pair in range(pairs):
        yield from NAMES if pair % 2 == 0 else reversed(NAMES)


@dataclass
class Interleaved:
    """The runs of both sides so far. Every run is on disk under `root` before the next one begins.

    `root/<side>/run-<i>` are the run directories, `root/<side>.json` the samples of the runs until then.
    """

    sides: Mapping[Name, Side]
    root: Path
    observer: GateObserver
    timeout_s: float
    names: Sequence[str] = ()
    """Metrics to take beyond those that every run has."""
    declared: frozenset[str] = frozenset()
    """Configuration keys in which the sides are meant to differ: they are listed, and not held against the gate."""
    warm_ups: list[RunOutcome] = field(default_factory=list)
    outcomes: list[RunOutcome] = field(default_factory=list)

    def warm_up(self) -> None:
        """Run each side once, uncounted, so that checkpoint and compiled programs are cached; ends with one that failed."""
        for name in NAMES:
            self.warm_ups.append(self._run(name, "warm-up", f"{name} warm-up", 0, 0))
            if self.failed(name):
                return

    def stage(self, runs: int) -> None:
        """Make `runs` more runs a side; ends early once the base failed, or the head MOST_FAILURES times."""
        for position, name in enumerate(abba(runs)):
            number = len(self.of(name)) + 1
            label = f"{name} run {number}"
            self.outcomes.append(self._run(name, f"run-{number:02}", label, position + 1, 2 * runs))
            self._write(name)
            if self.failed("base") or len(self.failed("head")) >= MOST_FAILURES:
                return

    def of(self, name: Name) -> list[RunOutcome]:
        """The runs of a side."""
        return [outcome for outcome in self.outcomes if outcome.side.name == name]

    def failed(self, name: Name) -> list[RunOutcome]:
        """Those without figures, its warm-up included."""
        warm_ups = [outcome for outcome in self.warm_ups if outcome.side.name == name]
        return [outcome for outcome in (*warm_ups, *self.of(name)) if outcome.failure is not None]

    def samples(self, name: Name) -> Samples:
        """The figures of a side's runs, without the configuration keys that were declared to differ.

        Those of its warm-up while there is no other.
        """
        warm_ups = [outcome for outcome in self.warm_ups if outcome.side.name == name]
        runs = self.of(name) or warm_ups
        parts = [outcome.samples for outcome in runs if outcome.samples is not None]
        joined = join_samples(parts) if parts else Samples({})
        conditions = [outcome.conditions for outcome in runs]
        return msgspec.structs.replace(
            joined,
            config={key: value for key, value in joined.config.items() if key not in self.declared},
            warnings=[*_shared(runs), *what_moved(conditions)],
            source=self.sides[name].description,
            busy=was_busy(conditions) or self.busy_before() is not None,
        )

    def busy_before(self) -> str | None:
        """A warning for people where the machine was busy before the first run."""
        return busy_before(self.warm_ups[0].conditions) if self.warm_ups else None

    def declared_differences(self) -> list[Difference]:
        """The configuration keys that were declared to differ, and do."""
        base, head = (
            next((it.samples.config for it in self.warm_ups if it.side.name == name and it.samples), {})
            for name in NAMES
        )
        return [
            Difference(key, said(base, key), said(head, key))
            for key in sorted(self.declared)
            if base.get(key) != head.get(key)
        ]

    def _run(self, name: Name, place: str, label: str, number: int, total: int) -> RunOutcome:
        self.observer.begins(label, number, total)
        outcome = self._checked(
            execute(self.sides[name], self.root / name / place, label, self.timeout_s, self.names)
        )
        self.observer.ended(outcome)
        return outcome

    def _checked(self, outcome: RunOutcome) -> RunOutcome:
        """A run that is not configured as the side's first one is no sample of it."""
        first = next((it.samples for it in self.warm_ups if it.side is outcome.side), None)
        if first is None or outcome.samples is None:
            return outcome
        changed = [
            key
            for key in dict.fromkeys([*first.config, *outcome.samples.config])
            if first.config.get(key) != outcome.samples.config.get(key)
        ]
        if first.machine != outcome.samples.machine:
            changed.append("machine")
        if not changed:
            return outcome
        failure = f"its configuration is not that of the runs before it: {', '.join(changed)}"
        return replace(outcome, samples=None, failure=failure)

    def interrupted(self) -> str:
        """For people: what is left of a gate that was interrupted, and how to judge it."""
        base, head = (sum(it.samples is not None for it in self.of(name)) for name in NAMES)
        message = f"interrupted after {base} base and {head} head runs; what was measured is in {self.root}"
        if not (base and head):
            return message
        files = f"{self.root / 'head.json'} --baseline {self.root / 'base.json'}"
        return f"{message}; judge it with: dsv4bench gate check {files}"

    def _write(self, name: Name) -> None:
        if any(outcome.samples is not None for outcome in self.of(name)):
            write_samples(self.root / f"{name}.json", self.samples(name))


def keys_of(overrides: Sequence[str]) -> frozenset[str]:
    """The profile keys that KEY=VALUE overrides change. Setting one kind of prompts unsets the other."""
    keys = {override.partition("=")[0].strip() for override in overrides}
    return frozenset(keys | (_PROMPTS if keys & _PROMPTS else set()))


def _shared(outcomes: Sequence[RunOutcome]) -> list[str]:
    """The warnings of these runs, each once, with the number of runs that have it."""
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        if outcome.samples is not None:
            prefix = f"{outcome.directory}: "
            counts.update({warning.removeprefix(prefix) for warning in outcome.samples.warnings})
    return [f"{text} (in {count} of {len(outcomes)} runs)" for text, count in counts.items()]


def run_gate(gate: Interleaved, policy: GatePolicy, leniency: Leniency = STRICT) -> GateResult:
    """Warm up, make stage after stage of runs until a verdict holds or the policy allows no more, and judge them.

    A failed run decides: NO-DATA where the base failed, FAIL where the head did.

    Raises:
        RunInterruptedError: on Ctrl-C; the processes of the run have ended, the runs before it are kept.
    """
    sizes = stage_sizes(policy)
    if smallest_p_value(sum(sizes), sum(sizes)) >= policy.fail_p:
        gate.observer.says(
            f"{count(sum(sizes), 'run')} a side are too few for any verdict but on failures and limits"
        )
        sizes = sizes[:1]
    stage, made = Stage(1, len(sizes)), 0
    try:
        gate.warm_up()
        if _is_worthwhile(gate, policy, leniency):
            for number, size in enumerate(sizes, 1):
                stage, made = Stage(number, len(sizes)), number
                gate.stage(size)
                if stage.is_last or any(gate.failed(name) for name in NAMES):
                    break
                result = _judged(gate, policy, leniency, "", stage)
                if result.verdict != "UNDECIDED":
                    break
                gate.observer.says(
                    f"undecided after {count(sum(sizes[:number]), 'run')} a side, {sizes[number]} more follow: "
                    f"{result.headline}"
                )
    except KeyboardInterrupt as stop:
        raise RunInterruptedError(gate.interrupted()) from stop
    return _result(gate, policy, leniency, _method(sizes[:made]), stage)


def _method(sizes: Sequence[int]) -> str:
    """How the runs were made, for people; `sizes` are the runs a side of the stages that were made."""
    if len(set(sizes)) > 1:
        return f"interleaved ABBA, stages of {', '.join(map(str, sizes))} runs a side"
    return (
        f"interleaved ABBA, {count(len(sizes), 'stage')} of {count(sizes[0], 'run')} a side"
        if sizes
        else ("interleaved ABBA, no stage")
    )


def run_alike(gate: Interleaved, runs: int) -> tuple[Samples, Samples]:
    """Warm up and make `runs` runs a side in one stage; the samples of both sides.

    Raises:
        EngineError: a run failed.
        RunInterruptedError: on Ctrl-C, as in `run_gate`.
    """
    try:
        gate.warm_up()
        if not any(gate.failed(name) for name in NAMES):
            gate.stage(runs)
    except KeyboardInterrupt as stop:
        raise RunInterruptedError(gate.interrupted()) from stop
    for name in NAMES:
        if gate.failed(name):
            raise EngineError(_told(gate, name))
    busy = gate.busy_before()
    base, head = gate.samples("base"), gate.samples("head")
    return msgspec.structs.replace(base, warnings=[*([busy] if busy else []), *base.warnings]), head


def _is_worthwhile(gate: Interleaved, policy: GatePolicy, leniency: Leniency) -> bool:
    """Whether more runs can lead to a verdict: the warm-ups worked, and are of sides that may be compared."""
    if any(gate.failed(name) for name in NAMES):
        return False
    return _judged(gate, policy, leniency, "", Stage()).verdict not in ("NOT-COMPARABLE", "NO-DATA")


def _judged(
    gate: Interleaved, policy: GatePolicy, leniency: Leniency, method: str, stage: Stage
) -> GateResult:
    base, head = gate.samples("base"), gate.samples("head")
    return decide(base, head, policy, leniency, method=method, stored=False, stage=stage)


def _result(
    gate: Interleaved, policy: GatePolicy, leniency: Leniency, method: str, stage: Stage
) -> GateResult:
    base, head = gate.samples("base"), gate.samples("head")
    if base.metrics and head.metrics:
        result = _judged(gate, policy, leniency, method, stage)
    else:
        result = GateResult(
            SCHEMA_VERSION,
            "NO-DATA",
            "there is nothing to compare",
            base.source,
            head.source,
            method,
            metrics=[],
            warnings=[*base.warnings, *head.warnings],
            base_machine=short_machine(base.machine) if base.machine else None,
            head_machine=short_machine(head.machine) if head.machine else None,
        )
    busy = gate.busy_before()
    result = msgspec.structs.replace(
        result,
        differences=[*gate.declared_differences(), *result.differences],
        warnings=[*([busy] if busy else []), *result.warnings],
    )
    verdict, headline = _of_failures(gate)
    return msgspec.structs.replace(result, verdict=verdict, headline=headline) if verdict else result


def _of_failures(gate: Interleaved) -> tuple[Verdict | None, str]:
    """What failed runs decide, and the sentence that says so."""
    base, head = gate.failed("base"), gate.failed("head")
    told = "; ".join(_told(gate, name) for name in NAMES if gate.failed(name))
    if base:
        return "NO-DATA", f"there is no base to compare with: {told}"
    return ("FAIL", told) if head else (None, "")


def _told(gate: Interleaved, name: Name) -> str:
    failed = gate.failed(name)
    first = failed[0]
    runs = len(gate.of(name))
    what = f"{len(failed)} of {runs} {name} runs failed" if runs else f"{name} does not run"
    return f"{what}: {first.label}: {first.failure} (see {first.directory})"
