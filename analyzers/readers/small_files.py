"""Small files of figures that other tools leave: step records, counters, samples, logs of events.

Each becomes an `Observation`: figures by name, None where one cannot be had, and notes on what to know about them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median
from typing import Any, Literal

import msgspec

from analyzers.readers.json_objects import (
    DamagedError,
    decode_text,
    iterate_lines,
    parse_value,
    skip_space,
    value_at,
)
from analyzers.readers.load_report import IssueCounter, LoadReport
from analyzers.statistics.counts import uniform_test
from analyzers.statistics.summary import P95_NEEDS, P99_NEEDS, percentile
from analyzers.table.arguments import LENIENT_JSON
from analyzers.text.words import counted

ObservationKind = Literal["rank steps", "draft steps", "counters", "samples", "events"]

STRAGGLER_P_VALUE = 0.01
_WALL_STEP_NS = 1_000_000
"""The wall clock stepped when it and the monotonic clock disagree by more than this between two events."""

_SERIES = re.compile(
    r"([A-Za-z_:][A-Za-z0-9_:]*)(\{(?:[^}\"]|\"(?:[^\"\\]|\\.)*\")*\})?"  # name and labels
    r"[ \t]+([^\s#]+)(?:[ \t]+-?\d+(?:\.\d+)?)?(?:[ \t]+#.*)?[ \t]*",  # value, time, exemplar
    re.ASCII,
)
_DRAFTS, _DRAFT_TOKENS, _ACCEPTED = "drafts", "draft_tokens", "accepted_tokens"
_SPECULATION = re.compile(rf"spec_decode_num_({_DRAFTS}|{_DRAFT_TOKENS}|{_ACCEPTED})(_total)?$")
_MOST_SERIES = 0.8
"""The share of its lines that must be series in a file of counters."""

_LINES = 20
"""Lines of which one must be a whole record, so that a damaged first one hides nothing."""

_STEPS_SHOWN = 20


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
    """What small file this is, by its first bytes; None for anything else."""
    text = data[:65536].decode("utf-8-sig", errors="replace").lstrip()
    if re.match(r"\[\s*-?\d", text):
        return "samples"
    if text.startswith("{"):
        return _kind_of_records(text)
    lines = [line for line in text.split("\n") if line.strip() and not line.startswith("#")]
    whole = lines[:-1] or lines
    are_series = sum(_SERIES.fullmatch(line.rstrip("\r")) is not None for line in whole)
    return "counters" if whole and are_series >= _MOST_SERIES * len(whole) else None


def _kind_of_records(text: str) -> ObservationKind | None:
    for line in text.split("\n", _LINES)[:_LINES]:
        found = value_at(line, 0)
        if found is not None and isinstance(record := found[0], dict):
            return next((kind for kind, accepts in _RECORDS.items() if accepts(record)), None)
    return None


_RECORDS: dict[ObservationKind, Callable[[dict[str, Any]], bool]] = {
    "events": lambda record: "ev" in record and "ph" not in record,
    "rank steps": lambda record: "step" in record and isinstance(record.get("ms"), dict),
    "draft steps": lambda record: record.keys() >= {"drafted", "accepted"},
}
"""What a record of each kind looks like."""


def read_small_file(
    data: bytes, path: str, kind: ObservationKind, issues: IssueCounter
) -> tuple[Observation, LoadReport]:
    """Read one file; a record that cannot be used is counted as lost."""
    text = decode_text(data, issues)
    if kind == "samples":
        observation = _samples(text, path, issues)
    elif kind == "counters":
        observation = _counters(path, {}, _series(text, issues))
    else:
        measures: dict[
            str, tuple[Callable[[dict[str, Any]], Any], Callable[[str, Sequence[Any]], Observation]]
        ] = {
            "rank steps": (_rank_times, _rank_steps),
            "draft steps": (_draft_counts, _draft_steps),
            "events": (_event, _events),
        }
        parse, measure = measures[kind]
        found = []
        for number, line in iterate_lines(text, issues, _RECORDS[kind]):
            try:
                found.append(parse(LENIENT_JSON.decode(line)))
            except (_BadRecordError, TypeError, ValueError, OverflowError) as error:
                issues.add("bad_line", f"line {number}: {error}", lost=1)
        observation = measure(path, found)
    lost = issues.lost("bad_line", "malformed", "torn_tail")
    report = LoadReport(
        path=path,
        format="observations",
        records=observation.n + lost,
        parsed=observation.n,
        issues=issues.issues(),
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


def _samples(text: str, path: str, issues: IssueCounter) -> Observation:
    values = [value for value, _ in _array_items(text, issues)]
    numbers = [
        value
        for value in values
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**62
    ]
    strangers = len(values) - len(numbers)
    issues.add("malformed", "samples that are no numbers", count=strangers, lost=strangers)
    notes = ["percentiles interpolate linearly between order statistics"]
    figures: dict[str, float | None] = {}
    for percent, needs in ((50, 1), (95, P95_NEEDS), (99, P99_NEEDS)):
        figures[f"p{percent}"] = percentile(numbers, percent) if numbers else None
        if len(numbers) < needs:
            notes.append(f"p{percent}: n={len(numbers)} < {needs}: not resolvable")
    return Observation(path, "samples", len(numbers), figures, notes)


def _array_items(text: str, issues: IssueCounter) -> Iterator[tuple[Any, int]]:
    """The values of one array and their ends; of a damaged one, those before the damage."""
    position = skip_space(text, 0) + 1
    while True:
        position = skip_space(text, position)
        if text[position : position + 1] == "]":
            if text[position + 1 :].strip():
                issues.add("trailing_data", f"byte {len(text[:position].encode())}", lost=1)
            return
        where = f"byte {len(text[:position].encode())}"
        if position >= len(text):
            issues.add("unterminated", where)
            return
        try:
            value, end = parse_value(text, position)
        except DamagedError as error:
            issues.add("torn_tail" if error.is_cut else "malformed", where, lost=1)
            return
        position = skip_space(text, end)
        if position >= len(text):
            # The end of the file may have cut the number.
            issues.add("torn_tail", where, lost=1)
            issues.add("unterminated", where)
            return
        yield value, end
        if text[position] == ",":
            position += 1
        elif text[position] != "]":
            issues.add("malformed", where, lost=1)
            return


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
    slowest.update(rank for step in whole if (rank := _slowest(step)) is not None)
    notes = (
        [f"{counted(len(steps) - len(whole), 'step')} without every rank left out"]
        if len(whole) < len(steps)
        else []
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
        share = f"{100 * count / sum(slowest.values()):.0f}%"
        test = uniform_test([slowest[other] for other in ranks])
        if test is not None and test.p_value < STRAGGLER_P_VALUE:
            notes.append(
                f"persistent straggler: rank {rank}, slowest in {count} of {len(whole)} steps, p = {test.p_value:.2g}"
            )
        elif test is not None:
            notes.append(
                f"no persistent straggler: no rank is slowest in more than {share} of the steps"
                f" (p = {test.p_value:.2g}, {test.method})"
            )
    shown = [_slowest(step) for step in whole[:_STEPS_SHOWN]]
    if shown:
        more = f" and {len(whole) - len(shown)} more" if len(whole) > len(shown) else ""
        notes.append(f"slowest by step: {', '.join(rank or 'several' for rank in shown)}{more}")
    return Observation(path, "rank steps", len(steps), figures, notes)


def _slowest(step: dict[str, float]) -> str | None:
    """The rank that took longest; None where several did."""
    most = [rank for rank, time in step.items() if time == max(step.values())]
    return most[0] if len(most) == 1 else None


def _count(value: Any) -> int:
    number = _number(value)
    if number != int(number):
        raise _BadRecordError(f"{number} is no count")
    return int(number)


def _draft_counts(record: dict[str, Any]) -> tuple[int, int]:
    drafted, accepted = _count(record.get("drafted")), _count(record.get("accepted"))
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
    figures = _acceptance(*totals.values())
    if figures["acceptance rate"] is None and totals[_DRAFT_TOKENS] and not broken:
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
    return _Event(
        str(record.get("ev")),
        str(record.get("id")),
        None if mono is None else _count(mono),
        _wall_ns(record.get("wall_ns"), record.get("wall")),
    )


def _wall_ns(wall_ns: Any, wall: Any) -> int | None:
    """The wall time of an event in ns: a number of ns, an ISO 8601 text, or seconds; None where it is no time.

    It is in no figure, so that a bad one costs nothing.
    """
    if isinstance(wall_ns, int) and not isinstance(wall_ns, bool):
        return wall_ns
    if isinstance(wall, int | float) and not isinstance(wall, bool) and abs(wall) < 2**33:
        return round(wall * 1e9)
    if not isinstance(wall, str):
        return None
    try:
        moment = datetime.fromisoformat(wall)
        return round(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1e6) * 1000
    except (ValueError, OverflowError):
        return None


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
