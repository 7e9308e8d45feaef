"""Counters of a server in the Prometheus text format: those of speculative decoding, at once or between two readings."""

from __future__ import annotations

import re
from dataclasses import dataclass

from analyzers.readers.files import OpenedFile
from analyzers.readers.json_objects import decode_text
from analyzers.readers.load_report import IssueCounter
from analyzers.readers.observations.acceptance import AcceptanceFigure, acceptance
from analyzers.readers.observations.observation import Observation, ObservedFile, report_of

_SERIES = re.compile(
    r"([A-Za-z_:][A-Za-z0-9_:]*)(\{(?:[^}\"]|\"(?:[^\"\\]|\\.)*\")*\})?"  # name and labels
    r"[ \t]+([^\s#]+)(?:[ \t]+-?\d+(?:\.\d+)?)?(?:[ \t]+#.*)?[ \t]*",  # value, time, exemplar
    re.ASCII,
)
_DRAFTS, _DRAFT_TOKENS, _ACCEPTED = "drafts", "draft_tokens", "accepted_tokens"
_SPECULATION = re.compile(rf"spec_decode_num_({_DRAFTS}|{_DRAFT_TOKENS}|{_ACCEPTED})(_total)?$")
_MOST_SERIES = 0.8
"""The share of its lines that must be series in a file of counters."""


@dataclass(frozen=True)
class CounterReading(ObservedFile):
    """One reading of the counters of a server."""

    series: dict[str, float]
    """Name and labels -> value."""


def looks_like(opened: OpenedFile) -> bool:
    """Whether most lines are series of a name, labels and a value."""
    text = opened.first_text
    if text.startswith("{"):
        return False
    lines = [line for line in text.split("\n") if line.strip() and not line.startswith("#")]
    whole = lines[:-1] or lines
    are_series = sum(_SERIES.fullmatch(line.rstrip("\r")) is not None for line in whole)
    return bool(whole) and are_series >= _MOST_SERIES * len(whole)


def read(opened: OpenedFile) -> CounterReading:
    """What the counters counted since they were 0."""
    series = _series(decode_text(opened.whole(), opened.issues), opened.issues)
    observation = _measure(opened.name, {}, series)
    return CounterReading(observation, report_of(opened.name, observation.n, opened.issues), series)


def between(before: CounterReading, after: CounterReading) -> Observation:
    """What counters counted between two readings; a counter that went back has no figure."""
    path = f"{before.observation.path} to {after.observation.path}"
    return _measure(path, before.series, after.series)


def _series(text: str, issues: IssueCounter) -> dict[str, float]:
    """Series -> value; the `_created` gauges hold times, not counts, and are left out."""
    found: dict[str, float] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _SERIES.fullmatch(line.rstrip("\r"))
        try:
            value = float(match[3]) if match else None
        except ValueError:
            value = None
        if match is None or value is None:
            issues.add("bad_line", f"line {number}", lost=1)
        elif not match[1].endswith("_created"):
            found[match[1] + (match[2] or "")] = value
    return found


def _measure(path: str, before: dict[str, float], after: dict[str, float]) -> Observation:
    """Counters of speculative decoding, summed over engines; `_total` counts where a name comes with and without."""
    names = {series: match for series in after if (match := _SPECULATION.search(series.partition("{")[0]))}
    if not names:
        return Observation(path, "counters", len(after), {}, ["no counters of speculative decoding"])
    has_totals = any(match[2] for match in names.values())
    notes, totals = [], dict.fromkeys((_DRAFTS, _DRAFT_TOKENS, _ACCEPTED), 0.0)
    broken = False
    for series, match in names.items():
        if has_totals and not match[2]:
            continue
        first, last = before.get(series, 0.0), after[series]
        counted = last - first
        if not 0 <= counted < 2**62:
            broken = True
            was_reset = last < first
            notes.append(
                f"{series} went from {first:g} to {last:g}: "
                + ("the counter was reset" if was_reset else "that is no count")
            )
        totals[match[1]] += counted
    figures = acceptance(*totals.values())
    if figures[AcceptanceFigure.RATE] is None and totals[_DRAFT_TOKENS] and not broken:
        notes.append("more accepted than drafted: the counts are impossible")
    if broken:
        figures = dict.fromkeys(figures, None)
    return Observation(path, "counters", len(after), figures, notes)
