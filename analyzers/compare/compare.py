"""From two sets of paths to a comparison: check that they are comparable, then measure what changed and where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analyzers.compare.changes import SIGNIFICANT, metric_change
from analyzers.compare.model import SCHEMA_VERSION, Comparison, DistributionPair, MetricChange
from analyzers.compare.phases import compare_step_time
from analyzers.compare.ranks import compare_ranks
from analyzers.compare.sides import Run, describe_side, find_differences, load_side, not_checked, same_runs
from analyzers.compare.spans import compare_span_names
from analyzers.compare.statement import TOKEN_COST, token_cost_statement
from analyzers.errors import NoDataError, NotComparableError
from analyzers.gate.metrics import REGISTRY, metric, run_values
from analyzers.gate.model import Difference
from analyzers.report.model import Report
from analyzers.statistics.rank_tests import smallest_two_sided_p
from analyzers.statistics.summary import Summary
from analyzers.table.callables import is_prefill

_Values = dict[str, list[float]]


def compare(a: Sequence[str], b: Sequence[str], *, allow_different: bool = False) -> Comparison:
    """Compare the runs that the paths or globs `b` name with those of `a`; each path is one run.

    Raises:
        UnusableInputError: a path names nothing, is named twice on a side, or cannot be read.
        NotComparableError: settings of the runs differ and `allow_different` is not set; it lists them.
        NoDataError: the sides have no figure in common.
    """
    before, after = load_side("A", a), load_side("B", b)
    found = find_differences(before, after)
    if found and not allow_different:
        raise NotComparableError(_refusal(found))
    return compare_runs(before, after, found)


def compare_runs(a: Sequence[Run], b: Sequence[Run], differences: Sequence[Difference] = ()) -> Comparison:
    """Compare runs that were read already; `differences` are those that were allowed.

    Raises:
        NoDataError: the sides have no figure in common.
    """
    values_a, values_b = _values(a), _values(b)
    names = [
        name for name in dict.fromkeys([*TOKEN_COST, *REGISTRY]) if name in values_a and name in values_b
    ]
    metrics = [_metric_change(name, values_a[name], values_b[name]) for name in names]
    step_time, notes = compare_step_time(
        [run.report.step_time for run in a], [run.report.step_time for run in b]
    )
    ranks = compare_ranks([run.report.skew for run in a], [run.report.skew for run in b])
    span_names = compare_span_names(
        [run.report.span_names for run in a], [run.report.span_names for run in b]
    )
    if not (metrics or step_time or ranks or span_names):
        raise NoDataError(
            "nothing to compare: the sides have no figure in common; `dsv4bench analyze` shows what each has"
        )
    return Comparison(
        schema_version=SCHEMA_VERSION,
        a=describe_side(a),
        b=describe_side(b),
        differences=list(differences),
        not_checked=not_checked(a, b),
        statement=token_cost_statement({entry.name: entry for entry in metrics}),
        metrics=metrics,
        only_a=[name for name in values_a if name not in values_b],
        only_b=[name for name in values_b if name not in values_a],
        step_time=step_time,
        ranks=ranks,
        span_names=span_names,
        distributions=list(_distributions(a[0].report, b[0].report)) if len(a) == len(b) == 1 else [],
        certainty=list(_certainty(len(a), len(b))),
        notes=[*same_runs(a, b), *_missing_values(metrics, len(a), len(b)), *notes],
    )


def _refusal(found: Sequence[Difference]) -> str:
    lines = [f"  {item.key}: {item.base} vs {item.head}" for item in found]
    settings = "setting" if len(found) == 1 else "settings"
    return "\n".join(
        [
            f"not comparable: the runs differ in {len(found)} {settings} (A vs B)",
            *lines,
            "make runs that differ in nothing else, or compare them all the same with --allow-different",
        ]
    )


def _values(runs: Sequence[Run]) -> _Values:
    """Metric -> the values of the runs that have it; without metrics that no run has."""
    of_runs = [run_values(run.report, REGISTRY) for run in runs]
    values = {name: [v for run in of_runs if (v := run[name]) is not None] for name in REGISTRY}
    return {name: found for name, found in values.items() if found}


def _metric_change(name: str, a: Sequence[float], b: Sequence[float]) -> MetricChange:
    meaning = metric(name)
    return metric_change(name, meaning.unit, a, b, higher_is_better=meaning.higher_is_better)


def _certainty(a_runs: int, b_runs: int) -> Iterator[str]:
    """What so many runs can not tell."""
    if min(a_runs, b_runs) == 1:
        yield (
            f"p-value, interval and effect: unavailable: {'one run a side' if a_runs == b_runs else 'one side is one run'}; "
            "the run is the sample, not the requests and steps in it."
        )
        yield (
            "The drift of the machine between the sessions is not controlled: a ratio may be the machine's. Make "
            "several runs a side, in turn (A B A B ...), and give them with --a and --b."
        )
        return
    least = smallest_two_sided_p(a_runs, b_runs)
    if least >= SIGNIFICANT:
        yield (
            f"With {a_runs} and {b_runs} runs no p-value can be below {least:.3f}: 4 runs a side are the fewest that "
            f"can be below {SIGNIFICANT}."
        )
    yield (
        "p-values are of each line by itself, two-sided; of 20 lines without any change one is below 0.05. "
        "`dsv4bench gate` judges."
    )


def _missing_values(metrics: Sequence[MetricChange], a_runs: int, b_runs: int) -> Iterator[str]:
    for entry in metrics:
        for side, values, runs in (("A", entry.a, a_runs), ("B", entry.b, b_runs)):
            if len(values) < runs:
                yield f"{entry.name}: {runs - len(values)} of the {runs} runs of {side} have no such figure."


def _distributions(a: Report, b: Report) -> Iterator[DistributionPair]:
    """What steps and requests within the two runs took, figures with the same name and source only."""
    after = dict(_summaries(b))
    for figure, summary in _summaries(a):
        if figure in after:
            yield DistributionPair(figure, summary, after[figure])


def _summaries(report: Report) -> Iterator[tuple[str, Summary]]:
    for figures in report.requests:
        if figures.phase == "measured":
            yield "tpot of the requests", figures.tpot
            yield "step_time of the requests", figures.step_time
    decode = next((steps for steps in report.steps if not is_prefill(steps.callable)), None)
    if decode is not None:
        yield f"{decode.source}, {decode.scope} steps", decode.latency
