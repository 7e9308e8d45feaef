"""A comparison as tables and sentences, for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from analyzers.compare.model import (
    Change,
    Comparison,
    DistributionPair,
    MetricChange,
    RankComparison,
    SideDescription,
    SpanChange,
    StepTimeChange,
)
from analyzers.gate.metrics import metric
from analyzers.text.figures import UNAVAILABLE, percent
from analyzers.text.tables import Cell, CellKind, Column, Row, Table

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


def _sides(comparison: Comparison) -> Iterator[tuple[str, SideDescription]]:
    yield "A", comparison.a
    yield "B", comparison.b


def _differences(comparison: Comparison) -> Table:
    rows = [[item.key, item.base, item.head] for item in comparison.differences]
    notes = ["Compared all the same (--allow-different): a change may be the settings' alone."]
    return Table("Settings that differ", [Column("setting"), Column("A"), Column("B")], rows, notes)


def _metrics(comparison: Comparison) -> Table:
    tested = any(entry.p_value is not None for entry in comparison.metrics)
    rows = [_metric_row(entry, tested=tested) for entry in comparison.metrics]
    columns = [
        Column("metric"),
        Column("A", CellKind.NUMBER, _figure),
        Column("B", CellKind.NUMBER, _figure),
        _RATIO,
    ]
    notes = []
    if any(entry.higher_is_better for entry in comparison.metrics):
        notes.append("+: higher is better; of the others, lower is.")
    if tested:
        share = Column("B>A", CellKind.SHARE, "{:.0%}".format, absent=NONE, dispensable=1)
        columns += [Column("95 % CI", CellKind.FIGURES), _P_VALUE, share]
        notes.append(
            "A, B: medians of the runs. B / A: Hodges-Lehmann. CI: its interval. p: Mann-Whitney, "
            "two-sided. B>A: share of the pairs of runs in which B is larger."
        )
    return Table("Metrics", columns, rows, notes)


def _metric_row(entry: MetricChange, *, tested: bool) -> Row:
    meaning = metric(entry.name)
    # tokens_per_step and acceptance_length say it in their names.
    unit = "" if entry.unit == "tokens" else entry.unit
    label = f"{meaning.name} {unit}".strip() + (" +" if entry.higher_is_better else "")
    row: list[Cell] = [label, entry.a_median, entry.b_median, entry.ratio]
    if not tested:
        return row
    interval = entry.interval
    bounded = interval is not None and interval.low is not None and interval.high is not None
    return [
        *row,
        f"{interval.low:.3f}..{interval.high:.3f}" if interval is not None and bounded else None,
        entry.p_value,
        entry.effect,
    ]


def _step_time(change: StepTimeChange) -> Table:
    tested = change.wall.p_value is not None
    rows: list[Row] = [
        [entry.phase, *_change_cells(entry.time), _share(entry.time, change.wall), entry.time.p_value]
        for entry in change.phases
    ]
    total = sum(entry.time.change for entry in change.phases)
    rows.append(["sum of phases", None, None, total, None, None, None])
    rows.append(["step", *_change_cells(change.wall), None, change.wall.p_value])
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
    columns = [
        Column("phase, ms"),
        *_CHANGE,
        Column("of change", CellKind.SHARE, _whole_percent, absent=NONE),
    ]
    title = f"Where a step's time changed: {change.callable}"
    return _with_p_values(Table(title, columns, rows, notes), tested=tested)


def _with_p_values(table: Table, *, tested: bool) -> Table:
    """The table with a column for the p-values that end its rows; without them where nothing was tested."""
    if not tested:
        return replace(table, rows=[row[:-1] for row in table.rows])
    return replace(table, columns=[*table.columns, _P_VALUE])


def _share(part: Change, whole: Change) -> float | None:
    return part.change / whole.change if whole.change else None


def _ranks(ranks: RankComparison) -> Table:
    rows: list[Row] = [
        [
            f"{entry.rank}*" if entry.rank in ranks.moved else str(entry.rank),
            *_rank_cells(entry.runner_run),
            *_rank_cells(entry.root),
        ]
        for entry in ranks.ranks
    ]
    notes = [
        f"Means over {_scope(ranks.scope, 'rounds')}. *: moved apart from the others. runner_run includes what a rank "
        "waits for the others in an exchange: when all moved alike, one of them may be the cause.",
        *(
            f"{side} has no ranks {', '.join(map(str, absent))}."
            for side, absent in ranks.missing_ranks.items()
        ),
    ]
    runner, root = (
        [Column(f"{what} A", CellKind.TIME, absent=NONE), _B, _RATIO, _P_VALUE] for what in ("runner", "root")
    )
    if not any(
        change.p_value is not None
        for entry in ranks.ranks
        for change in (entry.runner_run, entry.root)
        if change
    ):
        runner, root = runner[:-1], root[:-1]
        rows = [[*row[:4], *row[5:8]] for row in rows]
    columns = [Column("rank, ms"), *runner, *root]
    return Table(f"Rank by rank: {ranks.callable}", columns, rows, notes)


def _rank_cells(change: Change | None) -> list[Cell]:
    return [None] * 4 if change is None else [change.a, change.b, change.ratio, change.p_value]


def _rank_figures(ranks: RankComparison) -> Table:
    tested = any(entry.time.p_value is not None for entry in ranks.figures)
    rows: list[Row] = [
        [entry.figure, *_change_cells(entry.time), entry.time.p_value] for entry in ranks.figures
    ]
    columns = [Column("figure, ms"), *_CHANGE]
    notes = ["Means over the rounds or runs."]
    return _with_p_values(Table(f"Ranks together: {ranks.callable}", columns, rows, notes), tested=tested)


def _spans(changes: Sequence[SpanChange]) -> Table:
    rows: list[Row] = [
        [
            entry.name,
            entry.a_spans,
            entry.b_spans,
            entry.total.a,
            entry.total.b,
            entry.total.ratio,
        ]
        for entry in changes[:_SPAN_ROWS]
    ]
    notes = [f"{len(changes) - _SPAN_ROWS} more names are in the JSON."] if len(changes) > _SPAN_ROWS else []
    columns = [
        Column("name, total in ms"),
        Column("spans A", CellKind.NUMBER, "{:.0f}".format, dispensable=2),
        Column("B", CellKind.NUMBER, "{:.0f}".format, dispensable=1),
        Column("total A", CellKind.TIME),
        _B,
        _RATIO,
    ]
    return Table("Spans by name, the largest change first", columns, rows, notes)


def _distributions(found: Sequence[DistributionPair]) -> Table:
    rows: list[Row] = [
        [
            f"{name}: {entry.figure}",
            summary.n,
            summary.min,
            summary.p50,
            summary.p95,
            summary.p99,
            summary.max,
        ]
        for entry in found
        for name, summary in (("A", entry.a), ("B", entry.b))
    ]
    figures = ("min", "p50", "p95", "p99", "max")
    columns = [
        Column("of"),
        Column("n", CellKind.COUNT),
        *(Column(name, CellKind.TIME, absent=NONE) for name in figures),
    ]
    notes = ["A description of these two runs: steps and requests of one run are no sample of runs."]
    return Table("Within the runs, ms", columns, rows, notes)


def _change_cells(change: Change) -> list[Cell]:
    """Cells of `_CHANGE`."""
    return [change.a, change.b, change.change, change.ratio]


def _figure(value: float) -> str:
    """Three decimals, fewer for large values: what matters is seen and a column stays narrow."""
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.2f}" if abs(value) < 1000 else f"{value:.0f}"


def _signed(time_ns: float) -> str:
    text = f"{time_ns / 1e6:+.3f}"
    return "+0.000" if text == "-0.000" else text


def _whole_percent(share: float) -> str:
    text = percent(share, 0)
    return "0 %" if text == "-0 %" else text


def _p_value(p_value: float) -> str:
    return "<0.001" if p_value < 0.001 else f"{p_value:.3f}"


def _scope(scope: str, unit: str = "steps") -> str:
    return f"steady {unit}" if scope == "steady" else unit


_B = Column("B", CellKind.TIME, absent=NONE)
_RATIO = Column("B / A", CellKind.NUMBER, absent=NONE, dispensable=3)
_P_VALUE = Column("p", CellKind.NUMBER, _p_value, absent=NONE, dispensable=2)
_CHANGE = (Column("A", CellKind.TIME, absent=NONE), _B, Column("change", CellKind.TIME, _signed), _RATIO)
