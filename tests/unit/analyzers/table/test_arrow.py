"""The span table as Arrow table and data frame: every value, its type, and null where a span has none."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.extras import MissingExtraError
from analyzers.frames import data_frame
from analyzers.table.arrow import ALWAYS_KNOWN, span_arrow
from analyzers.table.spans import Clock, Lane, Source, SpanTable, SpanTableBuilder, concatenate, empty_table

PYTHON_MD = Path(__file__).parents[4] / "docs" / "python.md"
LARGEST = 2**63 - 1


def table() -> SpanTable:
    serving, ranks = SpanTableBuilder(Source.SERVING), SpanTableBuilder(Source.STRACE)
    serving.append("decode.worker_submit", 10, 5, Lane("trace.json", 1, 7), clock=Clock.HOST, step_id=LARGEST)
    for rank in (0, 1):
        for run in (1, 2, 3):
            lane = Lane("server.log", 100 + rank, 1)
            ranks.append("chip.run", 20 * run, 30 + rank * run, lane, clock=Clock.HOST, rank=rank)
    ranks.append("node.submit", 2, 3, Lane("server.log", 99, 1), clock=Clock.DEVICE)
    return concatenate([serving.build(), ranks.build()])


def test_what_every_span_has_is_never_null_and_all_else_may_be() -> None:
    for spans in (table(), empty_table()):
        arrow = span_arrow(spans)
        assert arrow.num_rows == len(spans)
        assert [field.name for field in arrow.schema if not field.nullable] == list(ALWAYS_KNOWN)
        assert all(arrow[name].null_count == 0 for name in ALWAYS_KNOWN)
        arrow.validate(full=True)


def test_texts_are_dictionaries_without_repeats() -> None:
    arrow = span_arrow(table())
    texts = [field.name for field in arrow.schema if pa.types.is_dictionary(field.type)]
    assert {"name", "family", "file", "clock", "process", "hid"} <= set(texts)
    for name in texts:
        entries = arrow[name].combine_chunks().dictionary.to_pylist()
        assert len(set(entries)) == len(entries), name
    assert arrow["family"].to_pylist() == ["unknown", *["chip"] * 6, "node"]
    assert arrow["file"].to_pylist() == ["trace.json", *["server.log"] * 7]


def test_integers_stay_integers_in_a_data_frame() -> None:
    frame = table().to_pandas()
    assert {str(frame[name].dtype) for name in ("start_ns", "duration_ns", "end_ns")} == {"int64"}
    assert {str(frame[name].dtype) for name in ("rank", "step_id", "pid", "depth")} == {"Int64"}
    assert {str(frame[name].dtype) for name in ("logical_device", "physical_device")} == {"Int32"}
    assert frame["step_id"].iloc[0] == LARGEST, "as a float it would be 2**63"
    assert frame["rank"].isna().tolist() == [True, *[False] * 6, True]


def test_a_phase_is_grouped_by_rank() -> None:
    frame = table().to_pandas()
    runs = frame[frame["name"] == "chip.run"].groupby("rank")["duration_ns"]
    # Rank 0 takes 30 ns in each of three runs; rank 1 takes 31, 32 and 33.
    assert runs.sum().to_dict() == {0: 90, 1: 96}
    assert runs.median().to_dict() == {0: 30.0, 1: 32.0}


def test_no_spans_are_a_data_frame_of_the_same_types() -> None:
    some, none = table().to_pandas(), empty_table().to_pandas()
    assert len(none) == 0
    # The type of a category holds its texts, of which an empty table has none.
    numbers = [str(name) for name, kind in some.dtypes.items() if not isinstance(kind, pd.CategoricalDtype)]
    assert none.dtypes[numbers].to_dict() == some.dtypes[numbers].to_dict()
    assert list(none.columns) == list(some.columns)


integers = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.tuples(integers, st.one_of(st.none(), integers))))
def test_no_integer_changes_between_arrow_and_pandas(rows: list[tuple[int, int | None]]) -> None:
    schema = pa.schema([pa.field("known", pa.int64(), nullable=False), pa.field("maybe", pa.int64())])
    columns = [pa.array([row[index] for row in rows], pa.int64()) for index in (0, 1)]
    frame = data_frame(lambda: pa.table(columns, schema=schema))
    assert frame["known"].dtype == np.int64
    assert [None if value is pd.NA else value for value in frame["maybe"]] == [maybe for _, maybe in rows]
    assert frame["known"].tolist() == [known for known, _ in rows]


@pytest.mark.parametrize(
    ("library", "call", "message"),
    [
        ("pyarrow", SpanTable.to_arrow, r"an Arrow table needs pyarrow: .*dsv4bench\[parquet\]"),
        ("pyarrow", SpanTable.to_pandas, r"a data frame needs pyarrow: .*dsv4bench\[pandas\]"),
        ("pandas", SpanTable.to_pandas, r"a data frame needs pandas: .*dsv4bench\[pandas\]"),
    ],
)
def test_a_missing_library_names_its_extra(
    library: str, call: Callable[[SpanTable], object], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=message):
        call(table())


def test_the_document_has_every_column_with_its_type() -> None:
    documented = re.findall(r"^\| `(\w+)` \| ([\w, ]+) \|", PYTHON_MD.read_text(), re.MULTILINE)
    schema = span_arrow(table()).schema

    def kind(field: pa.Field) -> str:
        text = pa.types.is_dictionary(field.type) or pa.types.is_string(field.type)
        return ("text" if text else str(field.type)) + (", null" if field.nullable else "")

    assert documented == [(field.name, kind(field)) for field in schema]
