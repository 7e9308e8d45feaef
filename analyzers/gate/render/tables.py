"""What every rendering for people draws below the verdict: the table of metrics, and what to know about it."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.gate.model import GateResult, MetricResult
from analyzers.gate.wording import amount, count, label, p_text, percent
from analyzers.report.text import UNAVAILABLE, Table

SHOWN = "shown only"
COLUMNS = ["metric", "baseline", "candidate", "change", "95 % interval", "allowed", "p", "verdict"]


def metrics_table(result: GateResult) -> Table:
    """One row a metric, the judged ones first; a figure that cannot be had is `unavailable`."""
    return Table("Metrics", COLUMNS, [_row(item) for item in result.metrics])


def facts(result: GateResult) -> list[str]:
    """Sentences on the runs, the machine, what so many runs can see, outliers and new metrics."""
    judged = [item for item in result.metrics if item.judged]
    lines = []
    if judged:
        lines.append(_runs(result, judged))
    machines = [result.base_machine, result.head_machine]
    known = list(dict.fromkeys(machine for machine in machines if machine))
    if known:
        lines.append("machine: " + " vs ".join(known))
    for item in judged:
        if item.minimum_detectable is not None:
            lines.append(
                f"{item.name}: so many runs with this noise catch a regression of {percent(item.minimum_detectable)} "
                "with 90 % probability, smaller ones less often"
            )
        if item.base_outliers or item.head_outliers:
            lines.append(
                f"{item.name}: outliers among the runs: {item.base_outliers or 0} of the baseline, "
                f"{item.head_outliers or 0} of the candidate; they stay in, and ranks hardly feel them"
            )
        lines += [f"{item.name}: {note}" for note in item.notes]
    if result.causes:
        lines.append(f"tpot is about step time / tokens per step; what moved: {' and '.join(result.causes)}")
    if result.new_metrics:
        lines.append(f"without a baseline (new): {', '.join(result.new_metrics)}")
    return lines


def _runs(result: GateResult, judged: Sequence[MetricResult]) -> str:
    head = max(item.head_runs for item in judged)
    text = f"candidate: {count(head, 'run')}" + (f" ({result.head})" if result.head else "")
    if any(item.base_runs for item in judged) or result.base:
        base = max(item.base_runs for item in judged)
        text = f"baseline: {count(base, 'run')}" + (f" ({result.base})" if result.base else "") + f"; {text}"
    return f"{text}; {result.method}" if result.method else text


def _row(item: MetricResult) -> list[str]:
    return [
        label(item),
        _median(item.base_median, item),
        _median(item.head_median, item),
        UNAVAILABLE if item.ratio is None else percent(item.ratio - 1, signed=True),
        _interval(item),
        _allowed(item),
        _p_value(item),
        item.verdict if item.judged else SHOWN,
    ]


def _p_value(item: MetricResult) -> str:
    value = item.p_value if item.adjusted_p is None else item.adjusted_p
    if value is None:
        return UNAVAILABLE
    return p_text(value).removeprefix("p ").removeprefix("= ") if item.judged else ""


def _median(value: float | None, item: MetricResult) -> str:
    return UNAVAILABLE if value is None else amount(value, item.unit)


def _interval(item: MetricResult) -> str:
    if item.interval is None or item.interval.low is None or item.interval.high is None:
        return UNAVAILABLE
    low, high = (percent(end - 1, signed=True) for end in (item.interval.low, item.interval.high))
    return f"{low} to {high}"


def _allowed(item: MetricResult) -> str:
    parts = []
    if item.max_regression is not None:
        parts.append(f"{percent(item.max_regression)} worse")
    if item.limit is not None:
        parts.append(f"{'at least' if item.higher_is_better else 'at most'} {amount(item.limit, item.unit)}")
    return ", ".join(parts)
