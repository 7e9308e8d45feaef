"""Small files of figures that other tools leave: step records, counters, samples, logs of events.

Each becomes an `Observation`: figures by name, None where one cannot be had, and notes on what to know about them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import Any, Literal

import msgspec

from analyzers.readers.json_objects import decode_text, iterate_lines
from analyzers.readers.load import IssueCounter, LoadReport
from analyzers.statistics import P95_NEEDS, P99_NEEDS, percentile, uniform_test

ObservationKind = Literal["rank steps", "draft steps", "counters", "samples", "events"]

STRAGGLER_P_VALUE = 0.01
_WALL_STEP_NS = 1_000_000
"""The wall clock stepped when it and the monotonic clock disagree by more than this between two events."""

_SERIES = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)(\{[^}]*\})?[ \t]+(\S+)(?:[ \t]+-?\d+)?[ \t]*", re.ASCII)
_DRAFTS, _DRAFT_TOKENS, _ACCEPTED = (
    "spec_decode_num_drafts_total",
    "spec_decode_num_draft_tokens_total",
    "spec_decode_num_accepted_tokens_total",
)


class Observation(msgspec.Struct, frozen=True):
    """The figures of one file, or of a pair that belongs together. Names carry their unit."""

    path: str
    kind: ObservationKind
    n: int
    figures: dict[str, float | None]
    notes: list[str] = []


class _BadRecordError(ValueError):
    """A record that cannot be what the others are."""


def kind_of(data: bytes) -> ObservationKind | None:
    """What small file this is; None for anything else."""
    text = data[:65536].decode("utf-8-sig", errors="replace").lstrip()
    if re.match(r"\[\s*-?\d", text):
        return "samples"
    if text.startswith("{"):
        first = next(iterate_lines(text.split("\n", 1)[0], IssueCounter()), None)
        record = json.loads(first[1]) if first is not None else {}
        if "ev" in record and "ph" not in record:
            return "events"
        if "step" in record and isinstance(record.get("ms"), dict):
            return "rank steps"
        return "draft steps" if record.keys() >= {"drafted", "accepted"} else None
    lines = [line for line in text.split("\n") if line.strip() and not line.startswith("#")]
    return "counters" if lines and all(map(_SERIES.fullmatch, lines[:-1] or lines)) else None


def read_small_file(
    data: bytes, path: str, kind: ObservationKind, issues: IssueCounter
) -> tuple[Observation, LoadReport]:
    """Read one file; a record that cannot be used is counted as lost."""
    text = decode_text(data, issues)
    if kind == "samples":
        records, observation = _samples(text, path, issues)
    elif kind == "counters":
        series = _series(text, issues)
        records, observation = len(series), _counters(path, {}, series)
    else:
        measures: dict[
            str, tuple[Callable[[dict[str, Any]], Any], Callable[[str, Sequence[Any]], Observation]]
        ] = {
            "rank steps": (_rank_times, _rank_steps),
            "draft steps": (_draft_counts, _draft_steps),
            "events": (_event, _events),
        }
        parse, measure = measures[kind]
        found, records = [], 0
        for number, line in iterate_lines(text, issues):
            records += 1
            try:
                found.append(parse(json.loads(line)))
            except (_BadRecordError, TypeError, ValueError, OverflowError) as error:
                issues.add("bad_line", f"line {number}: {error}", lost=1)
        observation = measure(path, found)
    report = LoadReport(
        path=path, format="observations", records=records, parsed=observation.n, issues=issues.issues()
    )
    return observation, report


def between(before: tuple[str, bytes], after: tuple[str, bytes]) -> Observation:
    """What counters counted between two readings; a counter that went back has no figure."""
    readings = [_series(decode_text(data, IssueCounter()), IssueCounter()) for _, data in (before, after)]
    return _counters(f"{before[0]} to {after[0]}", *readings)


def _number(value: Any, *, least: float = 0) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < 2**62:
        raise _BadRecordError(f"{str(value)[:40]!r} is no figure")
    return value


def _samples(text: str, path: str, issues: IssueCounter) -> tuple[int, Observation]:
    try:
        items = json.loads(text)
    except (ValueError, RecursionError):
        issues.add("malformed", "line 1", lost=1)
        return 1, Observation(path, "samples", 0, {})
    values = [
        item
        for item in items
        if isinstance(item, int | float) and not isinstance(item, bool) and abs(item) < 2**62
    ]
    if len(values) < len(items):
        issues.add(
            "malformed",
            "samples that are no numbers",
            count=len(items) - len(values),
            lost=len(items) - len(values),
        )
    notes = ["percentiles interpolate linearly between order statistics"]
    figures: dict[str, float | None] = {}
    for percent, needs in ((50, 1), (95, P95_NEEDS), (99, P99_NEEDS)):
        figures[f"p{percent}"] = percentile(values, percent) if values else None
        if values and len(values) < needs:
            notes.append(f"p{percent}: n={len(values)} < {needs}: not resolvable")
    return len(items), Observation(path, "samples", len(values), figures, notes)


def _rank_times(record: dict[str, Any]) -> dict[str, float]:
    times = record.get("ms")
    if not isinstance(times, dict) or not times:
        raise _BadRecordError("no times of ranks")
    return {rank: _number(time) for rank, time in times.items()}


def _rank_steps(path: str, steps: Sequence[dict[str, float]]) -> Observation:
    """Who is slowest in each step, and whether it is always the same rank."""
    ranks = sorted({rank for step in steps for rank in step}, key=lambda rank: (len(rank), rank))
    whole = [step for step in steps if len(step) == len(ranks) > 1]
    slowest: Counter[str] = Counter()
    for step in whole:
        most = [rank for rank, time in step.items() if time == max(step.values())]
        if len(most) == 1:
            slowest[most[0]] += 1
    notes = (
        [f"{len(steps) - len(whole)} steps without every rank left out"] if len(whole) < len(steps) else []
    )
    figures: dict[str, float | None] = {
        "median step skew (ms)": median(max(step.values()) - min(step.values()) for step in whole)
        if whole
        else None,
        "culprit stability": None,
    }
    if slowest:
        rank, count = slowest.most_common(1)[0]
        figures["culprit stability"] = count / sum(slowest.values())
        test = uniform_test([slowest[other] for other in ranks])
        if test is not None and test.p_value < STRAGGLER_P_VALUE:
            notes.append(
                f"persistent straggler: rank {rank}, slowest in {count} of {len(whole)} steps, p = {test.p_value:.2g}"
            )
        elif test is not None:
            notes.append(f"no persistent straggler (p = {test.p_value:.2g}, {test.method})")
    return Observation(path, "rank steps", len(steps), figures, notes)


def _draft_counts(record: dict[str, Any]) -> tuple[int, int]:
    drafted, accepted = int(_number(record.get("drafted"))), int(_number(record.get("accepted")))
    if accepted > drafted:
        raise _BadRecordError(f"{accepted} drafts accepted of {drafted}")
    return drafted, accepted


def _draft_steps(path: str, steps: Sequence[tuple[int, int]]) -> Observation:
    drafted, accepted = sum(step[0] for step in steps), sum(step[1] for step in steps)
    return Observation(path, "draft steps", len(steps), _acceptance(len(steps), drafted, accepted))


def _acceptance(steps: float, drafted: float, accepted: float) -> dict[str, float | None]:
    """metrics.md, MTP: the bonus token counts in the length and is no draft."""
    possible = 0 <= accepted <= drafted
    return {
        "steps": steps,
        "drafted": drafted,
        "accepted": accepted,
        "acceptance rate": accepted / drafted if drafted and possible else None,
        "acceptance length": 1 + accepted / steps if steps and possible else None,
        "accepted drafts per step": accepted / steps if steps and possible else None,
    }


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


def _counters(path: str, before: dict[str, float], after: dict[str, float]) -> Observation:
    """Counters of speculative decoding, summed over engines."""
    notes, totals = [], dict.fromkeys((_DRAFTS, _DRAFT_TOKENS, _ACCEPTED), 0.0)
    broken = False
    for series, value in after.items():
        name = next((name for name in totals if series.partition("{")[0].endswith(name)), None)
        if name is None:
            continue
        counted = value - before.get(series, 0.0)
        if not 0 <= counted < 2**62:
            notes.append(
                f"{series} went from {before.get(series, 0.0):g} to {value:g}: the counter was reset"
            )
            broken = True
        totals[name] += counted
    if not any(series.partition("{")[0].endswith(tuple(totals)) for series in after):
        return Observation(path, "counters", len(after), {}, ["no counters of speculative decoding"])
    figures = _acceptance(*totals.values())
    if figures["acceptance rate"] is None and totals[_DRAFT_TOKENS]:
        notes.append("more accepted than drafted: the counts are impossible")
    return Observation(
        path, "counters", len(after), dict.fromkeys(figures, None) if broken else figures, notes
    )


class _Event(msgspec.Struct, frozen=True):
    name: str
    identity: str
    mono_ns: int | None
    wall_ns: int | None


def _event(record: dict[str, Any]) -> _Event:
    mono = record.get("mono_ns")
    wall = record.get("wall")
    wall_ns = None
    if isinstance(wall, str):
        moment = datetime.fromisoformat(wall)
        wall_ns = round(moment.timestamp() * 1e6) * 1000
    return _Event(
        str(record.get("ev")), str(record.get("id")), None if mono is None else int(_number(mono)), wall_ns
    )


def _events(path: str, events: Sequence[_Event]) -> Observation:
    """Latency from submit to complete by the monotonic clock; the wall clock is only looked at for steps."""
    notes = []
    submitted = {event.identity: event for event in events if event.name == "submit"}
    latencies = []
    for event in events:
        begin = submitted.get(event.identity)
        if event.name != "complete" or begin is None or event.mono_ns is None or begin.mono_ns is None:
            continue
        if event.mono_ns >= begin.mono_ns:
            latencies.append(event.mono_ns - begin.mono_ns)
        else:
            notes.append(f"id {event.identity} completes before it is submitted: no latency")
    timed = [event for event in events if event.mono_ns is not None and event.wall_ns is not None]
    for before, after in pairwise(timed):
        step = ((after.wall_ns or 0) - (before.wall_ns or 0)) - ((after.mono_ns or 0) - (before.mono_ns or 0))
        if abs(step) > _WALL_STEP_NS:
            notes.append(f"wall_step={step / 1e9:g} s: the wall clock was set; it is in no figure")
            break
    mean = sum(latencies) / len(latencies) / 1e6 if latencies else None
    return Observation(path, "events", len(events), {"latency (ms)": mean, "pairs": len(latencies)}, notes)
