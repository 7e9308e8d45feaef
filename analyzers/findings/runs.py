"""That the inputs are of several runs, which were measured each by itself."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.report.finding import Finding


def several_runs(names: Sequence[str], evidence: str) -> Finding:
    """The finding for the runs `names`; `evidence` says what sets them apart."""
    return Finding(
        "runs_joined",
        "info",
        f"{len(names)} runs in one report: {', '.join(names)}",
        f"{evidence}; steps, ranks and clocks are those of each run, and nothing is matched across",
        "name one of them to see it alone, or set two against each other with `dsv4bench compare`",
    )
