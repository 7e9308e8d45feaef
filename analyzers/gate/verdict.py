"""The decision of the gate: is the candidate worse than the baseline, and may anyone say so (docs/gating.md).

It fails closed: whatever keeps a metric from being judged is a verdict of its own, never PASS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from analyzers.gate.causes import find_causes
from analyzers.gate.comparability import describe, differences, short_machine
from analyzers.gate.figures import measure_pairs
from analyzers.gate.metric_pairs import Pair, pair_metrics
from analyzers.gate.metric_verdict import MetricJudge, worst
from analyzers.gate.model import (
    SCHEMA_VERSION,
    Difference,
    GatePolicy,
    GateResult,
    Leniency,
    MetricResult,
    Samples,
    Verdict,
)
from analyzers.gate.problems import Problem, find_problem, without_failed
from analyzers.gate.stages import Stage
from analyzers.gate.wording import count

STORED_WARNING = (
    "the baseline was stored: what the machine did differently between the two sessions is not controlled "
    "(`dsv4bench gate run` measures both sides in turn)"
)
ONLY_STAGE = Stage()
STRICT = Leniency()


def decide(
    base: Samples | None,
    head: Samples,
    policy: GatePolicy,
    leniency: Leniency = STRICT,
    *,
    method: str,
    stored: bool,
    stage: Stage = ONLY_STAGE,
) -> GateResult:
    """Judge `head` against `base`; without a base (None), by absolute limits alone.

    `method` says for people how the runs were made. With `stored`, the base is of another session. Else both sides are
    all interleaved runs until the end of a `stage`, and UNDECIDED before the last one asks for the next.
    """
    base, head, dropped = without_failed(base, head, leniency)
    pairs = pair_metrics(base, head, policy)
    found = differences(base, head) if base is not None else []
    new = [pair.name for pair in pairs if base is not None and pair.asked and pair.base is None]
    problem = find_problem(base, head, leniency, pairs, found, stored=stored)
    if base is None or leniency.allow_new:
        pairs = _without_change(pairs, listed=new if base is not None else [pair.name for pair in pairs])
    busy = head.busy or (base is not None and base.busy)
    judge = MetricJudge(policy, stage, base is not None, stored, busy, problem)
    results = [judge(figures) for figures in measure_pairs(pairs, stage, comparable=problem is None)]
    verdicts = [result.verdict for result in results if result.judged]
    verdict = worst([*verdicts, *([problem.verdict] if problem is not None else [])])
    causes = find_causes(results)
    return GateResult(
        schema_version=SCHEMA_VERSION,
        verdict=verdict,
        headline=_headline(verdict, problem, results, causes),
        base=base.source if base is not None else "",
        head=head.source,
        method=method,
        metrics=results,
        causes=causes,
        differences=found,
        warnings=[*dropped, *_warnings(base, head, leniency, found, stored=stored)],
        new_metrics=new,
        base_machine=short_machine(base.machine) if base is not None and base.machine else None,
        head_machine=short_machine(head.machine) if head.machine else None,
    )


def _without_change(pairs: Sequence[Pair], listed: Sequence[str]) -> list[Pair]:
    """Of the metrics in `listed`, which have no baseline, only the absolute limits are judged."""
    kept = []
    for pair in pairs:
        if pair.name not in listed or pair.asked is None:
            kept.append(pair)
        elif pair.asked.limit is not None:
            asked = msgspec.structs.replace(pair.asked, max_regression=None)
            kept.append(replace(pair, asked=asked))
    return kept


def _headline(
    verdict: Verdict, problem: Problem | None, results: Sequence[MetricResult], causes: Sequence[str]
) -> str:
    if problem is not None and problem.verdict == verdict:
        return problem.reason
    decisive = [result for result in results if result.judged and result.verdict == verdict]
    if not decisive:
        return "nothing was judged"
    because = f"; cause: {' and '.join(causes)}" if causes and verdict in ("FAIL", "UNDECIDED") else ""
    more = f" (and {count(len(decisive) - 1, 'more metric')})" if len(decisive) > 1 else ""
    return decisive[0].reason + because + more


def _warnings(
    base: Samples | None, head: Samples, leniency: Leniency, found: list[Difference], *, stored: bool
) -> list[str]:
    warnings = []
    if found and (leniency.allow_different or not stored):
        warnings.append(f"the sides differ: {describe(found)}")
    if base is not None and not (base.config or base.machine or head.config or head.machine):
        warnings.append("neither side says of which configuration and machine it is")
    if base is not None and stored:
        warnings.append(STORED_WARNING)
    for label, side in (("baseline", base), ("candidate", head)):
        warnings += [f"{label}: {text}" for text in side.warnings] if side is not None else []
    return warnings
