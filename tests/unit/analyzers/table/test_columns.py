"""Groups and intervals in columns, and the spans of steps, against what plain loops find."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analyzers.ranks.rank_starts import measure_rank_starts
from analyzers.ranks.scheduler import NEVER, read_schedule
from analyzers.steps.step_spans import StepSpans
from analyzers.table.grouping import number_groups, split_groups, turns
from analyzers.table.intervals import Interval, IntervalSet, most_open, open_at
from analyzers.table.spans import Clock, Lane, Source, SpanTable, SpanTableBuilder
from tests.builders.spans import Spans

VALUES = st.lists(st.integers(-2, 3), max_size=20)
INTERVALS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 10)).map(lambda pair: (pair[0], sum(pair))), max_size=12
)


@given(st.lists(st.tuples(st.integers(-1, 2), st.integers(-1, 2)), max_size=20))
def test_rows_are_numbered_alike_where_every_column_is_equal(rows: list[tuple[int, int]]) -> None:
    first, second = (
        (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)) if rows else ([], [])
    )
    expected = [sorted(set(rows)).index(row) for row in rows]
    assert number_groups(np.asarray(first), np.asarray(second)).tolist() == expected


@given(VALUES)
def test_groups_are_split_by_their_first_row_and_turns_count_within_them(values: list[int]) -> None:
    groups = np.array(values, dtype=np.int64)
    expected = [[i for i, other in enumerate(values) if other == value] for value in dict.fromkeys(values)]
    assert [rows.tolist() for rows in split_groups(groups)] == expected
    seen: Counter[int] = Counter()
    counted = []
    for value in values:
        counted.append(seen[value])
        seen[value] += 1
    assert turns(groups).tolist() == counted


@given(INTERVALS, INTERVALS)
def test_an_interval_set_knows_what_overlaps_it(
    members: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    def columns(pairs: list[tuple[int, int]]) -> list[np.ndarray]:
        return [np.array([pair[edge] for pair in pairs], dtype=np.int64) for edge in (0, 1)]

    expected = [any(Interval(*one).overlaps(Interval(*other)) for other in members) for one in asked]
    assert IntervalSet(*columns(members)).overlap(*columns(asked)).tolist() == expected


def test_an_interval_is_open_from_its_turn_until_a_time_at_its_end() -> None:
    at, ends = [0, 10, 20, 5], [20, 15, 30, 4]
    # The one that ends at 15 is gone at 20, and so is the first; the last ends before its own time, but counts.
    assert [sorted(index for _, index in found) for found in open_at(at, ends)] == [[0], [0, 1], [2], [2, 3]]
    assert most_open(at, ends) == 2
    assert most_open([], []) == 0


def serving(*spans: tuple[str, int, int, int, dict[str, Any]]) -> SpanTable:
    """Spans of (name, start, end, pid, ids)."""
    table = Spans(Source.SERVING)
    for name, start, end, pid, ids in spans:
        table.add(name, start, end, pid=pid, **ids)
    return table.build()


def test_the_outermost_span_of_a_step_is_found_by_process_and_step() -> None:
    spans = serving(
        ("x.prepare_decode", 0, 10, 1, {"step_id": 7}),
        ("y.prepare_decode", 2, 9, 1, {"step_id": 7}),
        ("x.prepare_decode", 20, 40, 2, {"step_id": 7}),
        ("x.prepare_decode", 50, 60, 1, {"step_id": 9}),
        ("x.prepare_decode", 70, 80, 1, {}),
        ("other", 0, 99, 1, {"step_id": 7}),
    )
    found = StepSpans(spans, ".prepare_decode")
    processes = (("trace.json", 2), ("elsewhere", 1), ("trace.json", 1))
    asked = [(2, 7), (2, 9), (2, 8), (0, 7), (0, 9), (1, 7), (2, 99), (2, -5)]
    codes, steps = (np.array(column) for column in zip(*asked, strict=True))
    positions = found.find(processes, codes.astype(np.int32), steps)
    starts = [None if position < 0 else int(found.start_ns[position]) for position in positions]
    assert starts == [0, 50, None, 20, None, None, None, None]
    assert len(StepSpans(spans, ".reclaim_decode")) == 0


def test_a_flight_lasts_from_the_first_submit_to_the_last_complete_of_a_run() -> None:
    table = Spans(Source.STRACE)
    for name, start, end, run in (
        ("node.a.submit", 10, 12, 1), ("node.b.submit", 5, 6, 1), ("node.a.complete", 30, 31, 1),
        ("node.b.complete", 20, 40, 1), ("node.a.submit", 1, 2, 2), ("node.a.complete", 3, 4, 2),
        ("node.a.submit", 50, 51, 3), ("chip.a.submit", 0, 1, 1),
    ):  # fmt: skip
        table.add(name, start, end, run_id=run)
    schedule = read_schedule(table.build())
    assert schedule.run_id.tolist() == [1, 2, 3]
    # Run 3 was never completed.
    assert schedule.flights() == [[(1, 2, 3, 4), (5, 12, 30, 40), (50, 51, NEVER, NEVER)]]
    assert schedule.flights({0, 2}) == [[(5, 12, 30, 40), (50, 51, NEVER, NEVER)]]


def test_starts_are_matched_by_step_and_turn() -> None:
    table = SpanTableBuilder(Source.SERVING)
    for name, rank, step, start in (
        ("a", 0, 1, 100), ("a", 1, 1, 130), ("a", 0, 1, 200), ("a", 1, 1, 190), ("a", 0, 2, 300),
        ("b", 0, 1, 10), ("c", 0, 1, 20), ("c", 1, 2, 25),
    ):  # fmt: skip
        table.append(name, start, 5, Lane(f"rank{rank}", 1, 1), clock=Clock.HOST, rank=rank, step_id=step)
    figures = {entry.name: entry for entry in measure_rank_starts(table.build())}
    # The second `a` of step 1 of one rank meets the second of the other; step 2 has no counterpart.
    assert (figures["a"].skew.n, figures["a"].skew.min, figures["a"].skew.max) == (2, 10, 30)
    assert (figures["a"].ranks, figures["a"].incomplete) == ([0, 1], 1)
    assert (figures["c"].skew.n, figures["c"].incomplete) == (0, 2)
    assert "b" not in figures
