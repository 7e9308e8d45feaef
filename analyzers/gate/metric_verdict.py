"""The verdict on one metric: by its absolute limit, and by its change (docs/gating.md, The method).

PASS is said in one place for either, and only where the runs exclude what must be excluded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

from analyzers.gate.figures import (
    PairFigures,
    adjusted_p,
    looks_at_failure,
    median_bound,
    result_of,
    worse_by,
)
from analyzers.gate.metric_pairs import first_bad, without_values
from analyzers.gate.model import WORST_FIRST, GatePolicy, MetricResult, Verdict
from analyzers.gate.policy import excluded_regression
from analyzers.gate.power import more_runs, noise_of, runs_needed, runs_to_exclude, runs_to_keep
from analyzers.gate.problems import Problem
from analyzers.gate.stages import Stage
from analyzers.gate.wording import amount, at_most, change, count, interval_ends, p_text, percent
from analyzers.statistics.rank_tests import smallest_p_value

_ROUNDING = 1e-9
"""A ratio that is the threshold but for rounding is not beyond it."""


@dataclass(frozen=True)
class _Found:
    """What one thing that is asked of a metric comes to."""

    verdict: Verdict
    reason: str
    runs_needed: int | None = None


@dataclass(frozen=True)
class MetricJudge:
    """Judges metrics one by one; `problem` is what keeps the sides from being compared."""

    policy: GatePolicy
    stage: Stage
    has_base: bool
    stored: bool
    busy: bool
    """Whether others are known to have used the machine."""
    problem: Problem | None

    def __call__(self, figures: PairFigures) -> MetricResult:
        """The verdict on one metric, with its figures."""
        if figures.pair.asked is None:
            return result_of(figures, self.policy, self.stage, "UNDECIDED", "shown, not judged")
        found = [*self._by_limit(figures), *self._by_change(figures)]
        verdict = worst([item.verdict for item in found])
        decisive = [item for item in found if item.verdict == verdict]
        reason = "; ".join(item.reason for item in decisive) or "nothing is asked of it"
        needed = max((item.runs_needed for item in decisive if item.runs_needed is not None), default=None)
        if verdict == "UNDECIDED" and self.busy:
            reason += "; the machine was busy with other work meanwhile: a quiet one needs fewer"
        return result_of(figures, self.policy, self.stage, verdict, reason, needed)

    def _by_limit(self, figures: PairFigures) -> list[_Found]:
        asked = figures.pair.asked
        if asked is None or asked.limit is None:
            return []
        if (missing := self._missing_head(figures)) is not None:
            return [missing]
        meaning, head = figures.pair.meaning, figures.head
        sign = -1 if meaning.higher_is_better else 1
        middle = median(head)
        found = f"{figures.pair.name}: the median is {amount(middle, meaning.unit)}{interval_ends(head)}"
        limit = f"limit of {amount(asked.limit, meaning.unit)}"
        if sign * (middle - asked.limit) > 0:
            return [
                _Found("FAIL", f"{found}, {'below' if meaning.higher_is_better else 'above'} the {limit}")
            ]
        if self.problem is not None and self.problem.is_of_data:
            return [_Found(self.problem.verdict, self.problem.reason)]
        bound = median_bound(head, self.stage, higher_is_better=meaning.higher_is_better)
        edge = "at least" if meaning.higher_is_better else "at most"
        if bound is not None and sign * (bound - asked.limit) <= 0:
            return [
                _Found("PASS", f"{found}, {edge} {amount(bound, meaning.unit)} (95 %), within the {limit}")
            ]
        needed = self._runs_to_keep(figures, abs(math.log(middle / asked.limit)))
        told = (
            f"{count(len(head), 'run')} bound no median"
            if bound is None
            else f"it is {edge} {amount(bound, meaning.unit)} (95 %), which is not within it"
        )
        return [
            _Found("UNDECIDED", f"{found}, within the {limit}, but {told}{_would_do(needed, 'run')}", needed)
        ]

    def _missing_head(self, figures: PairFigures) -> _Found | None:
        """Why the candidate's values say nothing; None where they do."""
        pair = figures.pair
        if pair.head is None:
            return _Found("NO-DATA", f"the candidate has no {pair.name}")
        if self.problem is not None and self.problem.verdict == "INVALID":
            return _Found(self.problem.verdict, self.problem.reason)
        if without_values(pair.head):
            return _Found("NO-DATA", f"no data: the candidate has no value of {pair.name}")
        if (where := first_bad(pair.head)) is not None:
            if self.problem is not None and self.problem.is_of_data:
                return _Found(self.problem.verdict, self.problem.reason)
            return _Found("NOT-COMPARABLE", f"candidate {pair.name} is not a positive number ({where})")
        return None

    def _by_change(self, figures: PairFigures) -> list[_Found]:
        pair = figures.pair
        if pair.asked is None or pair.asked.max_regression is None or not self.has_base:
            return []
        if pair.base is None and pair.head is None:
            return [_Found("NOT-COMPARABLE", f"neither side has {pair.name}")]
        if pair.base is None:
            return [_Found("NOT-COMPARABLE", f"the baseline has no {pair.name} (--allow-new lists it only)")]
        if self.problem is not None:
            return [_Found(self.problem.verdict, self.problem.reason)]
        if (missing := self._missing_head(figures)) is not None:
            return [missing]
        where = first_bad(pair.base) if not without_values(pair.base) else "no value"
        if where is not None:
            return [_Found("NOT-COMPARABLE", f"baseline {pair.name} is not a positive number ({where})")]
        return [
            self._by_test(figures, pair.asked.max_regression, excluded_regression(self.policy, pair.asked))
        ]

    def _by_test(self, figures: PairFigures, allowed: float, excluded: float) -> _Found:
        test, holm_p, p_value = figures.test, figures.holm_p, adjusted_p(figures, self.stage)
        assert test is not None
        assert holm_p is not None
        assert p_value is not None
        meaning = figures.pair.meaning
        found = change(meaning, test.ratio, median(figures.base), median(figures.head))
        bound = f"{percent(allowed)} allowed"
        tests = figures.tests * looks_at_failure(self.stage)
        if smallest_p_value(len(figures.head), len(figures.base)) * tests >= self.policy.fail_p:
            return _Found(
                "UNDECIDED",
                f"{found}: {self._too_few(figures, tests)}",
                self._runs_to_exclude(figures, excluded),
            )
        beyond = worse_by(test.ratio, higher_is_better=meaning.higher_is_better) > allowed + _ROUNDING
        if self.stage.may_fail and beyond and p_value < self.policy.fail_p:
            return _Found("FAIL", f"{found}, {bound}; {p_text(p_value)}")
        if self._is_suspicious(beyond=beyond, raw_p=test.p_value, holm_p=holm_p):
            told = f"{found}, {bound}; {p_text(p_value)} is suspicious"
            if self.stored:
                runs = min(len(figures.head), len(figures.base))
                more = more_runs(runs, holm_p, self.policy.fail_p)
                return _Found("UNDECIDED", f"{told}: {count(more, 'more run')} a side decide", runs + more)
            return _Found("UNDECIDED", told)
        if test.excludes is None or test.excludes > excluded + _ROUNDING:
            return self._not_excluded(
                figures, f"{found}, {bound}; {p_text(p_value)}", test.excludes, excluded
            )
        passed = f"{found}, {at_most(test.excludes, meaning)} (95 %)"
        if beyond:
            return _Found("PASS", f"{passed}; beyond the {bound}, but that is not proven: {p_text(p_value)}")
        return _Found("PASS", f"{passed}, {bound}; {p_text(p_value)}")

    def _is_suspicious(self, *, beyond: bool, raw_p: float, holm_p: float) -> bool:
        """Whether more runs may prove a regression.

        After the first of several stages a ratio beyond the threshold or a low p-value alone will do: to ask for both
        would let a few outlier runs of the base hide a large regression (docs/gating.md). Interleaved runs that are
        the last ones are no longer suspected of what they could not prove.
        """
        if not self.stage.may_fail:
            return beyond or raw_p < self.policy.stage_one_p
        return (self.stored or not self.stage.is_last) and beyond and holm_p < self.policy.stage_one_p

    def _not_excluded(
        self, figures: PairFigures, found: str, excludes: float | None, excluded: float
    ) -> _Found:
        needed = self._runs_to_exclude(figures, excluded)
        told = (
            "so few runs exclude no regression"
            if excludes is None
            else f"these runs exclude no regression below {percent(excludes)}"
        )
        noise = f" (noise between runs: {percent(noise_of(figures.head, figures.base))})"
        return _Found(
            "UNDECIDED",
            f"{found}: {told}, and a PASS must exclude {percent(excluded)}{_would_do(needed, 'run', ' a side')}{noise}",
            needed,
        )

    def _runs_to_exclude(self, figures: PairFigures, excluded: float) -> int | None:
        error = self.stage.pass_error
        needed = runs_to_exclude(noise_of(figures.head, figures.base), excluded, error)
        if needed is None:
            return None
        tests = figures.tests * looks_at_failure(self.stage)
        return max(needed, runs_needed(tests, self.policy.fail_p), runs_needed(1, error))

    def _runs_to_keep(self, figures: PairFigures, distance: float) -> int | None:
        error = self.stage.pass_error
        needed = runs_to_keep(noise_of(figures.head, figures.head), distance, error)
        return None if needed is None else max(needed, math.ceil(-math.log2(error)))

    def _too_few(self, figures: PairFigures, tests: int) -> str:
        base, head = len(figures.base), len(figures.head)
        runs = runs_needed(tests, self.policy.fail_p)
        more = runs_needed(tests, self.policy.fail_p, base)
        enough_base = smallest_p_value(more, base) * tests < self.policy.fail_p
        needed = f"{runs} runs a side are needed"
        if enough_base and more > head and more != runs:
            needed += f", or {more} of the candidate beside these {base} of the baseline"
        metrics = f" for {figures.tests} metrics" if figures.tests > 1 else ""
        return f"too few runs to decide ({base} and {head}): {needed}{metrics}"


def worst(verdicts: list[Verdict]) -> Verdict:
    """The worst one; nothing judged is nothing passed."""
    return min(verdicts, key=WORST_FIRST.index, default="NOT-COMPARABLE")


def _would_do(needed: int | None, what: str, where: str = "") -> str:
    if needed is None:
        return "; no number of runs would do"
    return f"; about {count(needed, what)}{where} would do"
