"""Ranks that failed, and which rounds that left incomplete."""

from __future__ import annotations

from collections.abc import Iterable

from analyzers.ranks.failures import RankFailure
from analyzers.report.model import Finding, Report
from analyzers.text.words import counted

_ADVICE = {
    "died": "look at the last lines of that process, and at what ended it (the kernel's log for signal 9)",
    "hung": "look at what that process was doing when it was given the run",
    "failed": "look at the task's error in the log of that process",
}


def failures(report: Report) -> Iterable[Finding]:
    """One finding a rank: what became of it, in which runs, by which evidence, and the rounds that lack it."""
    for failure in report.failures:
        missing = sum(
            failure.rank in item.missing_ranks
            for entry in report.skew
            if entry.scope == "all"
            for item in entry.incomplete
        )
        pid = f" (pid {failure.pid})" if failure.pid is not None else ""
        evidence = failure.evidence
        if missing:
            evidence += f"; {counted(missing, 'incomplete round')} without it"
        yield Finding(
            "rank_failed",
            "error",
            f"rank {failure.rank}{pid} {_in_runs(failure)}",
            evidence,
            _ADVICE[failure.kind],
            figures={"rank": failure.rank, "runs": len(failure.runs), "incomplete_rounds": missing},
        )


def _in_runs(failure: RankFailure) -> str:
    if not failure.runs:
        return failure.kind
    if failure.kind == "died":
        which = "run" if len(failure.runs) == 1 else "runs"
        return f"died with {which} {_listed(failure.runs)}"
    which = "run" if len(failure.runs) == 1 else "runs"
    return f"{failure.kind} in {which} {_listed(failure.runs)}"


def _listed(runs: list[int]) -> str:
    shown = [str(run) for run in runs[:10]]
    if len(runs) > 10:
        shown.append(f"{len(runs) - 10} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
