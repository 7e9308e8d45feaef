"""A comparison as tables of text, for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analyzers.compare.model import (
    Change,
    Comparison,
    Distribution,
    MetricChange,
    RankChange,
    RankComparison,
    Side,
    SpanChange,
    StepTimeChange,
)
from analyzers.gate.metrics import metric
from analyzers.text.tables import UNAVAILABLE, Table, number

NONE = "-"
_SPAN_ROWS = 12


def comparison_tables(comparison: Comparison) -> list[Table]:
    """Every table of a comparison; those without rows are left out."""
    tables = [_differences(comparison), _metrics(comparison)]
    for change in comparison.step_time:
        tables.append(_step_time(change))
    for ranks in comparison.ranks:
        tables += [_ranks(ranks), _rank_figures(ranks)]
    if not (comparison.step_time or comparison.ranks):
        tables.append(_spans(comparison.span_names))
    tables.append(_distributions(comparison.distributions))
    return [table for table in tables if table.rows]


def headline(comparison: Comparison) -> list[str]:
    """What to read first: a sentence each."""
    lines = [comparison.statement]
    for changes in (comparison.step_time, comparison.ranks):
        several = len(changes) > 1
        lines += [f"{entry.callable}: {entry.statement}" if several else entry.statement for entry in changes]
    if comparison.a.pipeline != comparison.b.pipeline:
        for name, side in (("A", comparison.a), ("B", comparison.b)):
            lines.append(f"Pipeline of {name}: {side.pipeline or UNAVAILABLE}.")
    return lines


def warnings(comparison: Comparison) -> list[str]:
    """What makes the figures of a side doubtful, a sentence each."""
    return [f"{name}: {warning}." for name, side in _sides(comparison) for warning in side.warnings]


def remarks(comparison: Comparison) -> list[str]:
    """What limits the figures, a sentence each."""
    lines = [f"Not checked: {what}." for what in comparison.not_checked]
    for side, names in (("A", comparison.only_a), ("B", comparison.only_b)):
        if names:
            lines.append(f"Only {side} has: {', '.join(names)}.")
    return lines + comparison.notes


def sides(comparison: Comparison) -> list[str]:
    """Which runs are compared, a line a side."""
    return [
        f"{name}: {', '.join(side.runs)}"
        + (f" ({len(side.runs)} runs)" if len(side.runs) > 1 else "")
        + (f", revision {side.revision[:12]}" if side.revision else "")
        for name, side in _sides(comparison)
    ]


def _sides(comparison: Comparison) -> Iterator[tuple[str, Side]]:
    yield "A", comparison.a
    yield "B", comparison.b


def _differences(comparison: Comparison) -> Table:
    rows = [[item.key, item.base, item.head] for item in comparison.differences]
    notes = ["Compared all the same (--allow-different): a change may be the settings' alone."]
    return Table("Settings that differ", ["setting", "A", "B"], rows, notes)


def _metrics(comparison: Comparison) -> Table:
    tested = any(entry.p_value is not None for entry in comparison.metrics)
    rows = [_metric_row(entry, tested=tested) for entry in comparison.metrics]
    columns = ["metric", "A", "B", "B / A"]
    notes = []
    if any(entry.higher_is_better for entry in comparison.metrics):
        notes.append("+: higher is better; of the others, lower is.")
    if tested:
        columns += ["95 % CI", "p", "B>A"]
        notes.append(
            "A, B: medians of the runs. B / A: Hodges-Lehmann. CI: its interval. p: Mann-Whitney, "
            "two-sided. B>A: share of the pairs of runs in which B is larger."
        )
    return Table("Metrics", columns, rows, notes)


def _metric_row(entry: MetricChange, *, tested: bool) -> list[str]:
    meaning = metric(entry.name)
    # tokens_per_step and acceptance_length say it in their names.
    unit = "" if entry.unit == "tokens" else entry.unit
    label = f"{meaning.name} {unit}".strip() + (" +" if entry.higher_is_better else "")
    row = [label, _figure(entry.a_median), _figure(entry.b_median), _ratio(entry.ratio)]
    if not tested:
        return row
    interval = entry.interval
    bounded = interval is not None and interval.low is not None and interval.high is not None
    return [
        *row,
        f"{interval.low:.3f}..{interval.high:.3f}" if interval is not None and bounded else UNAVAILABLE,
        _p_value(entry.p_value),
        NONE if entry.effect is None else f"{100 * entry.effect:.0f}%",
    ]


def _step_time(change: StepTimeChange) -> Table:
    tested = change.wall.p_value is not None
    rows = [
        [
            entry.phase,
            *_change_cells(entry.time),
            _share(entry.time, change.wall),
            *_p_cell(entry.time, tested),
        ]
        for entry in change.phases
    ]
    total = sum(entry.time.change for entry in change.phases)
    rows.append(["sum of phases", NONE, NONE, _signed(total), NONE, NONE, *([NONE] if tested else [])])
    rows.append(["step", *_change_cells(change.wall), NONE, *_p_cell(change.wall, tested)])
    notes = [
        f"Means of {change.a_steps} {_scope(change.scope)} in A and {change.b_steps} in B, from one "
        f"publication ({change.published_by}) to the next. The phases' changes add up to the step's: "
        f"{_signed(total)} = {_signed(change.wall.change)} ms.",
        *(
            f"Counted in {into}, because not every run records it: "
            f"{', '.join(phase for phase, place in change.folded.items() if place == into)}."
            for into in dict.fromkeys(change.folded.values())
        ),
    ]
    columns = ["phase, ms", "A", "B", "change", "B / A", "of change", *(["p"] if tested else [])]
    return Table(f"Where a step's time changed: {change.callable}", columns, rows, notes)


def _share(part: Change, whole: Change) -> str:
    if whole.change == 0:
        return NONE
    text = f"{100 * part.change / whole.change:.0f} %"
    return "0 %" if text == "-0 %" else text


def _ranks(ranks: RankComparison) -> Table:
    rows = [_rank_row(entry, moved=entry.rank in ranks.moved) for entry in ranks.ranks]
    notes = [
        f"Means over {_scope(ranks.scope, 'rounds')}. *: moved apart from the others. runner_run includes what a rank "
        "waits for the others in an exchange: when all moved alike, one of them may be the cause.",
        *(
            f"{side} has no ranks {', '.join(map(str, absent))}."
            for side, absent in ranks.missing_ranks.items()
        ),
    ]
    columns = ["rank, ms", "runner A", "B", "B / A", "root A", "B", "B / A"]
    if any(
        change.p_value is not None
        for entry in ranks.ranks
        for change in (entry.runner_run, entry.root)
        if change
    ):
        columns = [*columns[:4], "p", *columns[4:], "p"]
        rows = [
            [row[0], *row[1:4], _p_of(entry.runner_run), *row[4:], _p_of(entry.root)]
            for row, entry in zip(rows, ranks.ranks, strict=True)
        ]
    return Table(f"Rank by rank: {ranks.callable}", columns, rows, notes)


def _rank_row(entry: RankChange, *, moved: bool) -> list[str]:
    cells = [f"{entry.rank}*" if moved else str(entry.rank)]
    for change in (entry.runner_run, entry.root):
        cells += [NONE] * 3 if change is None else [number(change.a), number(change.b), _ratio(change.ratio)]
    return cells


def _rank_figures(ranks: RankComparison) -> Table:
    tested = any(entry.time.p_value is not None for entry in ranks.figures)
    rows = [
        [entry.figure, *_change_cells(entry.time), *_p_cell(entry.time, tested)] for entry in ranks.figures
    ]
    columns = ["figure, ms", "A", "B", "change", "B / A", *(["p"] if tested else [])]
    return Table(f"Ranks together: {ranks.callable}", columns, rows, ["Means over the rounds or runs."])


def _spans(changes: Sequence[SpanChange]) -> Table:
    rows = [
        [
            entry.name,
            f"{entry.a_spans:.0f}",
            f"{entry.b_spans:.0f}",
            number(entry.total.a),
            number(entry.total.b),
            _ratio(entry.total.ratio),
        ]
        for entry in changes[:_SPAN_ROWS]
    ]
    notes = [f"{len(changes) - _SPAN_ROWS} more names are in the JSON."] if len(changes) > _SPAN_ROWS else []
    columns = ["name, total in ms", "spans A", "B", "total A", "B", "B / A"]
    return Table("Spans by name, the largest change first", columns, rows, notes)


def _distributions(found: Sequence[Distribution]) -> Table:
    rows = []
    for entry in found:
        for name, summary in (("A", entry.a), ("B", entry.b)):
            percentiles = (summary.p50, summary.p95, summary.p99)
            rows.append(
                [
                    f"{name}: {entry.figure}",
                    str(summary.n),
                    *(
                        NONE if value is None else number(value)
                        for value in (summary.min, *percentiles, summary.max)
                    ),
                ]
            )
    notes = ["A description of these two runs: steps and requests of one run are no sample of runs."]
    return Table("Within the runs, ms", ["of", "n", "min", "p50", "p95", "p99", "max"], rows, notes)


def _change_cells(change: Change) -> list[str]:
    return [number(change.a), number(change.b), _signed(change.change), _ratio(change.ratio)]


def _p_cell(change: Change, tested: bool) -> list[str]:
    return [_p_value(change.p_value)] if tested else []


def _p_of(change: Change | None) -> str:
    return NONE if change is None else _p_value(change.p_value)


def _figure(value: float) -> str:
    """Three decimals, fewer for large values: what matters is seen and a column stays narrow."""
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.2f}" if abs(value) < 1000 else f"{value:.0f}"


def _ratio(ratio: float | None) -> str:
    return NONE if ratio is None else f"{ratio:.3f}"


def _signed(time_ns: float) -> str:
    text = f"{time_ns / 1e6:+.3f}"
    return "+0.000" if text == "-0.000" else text


def _p_value(p_value: float | None) -> str:
    return NONE if p_value is None else "<0.001" if p_value < 0.001 else f"{p_value:.3f}"


def _scope(scope: str, unit: str = "steps") -> str:
    return f"steady {unit}" if scope == "steady" else unit
