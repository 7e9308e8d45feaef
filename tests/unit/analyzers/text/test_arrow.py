"""Tables as Arrow tables: numbers stay numbers, and what is unavailable is null."""

from __future__ import annotations

from pathlib import Path

import pyarrow as arrow
import pytest

from analyzers.analysis import analyze
from analyzers.report.tables import report_tables
from analyzers.text.arrow import arrow_table
from analyzers.text.tables import CellKind, Column, Table
from tests.builders.places import CASES, SMOKE_RUN, TRACES


def test_every_kind_has_its_type_and_unit() -> None:
    table = Table(
        "T",
        [
            Column("what"),
            Column("of", CellKind.FIGURES),
            Column("n", CellKind.COUNT),
            Column("x", CellKind.NUMBER),
            Column("mean", CellKind.TIME, absent="-"),
            Column("mean", CellKind.TIME),
            Column("share", CellKind.SHARE),
        ],
        [["a", "1 of 2", 3, 0.5, 1_234_567.5, 2, 0.25], [None, None, 4, None]],
        ["first", "second"],
    )
    found = arrow_table(table)
    assert found.schema.names == ["what", "of", "n", "x", "mean (ns)", "mean (ns) 2", "share"]
    assert found.schema.types == [
        arrow.utf8(), arrow.utf8(), arrow.int64(), arrow.float64(), arrow.float64(), arrow.float64(), arrow.float64(),
    ]  # fmt: skip
    assert found.column("mean (ns)").to_pylist() == [1_234_567.5, None]
    assert found.column("n").to_pylist() == [3, 4]
    assert found.column("share").to_pylist() == [0.25, None]
    assert found.column("of").to_pylist() == ["1 of 2", None]
    assert found.schema.field("mean (ns)").metadata == {b"unit": b"ns"}
    assert found.schema.field("share").metadata == {b"unit": b"1"}
    assert found.schema.field("n").metadata is None
    assert found.schema.metadata == {b"title": b"T", b"notes": b"first\nsecond"}


def test_a_table_without_rows_keeps_its_types() -> None:
    found = arrow_table(Table("T", [Column("n", CellKind.COUNT)], []))
    assert (found.num_rows, found.schema.types) == (0, [arrow.int64()])


@pytest.mark.parametrize(
    "path",
    [
        SMOKE_RUN,
        TRACES / "simpler-l3_multi_chip_dispatch.log",
        CASES / "53-straggler-rotates" / "steps.jsonl",
    ],
)
def test_every_table_of_a_report_has_the_values_that_its_columns_say(path: Path) -> None:
    tables = report_tables(analyze([path]))
    assert tables
    for table in tables:
        found = arrow_table(table)
        assert (found.num_rows, found.num_columns) == (len(table.rows), len(table.columns))
        for index, column in enumerate(table.columns):
            cells = [row[index] if index < len(row) else None for row in table.rows]
            assert found.column(index).to_pylist() == cells, (table.title, column.heading)
