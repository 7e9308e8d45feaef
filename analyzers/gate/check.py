"""`gate check`: candidates and a stored baseline, read and judged (docs/gating.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from analyzers.errors import UnusableInputError
from analyzers.gate.baseline import baseline_path
from analyzers.gate.metrics import canonical, is_path, split_tag, suggestion
from analyzers.gate.model import GatePolicy, GateResult, Leniency, Samples
from analyzers.gate.policy import judged_metrics, judges_others
from analyzers.gate.samples import read_samples
from analyzers.gate.verdict import STRICT, decide

METHOD = "stored runs, one-sided exact rank test"


def check_runs(
    candidates: Sequence[Path], baseline: str | None, policy: GatePolicy, leniency: Leniency = STRICT
) -> GateResult:
    """Judge `candidates` against `baseline` (a name, or the path of runs or a samples file); None judges limits alone.

    Raises:
        UnusableInputError: an input cannot be read, no baseline and no limit is given, or a metric is on neither side.
        NotComparableError: the runs of one side differ among themselves.
    """
    metrics = judged_metrics(policy)
    if baseline is None and not any(asked.limit is not None for asked in metrics.values()):
        raise UnusableInputError(
            "nothing to compare with: name a baseline with --baseline, or an absolute bound with --limit tpot=60"
        )
    paths = [name for name in metrics if is_path(name)]
    base = read_samples([baseline_path(baseline)], paths) if baseline is not None else None
    head = read_samples(candidates, paths)
    if not judges_others(policy):
        _check_names(metrics, [side for side in (base, head) if side is not None])
    return decide(base, head, policy, leniency, method=METHOD, stored=True)


def _check_names(names: Iterable[str], sides: Sequence[Samples]) -> None:
    """Raise for a metric that no side has: it was misspelled."""
    known = [name for side in sides for name in side.metrics]
    meant = {canonical(name) for name in known} | {split_tag(canonical(name))[0] for name in known}
    for name in names:
        if canonical(name) not in meant:
            raise UnusableInputError(f"no side has a metric {name!r}{suggestion(name, known)}")
