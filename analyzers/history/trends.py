"""From the runs of a history to series that may be compared, and from a series to its levels and steps."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any

import msgspec

from analyzers.errors import NoDataError, UnusableInputError
from analyzers.gate.comparability import said
from analyzers.gate.metrics import REGISTRY, canonical, metric, suggestion
from analyzers.history.entry import Entry
from analyzers.history.level_steps import segments
from analyzers.text.figures import percent

_KEY_DIGITS = 6
_TAG_DIGITS = 4


class Series(msgspec.Struct, frozen=True):
    """Runs of one profile, backend, model, machine and configuration, in order of time."""

    id: str
    profile: str
    backend: str
    model: str
    machine: str
    differs: str
    """Configuration keys in which it differs from the largest series of the same profile, as `key=value`."""
    entries: list[Entry]

    @property
    def name(self) -> str:
        """Profile and what differs from it."""
        return f"{self.profile} ({self.differs})" if self.differs else self.profile

    @property
    def title(self) -> str:
        """All that it is of, for people."""
        return f"{self.name}, {self.backend}, {self.model}, {self.short_machine}"

    @property
    def short_machine(self) -> str:
        """Processor and cores of `key=value; ...`, and a hash that tells apart machines which share these."""
        facts = {key: value for key, _, value in (part.partition("=") for part in self.machine.split("; "))}
        if "processor" not in facts:
            return self.machine
        tag = hashlib.sha256(self.machine.encode()).hexdigest()[:_TAG_DIGITS]
        return f"{facts['processor']}, {facts.get('cores', '?')} cores [{tag}]"


class TrendRun(msgspec.Struct, frozen=True):
    """One run of a trend; `level` is the one that the series held there."""

    identity: str
    revision: str
    dirty: bool
    label: str
    started_ns: int
    value: float
    level: float
    note: str
    path: str


class Level(msgspec.Struct, frozen=True):
    """Runs `start` to `end` (not included) of a trend, and their median."""

    start: int
    end: int
    value: float


class LevelStep(msgspec.Struct, frozen=True):
    """Where a trend goes from one level to the next, at the first run of the later one."""

    run: int
    identity: str
    revision: str
    label: str
    started_ns: int
    before: float
    after: float
    change: float | None
    """after / before - 1; None from a level of 0."""
    better: bool
    within_revision: bool
    """Whether the run before it is of the same revision, both without changes: then it is not the code,
    or the step lies a run or two from where it was found."""
    text: str


class Trend(msgspec.Struct, frozen=True):
    """One metric of one series: its runs in order of time, the levels they hold, and the steps between these."""

    metric: str
    title: str
    unit: str
    higher_is_better: bool
    runs: list[TrendRun]
    levels: list[Level]
    steps: list[LevelStep]
    without_figure: list[str]
    """Runs that have no such figure, each with its status."""


class Selection(msgspec.Struct, frozen=True):
    """Which series are asked for; a pattern with `*`, or None for any."""

    profile: str | None = None
    backend: str | None = None
    model: str | None = None
    machine: str | None = None
    """Any part of the machine's name will do."""
    id: str | None = None
    """The first characters of a series' id."""


def group(entries: Iterable[Entry]) -> list[Series]:
    """The series of a history: no two runs of one differ in a configuration key that both name.

    A key that a run does not name is none in which it differs: a later version knows more of them.
    """
    groups: dict[tuple[str, str, str, str], list[tuple[dict[str, Any], list[Entry]]]] = {}
    for entry in entries:
        key = (entry.profile, entry.backend, entry.model, entry.machine)
        alike = groups.setdefault(key, [])
        config, members = next(
            ((config, members) for config, members in alike if not _conflicts(config, entry.config)), ({}, [])
        )
        if not members:
            alike.append((config, members))
        config.update(entry.config)
        members.append(entry)
    found = []
    for key, alike in sorted(groups.items()):
        alike.sort(key=lambda pair: -len(pair[1]))
        for config, members in alike:
            differs = ", ".join(
                f"{name}={said(config, name)}" for name in sorted(_conflicts(alike[0][0], config))
            )
            identifier = hashlib.sha256("\0".join([*key, members[0].identity]).encode()).hexdigest()
            found.append(Series(identifier[:_KEY_DIGITS], *key, differs, members))
    return found


def select(series: Sequence[Series], selection: Selection) -> list[Series]:
    """The series that match.

    Raises:
        NoDataError: there is none.
    """
    found = [entry for entry in series if _matches(entry, selection)]
    if not series:
        raise NoDataError("the history has no runs yet: `dsv4bench history add RUN...`")
    if not found:
        raise NoDataError(f"no series of the history matches; it has {_names(series)}")
    return found


def only_one(series: Sequence[Series]) -> Series:
    """The series, where it is one.

    Raises:
        UnusableInputError: there are several; it names them.
    """
    if len(series) > 1:
        raise UnusableInputError(f"{len(series)} series match; name one of {_names(series)}")
    return series[0]


def known_metric(name: str) -> str:
    """The name under which the history keeps a metric.

    Raises:
        UnusableInputError: it keeps none of that name.
    """
    known = canonical(name)
    if known not in REGISTRY:
        raise UnusableInputError(f"the history keeps no metric {name!r}{suggestion(name)}")
    return known


def trend(series: Series, name: str) -> Trend:
    """One metric of a series, named as `known_metric` names it; runs without the figure are told apart."""
    meaning = metric(name)
    entries = [entry for entry in series.entries if name in entry.figures]
    levels = [
        Level(part.start, part.end, part.level) for part in segments([it.figures[name] for it in entries])
    ]
    runs = [
        TrendRun(
            entry.identity,
            entry.revision,
            entry.dirty,
            entry.label,
            entry.started_ns,
            entry.figures[name],
            level.value,
            entry.note,
            entry.path,
        )
        for level in levels
        for entry in entries[level.start : level.end]
    ]
    steps = [
        _step(runs, before, after, meaning.unit, meaning.higher_is_better)
        for before, after in pairwise(levels)
    ]
    without = [f"{entry.label} {entry.status}" for entry in series.entries if name not in entry.figures]
    return Trend(name, meaning.title, meaning.unit, meaning.higher_is_better, runs, levels, steps, without)


def figure(value: float) -> str:
    """A value with four significant digits, and no exponent."""
    whole = len(f"{abs(value):.0f}") if abs(value) >= 1 else 0
    if whole:
        return f"{value:.{max(0, 4 - whole)}f}"
    return f"{value:.4f}"


def with_unit(value: float, unit: str) -> str:
    """`44.10 ms`."""
    return f"{figure(value)} {unit}".rstrip()


def day(started_ns: int) -> str:
    """The date in UTC."""
    return f"{_time(started_ns):%Y-%m-%d}"


def minute(started_ns: int) -> str:
    """Date and time in UTC, as one word."""
    return f"{_time(started_ns):%Y-%m-%dT%H:%M}"


def _time(started_ns: int) -> datetime:
    return datetime.fromtimestamp(started_ns / 1e9, UTC)


def _step(runs: list[TrendRun], before: Level, after: Level, unit: str, higher_is_better: bool) -> LevelStep:
    first, last = runs[after.start], runs[after.start - 1]
    change = after.value / before.value - 1 if before.value else None
    better = (after.value > before.value) == higher_is_better
    within = bool(first.revision) and first.revision == last.revision and not (first.dirty or last.dirty)
    shown = "" if change is None else f"{percent(change, signed=True)}, "
    text = f"since revision {first.label} ({minute(first.started_ns)}): {shown}"
    text += (
        f"from {figure(before.value)} to {with_unit(after.value, unit)}, {'better' if better else 'worse'}"
    )
    if within:
        text += "; the run before is of the same revision: look at the machine, or at the revision a run or two away"
    return LevelStep(
        after.start,
        first.identity,
        first.revision,
        first.label,
        first.started_ns,
        before.value,
        after.value,
        change,
        better,
        within,
        text,
    )


def _conflicts(one: dict[str, Any], other: dict[str, Any]) -> set[str]:
    return {key for key in one.keys() & other.keys() if one[key] != other[key]}


def _matches(series: Series, selection: Selection) -> bool:
    named = ("profile", "backend", "model")
    patterns = [(getattr(series, name), getattr(selection, name)) for name in named]
    if selection.machine is not None:
        patterns.append((series.machine, f"*{selection.machine}*"))
    return all(pattern is None or fnmatchcase(value, pattern) for value, pattern in patterns) and (
        selection.id is None or series.id.startswith(selection.id)
    )


def _names(series: Sequence[Series]) -> str:
    shown = "; ".join(f"{entry.id} {entry.title}" for entry in series[:8])
    return shown + (f" and {len(series) - 8} more" if len(series) > 8 else "")
