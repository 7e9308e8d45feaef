"""Rounds across ranks: what is missing, who is late, and what is unusual inside the runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from itertools import pairwise
from statistics import median

from analyzers.findings.lateness import lateness
from analyzers.findings.tails import long_tails
from analyzers.measurement import Measured
from analyzers.ranks.failures import open_parts
from analyzers.ranks.rounds import RankRun, Round
from analyzers.ranks.skew import RankSkew
from analyzers.report.model import Finding, Report, Severity
from analyzers.statistics.robust import MODIFIED_Z, modified_z
from analyzers.table.callables import is_prefill
from analyzers.table.intervals import Interval
from analyzers.table.spans import ABSENT
from analyzers.text.words import counted, milliseconds

SAMPLES_NEEDED = 8
"""Fewer runs than this have no outliers and no typical gap."""

BIND_RATIO = 10
BIND_NS = 1_000_000
EXPOSED_SHARE = 0.05
"""Outliers of binds cost something when runners wait for them for this share of the time."""

GAP_SHARE = 0.02
"""Gaps between phases that take less than this share of a run say nothing about the trace."""


def ranks(measured: Measured, report: Report) -> Iterable[Finding]:
    """Incomplete rounds, late and slow ranks, and what is unusual inside their runs."""
    assigned = measured.recording.ranks
    silent = {assigned.ranks[process] for process in assigned.silent}
    unfinished = set(measured.schedule.part_worker[open_parts(measured.schedule)].tolist())
    yield from _rounds(report, measured, silent, unfinished)
    for skew in _headline(report.skew):
        rounds = measured.matching.of(skew.callable)
        chosen = _in_scope(skew, rounds, measured)
        yield from lateness(skew, [item for _, item in chosen], measured)
        if not is_prefill(skew.callable):
            yield from long_tails(skew, rounds)
            # What is done once, in the first round, is no outlier.
            usual = chosen if skew.scope == "steady" else chosen[1:]
            yield from _bind_outliers(skew, usual, rounds)
            yield from _record_gaps(skew, [item for _, item in usual])


def _in_scope(skew: RankSkew, rounds: Sequence[Round], measured: Measured) -> list[tuple[int, Round]]:
    """The rounds that the figures cover, with their index."""
    if skew.scope == "all":
        return list(enumerate(rounds))
    return [
        (index, item) for index, item in enumerate(rounds) if item.dispatch_id in measured.steady_dispatches
    ]


def _ranks_words(ranks: Iterable[int]) -> str:
    listed = sorted(ranks)
    return f"{'rank' if len(listed) == 1 else 'ranks'} {', '.join(map(str, listed))}"


def _rounds(report: Report, measured: Measured, silent: Set[int], unfinished: Set[int]) -> Iterable[Finding]:
    contradicting = measured.matching.contradicting
    if contradicting:
        first_run = contradicting[0]
        yield Finding(
            "runs_contradict",
            "warning",
            f"{counted(len(contradicting), 'run')} of one rank and identity contradict each other: none of them counts",
            f"first: rank {first_run.rank}, invocation {first_run.invocation}, at {first_run.root.start_ns} ns; "
            f"rounds are matched by {measured.matching.matched_by}",
            "look for records that were delivered twice and damaged once",
        )
    if any(entry.matched_by == "order" and len(entry.ranks) > 1 for entry in report.skew):
        yield Finding(
            "matched_by_order",
            "warning",
            "rounds matched across ranks by order alone",
            "runs carry neither shared ids nor invocations; in "
            f"{measured.matching.not_overlapping} rounds the runs do not overlap",
            "a lost record would shift later rounds: read these skews with care",
        )
    for entry in report.skew:
        if entry.scope == "all" and entry.incomplete:
            first = entry.incomplete[0]
            lost = any(run.callable == entry.callable for run in report.lost_runs)
            failed = {failure.rank for failure in report.failures}
            without = {rank for item in entry.incomplete for rank in item.missing_ranks}
            at_edge = not lost and entry.matched_by != "order" and not without & (failed | silent)
            severity: Severity = "info" if at_edge else "warning"
            title = (
                f"{entry.callable}: {len(entry.incomplete)} of {counted(entry.rounds, 'round')} incomplete"
            )
            run_ids = {run.run_id for run in measured.matching.of(entry.callable)[first.round].runs.values()}
            of_run = f" (run {run_ids.pop()})" if len(run_ids) == 1 and ABSENT not in run_ids else ""
            evidence = (
                f"first: round {first.round}{of_run} without rank {', '.join(map(str, first.missing_ranks))}"
            )
            if at_edge and not without.isdisjoint(unfinished):
                evidence += f"; the recording ends before {_ranks_words(unfinished & without)} completed what others did"
            elif at_edge and report.run is not None and report.run.status != "complete":
                evidence += f"; the run is {report.run.status}"
            elif at_edge:
                evidence += "; the edge of the recording cuts them"
            elif without <= failed:
                evidence += f"; {_ranks_words(failed & without)} failed"
            yield Finding("incomplete_rounds", severity, title, evidence, "their skews are left out")


def _headline(figures: list[RankSkew]) -> list[RankSkew]:
    """One entry a callable: its steady rounds where there are any."""
    chosen: dict[str, RankSkew] = {}
    for entry in figures:
        chosen.setdefault(entry.callable, entry)
    return list(chosen.values())


def _bind_outliers(
    skew: RankSkew, chosen: Sequence[tuple[int, Round]], rounds: Sequence[Round]
) -> Iterable[Finding]:
    """Binds far beyond the others: by modified z, ten times the median and a millisecond, all three.

    A bind behind the runner of the round ahead costs nothing; a warning where the rest is worth a word.
    """
    binds = [
        (index, rank, bind)
        for index, item in chosen
        for rank, run in item.runs.items()
        if (bind := run.bound_ahead or run.phases.get("bind")) is not None
    ]
    if len(binds) < SAMPLES_NEEDED:
        return
    durations = [bind.duration_ns for _, _, bind in binds]
    usual = median(durations)
    least = max(BIND_RATIO * usual, BIND_NS)
    scores = modified_z(durations)
    outliers = [
        found
        for found, score in zip(binds, scores, strict=True)
        if score > MODIFIED_Z and found[2].duration_ns >= least
    ]
    if not outliers:
        return
    index, rank, longest = max(outliers, key=lambda found: found[2].duration_ns)
    # A round waits for the last of its binds.
    waits: dict[int, int] = {}
    for found in outliers:
        waits[found[0]] = max(waits.get(found[0], 0), _exposed(found, rounds))
    exposed = sum(waits.values())
    roots = [run.root for _, item in chosen for run in item.runs.values()]
    lasted = max(root.end_ns for root in roots) - min(root.start_ns for root in roots)
    are = "is an outlier" if len(outliers) == 1 else "are outliers"
    yield Finding(
        "bind_outliers",
        "warning" if exposed >= EXPOSED_SHARE * lasted else "info",
        f"{skew.callable}: {len(outliers)} of {len(binds)} binds {are}, the longest {milliseconds(longest.duration_ns)}",
        f"rank {rank} in round {index}; the median is {milliseconds(usual)}; rounds waited "
        f"{milliseconds(exposed)} for them in all, the rest is behind the runner of the round ahead",
        "look at what the host did during these binds: dsv4bench view",
        figures={
            "outliers": len(outliers),
            "binds": len(binds),
            "median_ns": usual,
            "longest_ns": longest.duration_ns,
            "exposed_ns": exposed,
        },
    )


def _exposed(found: tuple[int, int, Interval], rounds: Sequence[Round]) -> int:
    """How much of a bind, ns, lies behind the end of the rank's runner of the round ahead."""
    index, rank, bind = found
    ahead = rounds[index - 1].runs.get(rank) if index else None
    runner = ahead.phases.get("runner_run") if ahead is not None else None
    return max(0, bind.end_ns - max(bind.start_ns, runner.end_ns if runner is not None else bind.start_ns))


def _record_gaps(skew: RankSkew, rounds: Sequence[Round]) -> Iterable[Finding]:
    """Time between the phases of a run, where records are written: a trace that shows itself."""
    runs = [run for item in rounds for run in item.runs.values() if len(run.phases) > 1]
    if len(runs) < SAMPLES_NEEDED:
        return
    gaps = [sum(_gaps(run)) for run in runs]
    typical, root = median(gaps), median([run.root.duration_ns for run in runs])
    if typical >= GAP_SHARE * root > 0:
        yield Finding(
            "record_gaps",
            "warning",
            f"{skew.callable}: the gaps between a run's phases take {100 * typical / root:.1f} % of it",
            f"median {milliseconds(typical)} of {milliseconds(root)} over {len(runs)} runs; "
            "where records are written in them, tracing shows",
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
