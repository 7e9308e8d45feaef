"""The decision of the gate: is the candidate worse than the baseline, and may anyone say so (docs/gating.md).

It fails closed: whatever keeps a metric from being judged is a verdict of its own, never PASS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import msgspec

from analyzers.gate.causes import find_causes
from analyzers.gate.comparability import describe, differences, short_machine
from analyzers.gate.metrics import metric
from analyzers.gate.model import (
    SCHEMA_VERSION,
    Difference,
    GatePolicy,
    GateResult,
    MetricPolicy,
    MetricResult,
    Samples,
    Verdict,
)
from analyzers.gate.power import minimum_detectable, more_runs, runs_needed
from analyzers.gate.problems import Problem, find_problem, without_failed
from analyzers.gate.values import Pair, first_bad, pair_metrics, values_of, without_values
from analyzers.gate.wording import amount, change, count, p_text, percent
from analyzers.statistics.rank_tests import (
    hodges_lehmann_ratio,
    holm,
    mann_whitney,
    median_interval,
    ratio_interval,
    smallest_p_value,
)
from analyzers.statistics.robust import outliers

WORST_FIRST: tuple[Verdict, ...] = ("FAIL", "NOT-COMPARABLE", "NO-DATA", "UNDECIDED", "PASS")

STORED_WARNING = (
    "the baseline was stored: what the machine did differently between the two sessions is not controlled "
    "(`dsv4bench gate run` measures both sides in turn)"
)
_RUNS_WITH_OUTLIERS = 3
"""Among fewer runs none is an outlier."""
_ROUNDING = 1e-9
"""A ratio that is the threshold but for rounding is not beyond it."""


@dataclass(frozen=True)
class _Test:
    """The rank test of one pair, in the direction that is worse."""

    ratio: float
    """head / base."""
    worse_by: float
    """Ratio - 1 in the direction that is worse."""
    p_value: float
    better_p: float
    effect: float


def judge(
    base: Samples | None, head: Samples, policy: GatePolicy, *, method: str, stored: bool
) -> GateResult:
    """Judge `head` against `base`; without a base (None), by absolute limits alone.

    `method` says for people how the runs were made. With `stored`, a base from another session: a suspicious change
    is UNDECIDED and asks for more runs. Else both sides are the last stage of interleaved runs, and it passes.
    """
    base, head, dropped = without_failed(base, head, policy)
    pairs = pair_metrics(base, head, policy)
    found = differences(base, head) if base is not None else []
    new = [pair.name for pair in pairs if base is not None and pair.asked and pair.base is None]
    problem = find_problem(base, head, policy, pairs, found, stored=stored)
    if base is None or policy.allow_new:
        pairs = _without_change(pairs, listed=new if base is not None else [pair.name for pair in pairs])
    judge_one = _Judge(policy, base is not None, stored, problem, pairs)
    results = [judge_one(pair) for pair in pairs]
    verdict = _worst([*(result.verdict for result in results if result.judged), *_verdicts(problem)])
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
        warnings=[*dropped, *_warnings(base, head, policy, found, stored=stored)],
        new_metrics=new,
        base_machine=short_machine(base.machine) if base is not None and base.machine else None,
        head_machine=short_machine(head.machine) if head.machine else None,
    )


def wants_second_stage(result: GateResult, policy: GatePolicy) -> bool:
    """Whether a first stage of interleaved runs is suspicious enough to make as many again.

    It is where a ratio is beyond its threshold or a p-value is low: one alone will do. To ask for both would let a few
    outlier runs of the base hide a large regression, and spare one second stage in twenty (docs/gating.md).
    """
    return any(
        metric.judged
        and metric.p_value is not None
        and metric.ratio is not None
        and metric.max_regression is not None
        and (
            metric.p_value < policy.stage_one_p
            or _worse_by(metric.ratio, metric.higher_is_better) > metric.max_regression + _ROUNDING
        )
        for metric in result.metrics
    )


def _worse_by(ratio: float, higher_is_better: bool) -> float:
    return (1 / ratio if higher_is_better else ratio) - 1


def _worst(verdicts: Sequence[Verdict]) -> Verdict:
    """The worst one; nothing judged is nothing passed."""
    return min(verdicts, key=WORST_FIRST.index, default="NOT-COMPARABLE")


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


def _verdicts(problem: Problem | None) -> list[Verdict]:
    return [problem.verdict] if problem is not None else []


class _Judge:
    """Judges one pair after the other; the tests are made first, since they are adjusted together."""

    def __init__(
        self,
        policy: GatePolicy,
        has_base: bool,
        stored: bool,
        problem: Problem | None,
        pairs: Sequence[Pair],
    ) -> None:
        self._policy = policy
        self._has_base = has_base
        self._stored = stored
        self._problem = problem
        # A ratio of what cannot be compared would be taken for one.
        tested = pairs if problem is None else ()
        self._tests = {pair.key: test for pair in tested if (test := _test(pair)) is not None}
        counted = [
            pair.key
            for pair in pairs
            if pair.key in self._tests and pair.asked is not None and pair.asked.max_regression is not None
        ]
        adjusted = holm([self._tests[key].p_value for key in counted])
        self._adjusted = dict(zip(counted, adjusted, strict=True))

    def __call__(self, pair: Pair) -> MetricResult:
        result = self._measured(pair)
        if pair.asked is None:
            return msgspec.structs.replace(result, judged=False, verdict="PASS", reason="shown, not judged")
        judged = [*self._by_limit(result, pair, pair.asked), *self._by_change(result, pair, pair.asked)]
        verdict = _worst([item[0] for item in judged])
        reasons = [reason for found, reason in judged if found == verdict]
        return msgspec.structs.replace(
            result, verdict=verdict, reason="; ".join(reasons) or "nothing is asked of it"
        )

    def _measured(self, pair: Pair) -> MetricResult:
        """The figures of a pair, whatever they mean."""
        meaning = metric(pair.name)
        base, head = values_of(pair.base), values_of(pair.head)
        test = self._tests.get(pair.key)
        asked = pair.asked or MetricPolicy(max_regression=None)
        good_head = bool(head) and first_bad(head) is None
        good_base = bool(base) and first_bad(base) is None
        base_outliers = outliers(base) if good_base else []
        head_outliers = outliers(head) if good_head else []
        adjusted = self._adjusted.get(pair.key)
        detectable = None
        if test is not None and adjusted is not None and asked.max_regression is not None:
            # Holm's most severe step: with it the metric is caught whatever the others do.
            p_value = self._policy.fail_p / len(self._adjusted)
            detectable = minimum_detectable(head, base, asked.max_regression, p_value)
        return MetricResult(
            name=pair.name,
            unit=meaning.unit,
            higher_is_better=meaning.higher_is_better,
            verdict="PASS",
            reason="",
            base_runs=len(base),
            head_runs=len(head),
            base_median=median(base) if good_base else None,
            head_median=median(head) if good_head else None,
            ratio=test.ratio if test is not None else None,
            interval=ratio_interval(head, base) if test is not None else None,
            p_value=test.p_value if test is not None else None,
            adjusted_p=adjusted,
            effect=test.effect if test is not None else None,
            max_regression=asked.max_regression,
            limit=asked.limit,
            minimum_detectable=detectable,
            base_outliers=len(base_outliers or ()) if good_base else None,
            head_outliers=len(head_outliers or ()) if good_head else None,
            improved=test is not None and test.better_p < self._policy.fail_p,
            head_interval=median_interval(head) if asked.limit is not None and good_head else None,
            title=meaning.title,
            notes=_notes(
                base_outliers is None and len(base) >= _RUNS_WITH_OUTLIERS,
                head_outliers is None and len(head) >= _RUNS_WITH_OUTLIERS,
            ),
        )

    def _by_limit(self, result: MetricResult, pair: Pair, asked: MetricPolicy) -> list[tuple[Verdict, str]]:
        if asked.limit is None:
            return []
        if (missing := self._missing_head(pair)) is not None:
            return [missing]
        assert result.head_median is not None
        beyond = result.head_median - asked.limit
        beyond = -beyond if result.higher_is_better else beyond
        found = f"{result.name}: the median is {amount(result.head_median, result.unit)}{_ends(result)}"
        bound = f"limit of {amount(asked.limit, result.unit)}"
        if beyond > 0:
            word = "below" if result.higher_is_better else "above"
            return [("FAIL", f"{found}, {word} the {bound}")]
        if self._problem is not None and self._problem.verdict == "NO-DATA":
            return [(self._problem.verdict, self._problem.reason)]
        return [("PASS", f"{found}, within the {bound}")]

    def _missing_head(self, pair: Pair) -> tuple[Verdict, str] | None:
        """Why the candidate's values say nothing; None where they do."""
        if pair.head is None:
            return "NO-DATA", f"the candidate has no {pair.name}"
        if without_values(pair.head):
            return "NO-DATA", f"no data: the candidate has no value of {pair.name}"
        if (where := first_bad(pair.head)) is not None:
            if self._problem is not None and self._problem.verdict == "NO-DATA":
                return self._problem.verdict, self._problem.reason
            return "NOT-COMPARABLE", f"candidate {pair.name} is not a positive number ({where})"
        return None

    def _by_change(self, result: MetricResult, pair: Pair, asked: MetricPolicy) -> list[tuple[Verdict, str]]:
        if asked.max_regression is None or not self._has_base:
            return []
        if pair.base is None and pair.head is None:
            return [("NOT-COMPARABLE", f"neither side has {pair.name}")]
        if pair.base is None:
            return [("NOT-COMPARABLE", f"the baseline has no {pair.name} (--allow-new lists it only)")]
        if self._problem is not None:
            return [(self._problem.verdict, self._problem.reason)]
        if (missing := self._missing_head(pair)) is not None:
            return [missing]
        where = first_bad(pair.base) if not without_values(pair.base) else "no value"
        if where is not None:
            return [("NOT-COMPARABLE", f"baseline {pair.name} is not a positive number ({where})")]
        return [self._by_test(result, asked.max_regression)]

    def _by_test(self, result: MetricResult, allowed: float) -> tuple[Verdict, str]:
        policy, p_value, ratio = self._policy, result.adjusted_p, result.ratio
        assert p_value is not None
        assert ratio is not None
        found = change(result)
        tests = len(self._adjusted)
        if smallest_p_value(result.head_runs, result.base_runs) * tests >= policy.fail_p:
            return "UNDECIDED", f"{found}: {self._too_few(result, tests)}"
        beyond = _worse_by(ratio, result.higher_is_better) > allowed + _ROUNDING
        bound = f"{percent(allowed)} allowed"
        if beyond and p_value < policy.fail_p:
            return "FAIL", f"{found}, {bound}; {p_text(p_value)}"
        if beyond and p_value < policy.stage_one_p and self._stored:
            more = more_runs(min(result.head_runs, result.base_runs), p_value, policy.fail_p)
            return "UNDECIDED", (
                f"{found}, {bound}; {p_text(p_value)} is suspicious: {count(more, 'more run')} a side decide"
            )
        if beyond:
            return "PASS", f"{found}, {bound}, but that is within the noise: {p_text(p_value)}"
        return "PASS", f"{found}, {bound}; {p_text(p_value)}"

    def _too_few(self, result: MetricResult, tests: int) -> str:
        runs = runs_needed(tests, self._policy.fail_p)
        head = runs_needed(tests, self._policy.fail_p, result.base_runs)
        enough_base = smallest_p_value(head, result.base_runs) * tests < self._policy.fail_p
        needed = f"{runs} runs a side are needed"
        if enough_base and head > result.head_runs and head != runs:
            needed += f", or {head} of the candidate beside these {result.base_runs} of the baseline"
        metrics = f" for {tests} metrics" if tests > 1 else ""
        return f"too few runs to decide ({result.base_runs} and {result.head_runs}): {needed}{metrics}"


def _test(pair: Pair) -> _Test | None:
    """The test of a pair whose values allow one."""
    base, head = values_of(pair.base), values_of(pair.head)
    if not base or not head or first_bad(pair.base or []) or first_bad(pair.head or []):
        return None
    higher_is_better = metric(pair.name).higher_is_better
    worse, better = mann_whitney(head, base), mann_whitney(base, head)
    if higher_is_better:
        worse, better = better, worse
    ratio = hodges_lehmann_ratio(head, base)
    return _Test(
        ratio,
        _worse_by(ratio, higher_is_better),
        worse.p_value,
        better.p_value,
        worse.u / (len(base) * len(head)),
    )


def _notes(base_constant: bool, head_constant: bool) -> list[str]:
    """What to know about the outlier counts of sides in which most values are equal."""
    constant = [name for name, is_it in (("baseline", base_constant), ("candidate", head_constant)) if is_it]
    if not constant:
        return []
    return [f"outliers = 0 in the {' and the '.join(constant)}: a zero MAD disables the outlier rule"]


def _ends(result: MetricResult) -> str:
    interval = result.head_interval
    if interval is None or interval.low is None or interval.high is None:
        return f" ({count(result.head_runs, 'run')}: too few for an interval)"
    return f" ({percent(interval.confidence)} interval {interval.low:.4g} to {interval.high:.4g})"


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
    base: Samples | None, head: Samples, policy: GatePolicy, found: list[Difference], *, stored: bool
) -> list[str]:
    warnings = []
    if found and (policy.allow_different or not stored):
        warnings.append(f"the sides differ: {describe(found)}")
    if base is not None and not (base.config or base.machine or head.config or head.machine):
        warnings.append("neither side says of which configuration and machine it is")
    if base is not None and stored:
        warnings.append(STORED_WARNING)
    for label, side in (("baseline", base), ("candidate", head)):
        warnings += [f"{label}: {text}" for text in side.warnings] if side is not None else []
    return warnings
