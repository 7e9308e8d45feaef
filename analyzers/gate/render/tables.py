"""What every rendering for people draws below the verdict: the table of metrics, and what to know about it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from analyzers.gate.model import GateResult, MetricResult
from analyzers.gate.wording import amount, count, label, p_text, percent
from analyzers.text.tables import CellKind, Column, Row, Table

SHOWN = "(shown)"


def metrics_table(result: GateResult, *, wide: bool = True) -> Table:
    """One row a metric, the judged ones first; `wide` adds titles to the names, and what is allowed."""
    columns = [
        Column("metric"),
        Column("baseline", CellKind.NUMBER, _figure, absent="none"),
        Column("candidate", CellKind.NUMBER, _figure, absent="none"),
        Column("change", CellKind.SHARE, partial(percent, signed=True), absent=""),
        *([Column("allowed", CellKind.FIGURES)] if wide else []),
        Column("p", CellKind.NUMBER, _p_text, absent="", dispensable=1),
        Column("verdict"),
    ]
    return Table("Metrics", columns, [_row(item, wide=wide) for item in result.metrics])


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
    if len(judged) > 1:
        lines += [
            f"{item.verdict}: {item.reason}" for item in judged if not result.headline.startswith(item.reason)
        ]
    for item in judged:
        interval = item.interval
        if interval is not None and interval.low is not None and interval.high is not None:
            ends = " to ".join(percent(end - 1, signed=True) for end in (interval.low, interval.high))
            lines.append(f"{item.name}: {percent(interval.confidence)} interval of the change: {ends}")
        if item.minimum_detectable is not None:
            lines.append(
                f"{item.name}: with these runs and their noise, a regression of {percent(item.minimum_detectable)} is "
                "caught with 90 % probability, a smaller one less often"
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


def _row(item: MetricResult, *, wide: bool) -> Row:
    name = label(item) if wide else item.name
    return [
        f"{name}, {item.unit}" if item.unit else name,
        item.base_median,
        item.head_median,
        None if item.ratio is None else item.ratio - 1,
        *([_allowed(item)] if wide else []),
        _p_value(item),
        item.verdict if item.judged else SHOWN,
    ]


def _p_value(item: MetricResult) -> float | None:
    if not item.judged:
        return None
    return item.p_value if item.adjusted_p is None else item.adjusted_p


def _p_text(p_value: float) -> str:
    return p_text(p_value).removeprefix("p ").removeprefix("= ").replace("< ", "<")


def _figure(value: float) -> str:
    return amount(value, "")


def _allowed(item: MetricResult) -> str:
    parts = []
    if item.max_regression is not None:
        parts.append(f"{'-' if item.higher_is_better else '+'}{percent(item.max_regression)}")
    if item.limit is not None:
        parts.append(f"{'at least' if item.higher_is_better else 'at most'} {amount(item.limit, '')}")
    return ", ".join(parts)
