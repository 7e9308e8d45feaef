"""Rounds across ranks: what is missing, who is late, by how much, and in which phase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median

from analyzers.callables import is_prefill
from analyzers.findings.context import Measured, milliseconds
from analyzers.findings.outliers import MODIFIED_Z, modified_z
from analyzers.report.model import Finding, Report, Severity
from analyzers.rounds import RankRun, Round
from analyzers.skew import Lateness, RankSkew

STRAGGLER_P_VALUE = 0.01
LATE_SHARE = 0.05
"""Late ranks in this share of the rounds are a warning; a few are what any host does now and then."""

ROTATING_SHARE = 0.1
"""A runner-end skew from this share of the runner's duration on is worth saying who causes it."""

SAMPLES_NEEDED = 8
"""Fewer runs than this have no outliers and no typical gap."""

BIND_RATIO = 10
BIND_NS = 1_000_000
GAP_SHARE = 0.02
"""Gaps between phases that take less than this share of a run say nothing about the trace."""


def ranks(measured: Measured) -> Iterable[Finding]:
    """Incomplete rounds, late and slow ranks, and what is unusual inside their runs."""
    yield from _rounds(measured.report, measured.matching.not_overlapping)
    for skew in _headline(measured.report.skew):
        rounds = [item for item in measured.matching.rounds if item.callable == skew.callable]
        yield from _lateness(skew)
        if not is_prefill(skew.callable):
            yield from _long_tails(skew, rounds)
            chosen = _in_scope(skew, rounds, measured)
            yield from _bind_outliers(skew, chosen)
            yield from _record_gaps(skew, chosen)


def _in_scope(skew: RankSkew, rounds: Sequence[Round], measured: Measured) -> list[tuple[int, Round]]:
    """The rounds that the figures cover, by their index; without steady ones all but the first."""
    if skew.scope == "all":
        return list(enumerate(rounds))[1:]
    steady = {step.dispatch_id for result in measured.pipelines for step in result.steady_steps}
    return [
        (index, item)
        for index, item in enumerate(rounds)
        if next(iter(item.runs.values())).dispatch_id in steady
    ]


def _rounds(report: Report, not_overlapping: int) -> Iterable[Finding]:
    if any(entry.matched_by == "order" and len(entry.ranks) > 1 for entry in report.skew):
        yield Finding(
            "matched_by_order",
            "warning",
            "rounds matched across ranks by order alone",
            f"runs carry neither shared ids nor invocations; in {not_overlapping} rounds the runs do not overlap",
            "a lost record would shift later rounds: read these skews with care",
        )
    for entry in report.skew:
        if entry.scope == "all" and entry.incomplete:
            first = entry.incomplete[0]
            lost = any(run.callable == entry.callable for run in report.lost_runs)
            severity: Severity = "warning" if lost or entry.matched_by == "order" else "info"
            title = f"{entry.callable}: {len(entry.incomplete)} of {entry.rounds} rounds incomplete"
            evidence = f"first: round {first.round} without rank {', '.join(map(str, first.missing_ranks))}"
            if severity == "info":
                evidence += "; the edge of the recording cuts them"
            yield Finding("incomplete_rounds", severity, title, evidence, "their skews are left out")


def _headline(figures: list[RankSkew]) -> list[RankSkew]:
    """One entry a callable: its steady rounds where there are any."""
    chosen: dict[str, RankSkew] = {}
    for entry in figures:
        chosen.setdefault(entry.callable, entry)
    return list(chosen.values())


def _lateness(skew: RankSkew) -> Iterable[Finding]:
    """Who is late: a rank, ranks in turn, and how often; a warning where that is common in decode."""
    events = [*skew.late_starts, *skew.long_tails]
    rounds = len({event.round for event in events})
    common = rounds >= LATE_SHARE * skew.runner_start_skew.n and not is_prefill(skew.callable)
    severity: Severity = "warning" if events and common else "info"
    for lateness in (skew.last_to_end, skew.last_to_start):
        yield from _straggler(skew, lateness, severity, any_late=bool(events))
    if events:
        title = (
            f"{skew.callable} ({skew.scope} rounds): {len(skew.late_starts)} late starts, "
            f"{len(skew.long_tails)} long tails of more than {milliseconds(skew.late_ns)}"
        )
        worst = max(events, key=lambda event: event.after_median_ns)
        evidence = (
            f"in {rounds} of {skew.runner_start_skew.n} rounds; "
            f"worst: rank {worst.rank} in round {worst.round}, {milliseconds(worst.after_median_ns)} late"
        )
        figures = {
            "late_starts": len(skew.late_starts),
            "long_tails": len(skew.long_tails),
            "rounds": rounds,
            "worst_ns": worst.after_median_ns,
        }
        yield Finding("late_ranks", severity, title, evidence, figures=figures)


def _straggler(
    skew: RankSkew, lateness: Lateness, severity_when_rotating: Severity, *, any_late: bool
) -> Iterable[Finding]:
    test = lateness.test
    if test is None:
        return
    rank, count = max(lateness.counts.items(), key=lambda entry: (entry[1], -entry[0]))
    verb = f"{lateness.edge}s last in {count} of {lateness.rounds} rounds"
    excess = lateness.median_excess_ns[rank]
    evidence = f"{verb}, by {milliseconds(excess)} after the median; p = {test.p_value:.2g} ({test.method})"
    figures = {
        "rank": rank,
        "last": count,
        "rounds": lateness.rounds,
        "median_excess_ns": excess,
        "p_value": test.p_value,
    }
    if test.p_value < STRAGGLER_P_VALUE:
        severity: Severity = "warning" if excess > skew.late_ns else "info"
        title = f"{skew.callable}: rank {rank} is persistently the last to {lateness.edge}"
        advice = "look at that device and at the host core of its process" if severity == "warning" else ""
        yield Finding("straggler", severity, title, evidence, advice, figures=figures)
    elif lateness.edge == "end" and lateness.rounds >= len(skew.ranks) and (any_late or _uneven(skew)):
        title = f"{skew.callable}: no persistent straggler, the last rank changes"
        stability = f"stability {100 * count / lateness.rounds:.0f} %"
        spread = f"median skew {milliseconds(skew.runner_end_skew.p50 or 0)}"
        evidence = f"rank {rank} {evidence}; {stability}, {spread}"
        yield Finding("no_persistent_straggler", severity_when_rotating, title, evidence, figures=figures)


def _uneven(skew: RankSkew) -> bool:
    """Whether ranks typically end so far apart that it matters beside what they run."""
    spread, runner = skew.runner_end_skew.p50, skew.runner_run.p50
    return spread is not None and runner is not None and spread >= ROTATING_SHARE * runner


def _long_tails(skew: RankSkew, rounds: Sequence[Round]) -> Iterable[Finding]:
    """What long tails consist of: the late rank beside the rank in the middle of its round, phase by phase."""
    parts: Counter[str] = Counter()
    total = count = 0
    for event in skew.long_tails:
        runs = rounds[event.round].runs
        late = runs[event.rank]
        split = _tail_parts(late, _middle(list(runs.values())))
        parts.update(split)
        total += sum(split.values())
        count += 1
    if not count or total <= 0:
        return
    largest = max(parts, key=lambda part: parts[part])
    share = parts[largest] / sum(value for value in parts.values() if value > 0)
    split_text = ", ".join(
        f"{part} {milliseconds(value / count)}" for part, value in parts.items() if abs(value) >= 500 * count
    )
    yield Finding(
        "long_tail_split",
        "info",
        f"{skew.callable}: long tails come from {largest} ({100 * share:.0f} % of what adds to them)",
        f"mean excess of {count} over the middle rank of their round: {milliseconds(total / count)} = {split_text}",
        figures={f"{part}_ns": value / count for part, value in parts.items()},
    )


def _middle(runs: list[RankRun]) -> RankRun:
    """The run whose runner ends in the middle; the earlier of two."""
    ordered = sorted(runs, key=lambda run: (run.phases["runner_run"].end_ns, run.rank))
    return ordered[(len(ordered) - 1) // 2]


def _tail_parts(late: RankRun, middle: RankRun) -> dict[str, int]:
    """End of the late root - end of the middle one, in ns, exactly: how much each part contributes."""
    parts = {"a late start": late.phases["runner_run"].start_ns - middle.phases["runner_run"].start_ns}
    runner = late.phases["runner_run"].duration_ns - middle.phases["runner_run"].duration_ns
    if late.device_wall_ns is not None and middle.device_wall_ns is not None:
        parts["the device wall"] = late.device_wall_ns - middle.device_wall_ns
        parts["the host side of the runner"] = runner - parts["the device wall"]
    else:
        parts["the runner"] = runner
    if "validate" in late.phases and "validate" in middle.phases:
        parts["the gap before validate"] = _gap(late) - _gap(middle)
        parts["validate"] = late.phases["validate"].duration_ns - middle.phases["validate"].duration_ns
    parts["the rest of the run"] = late.root.end_ns - middle.root.end_ns - sum(parts.values())
    return parts


def _gap(run: RankRun) -> int:
    return run.phases["validate"].start_ns - run.phases["runner_run"].end_ns


def _bind_outliers(skew: RankSkew, rounds: Sequence[tuple[int, Round]]) -> Iterable[Finding]:
    """Binds far beyond the others: by modified z, ten times the median and a millisecond, all three."""
    binds = [
        (index, rank, bind.duration_ns)
        for index, item in rounds
        for rank, run in item.runs.items()
        if (bind := run.bound_ahead or run.phases.get("bind")) is not None
    ]
    if len(binds) < SAMPLES_NEEDED:
        return
    durations = [duration for _, _, duration in binds]
    usual = median(durations)
    least = max(BIND_RATIO * usual, BIND_NS)
    scores = modified_z(durations)
    outliers = [
        bind for bind, score in zip(binds, scores, strict=True) if score > MODIFIED_Z and bind[2] >= least
    ]
    if outliers:
        index, rank, longest = max(outliers, key=lambda bind: bind[2])
        runner = skew.runner_run.p50
        yield Finding(
            "bind_outliers",
            # A shorter one hides behind the runner of the step ahead.
            "warning" if runner is not None and longest > runner else "info",
            f"{skew.callable}: {len(outliers)} of {len(binds)} binds are outliers, the longest {milliseconds(longest)}",
            f"rank {rank} in round {index}; the median is {milliseconds(usual)}",
            "look for allocations, first uses of a buffer, or a busy host core",
            figures={
                "outliers": len(outliers),
                "binds": len(binds),
                "median_ns": usual,
                "longest_ns": longest,
            },
        )


def _record_gaps(skew: RankSkew, rounds: Sequence[tuple[int, Round]]) -> Iterable[Finding]:
    """Time between the phases of a run, where records are written: a trace that shows itself."""
    runs = [run for _, item in rounds for run in item.runs.values() if len(run.phases) > 1]
    if len(runs) < SAMPLES_NEEDED:
        return
    gaps = [sum(_gaps(run)) for run in runs]
    typical, root = median(gaps), median([run.root.duration_ns for run in runs])
    if typical >= GAP_SHARE * root > 0:
        yield Finding(
            "record_gaps",
            "warning",
            f"{skew.callable}: gaps between a run's phases take {100 * typical / root:.1f} % of it",
            f"median {milliseconds(typical)} of {milliseconds(root)} over {len(runs)} runs; records are written there",
            "compare with a run without tracing (run --no-trace) before taking these figures for the engine's",
            figures={"median_gap_ns": typical, "median_root_ns": root, "runs": len(runs)},
        )


def _gaps(run: RankRun) -> Iterable[int]:
    """Between one phase and the next, ns; before the runner a rank may wait for the others' binds, which is no gap."""
    ordered = sorted(run.phases.items(), key=lambda entry: entry[1])
    return (
        max(0, after.start_ns - before.end_ns)
        for (_, before), (phase, after) in pairwise(ordered)
        if phase != "runner_run"
    )
