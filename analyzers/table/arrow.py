"""The span table as an Arrow table, and Arrow tables as pandas data frames. Needs the extra that each error names.

One row a span (docs/python.md, Columns of the span table). Times are int64 ns of the row's clock; an id that a span does
not carry is null. `pid` is different for different processes; `orig_pid` is what the file has, which ranks in containers
may share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from analyzers.extras import library
from analyzers.table.families import family
from analyzers.table.processes import merged_pids
from analyzers.table.spans import ABSENT, ID_COLUMNS, Clock, Codes, Kind, Source, SpanTable

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Bytes = npt.NDArray[np.int8]

ALWAYS_KNOWN = (
    "name", "category", "family", "start_ns", "duration_ns", "end_ns", "clock", "source", "kind", "process", "thread",
    "file", "hid",
)  # fmt: skip
"""Columns of the span table that no row leaves out; a text that a row does not have is empty."""


def span_arrow(spans: SpanTable) -> pa.Table:
    """The spans as an Arrow table, one row each; repeated texts are dictionaries.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    arrow = library("pyarrow", "parquet", "span_arrow")

    def labels(codes: Codes | Bytes, texts: Sequence[str]) -> pa.DictionaryArray:
        distinct = list(dict.fromkeys(texts))
        if len(distinct) < len(texts):
            # Readers may rely on it that no entry of a dictionary is there twice.
            code_of = {text: code for code, text in enumerate(distinct)}
            codes = np.array([code_of[text] for text in texts], dtype=np.int32)[codes]
        return arrow.DictionaryArray.from_arrays(
            arrow.array(np.ascontiguousarray(codes, dtype=np.int32)), arrow.array(distinct, arrow.string())
        )

    def integers(values: npt.NDArray[Any]) -> pa.Array:
        column = np.ascontiguousarray(values)
        return arrow.array(column, mask=column == ABSENT)

    lanes, processes, threads = spans.lanes, spans.process_names, spans.thread_names
    columns = {
        "name": labels(spans.name, spans.names),
        "category": labels(spans.category, spans.categories),
        "family": labels(spans.name, [family(name) for name in spans.names]),
        "start_ns": arrow.array(np.ascontiguousarray(spans.start_ns)),
        "duration_ns": arrow.array(np.ascontiguousarray(spans.duration_ns)),
        "end_ns": arrow.array(spans.end_ns),
        "clock": labels(spans.clock, [clock.name.lower() for clock in Clock]),
        "source": labels(spans.source, [source.name.lower() for source in Source]),
        "kind": labels(spans.kind, [kind.name.lower() for kind in Kind]),
        "rank": integers(spans.rank),
        "logical_device": integers(spans.logical_device),
        "physical_device": integers(spans.physical_device),
        "pid": integers(np.append(merged_pids(spans), ABSENT)[spans.lane]),
        "orig_pid": integers(spans.pid),
        "tid": integers(spans.tid),
        "process": labels(spans.lane, [processes.get(lane.process, "") for lane in lanes]),
        "thread": labels(spans.lane, [threads.get(lane, "") for lane in lanes]),
        "file": labels(spans.lane, [lane.file for lane in lanes]),
        "hid": labels(spans.hid, spans.hids),
        **{column: integers(getattr(spans, column)) for column in ID_COLUMNS},
        "arguments": arrow.array(_arguments(spans), type=arrow.string()),
    }
    schema = arrow.schema(
        [
            arrow.field(name, column.type, nullable=name not in ALWAYS_KNOWN)
            for name, column in columns.items()
        ]
    )
    return arrow.table(list(columns.values()), schema=schema)


def span_frame(spans: SpanTable) -> pd.DataFrame:
    """The spans as a data frame, one row each: the columns of `span_arrow`, in the types of `data_frame`.

    Raises:
        MissingExtraError: pandas or pyarrow is not installed.
    """
    library("pandas", "pandas", "span_frame")
    library("pyarrow", "pandas", "span_frame")
    return data_frame(span_arrow(spans))


def data_frame(table: pa.Table) -> pd.DataFrame:
    """An Arrow table as a data frame in which every integer stays one.

    Integers are int64 where the table's schema admits no null, else pandas' nullable Int64, so that an id that is not
    there is `<NA>` and the others are no floats. Dictionaries are categories.

    Raises:
        MissingExtraError: pandas is not installed.
    """
    pandas = library("pandas", "pandas", "data_frame")
    arrow = library("pyarrow", "pandas", "data_frame")
    nullable = {arrow.int64(): pandas.Int64Dtype(), arrow.int32(): pandas.Int32Dtype()}
    frame: pd.DataFrame = table.to_pandas(types_mapper=nullable.get)
    complete = [field for field in table.schema if field.type in nullable and not field.nullable]
    return frame.astype({field.name: field.type.to_pandas_dtype() for field in complete})


def _arguments(spans: SpanTable) -> list[str | None]:
    """The arguments of every row as a JSON object; null for none."""
    encode = msgspec.json.Encoder(enc_hook=str).encode
    rows = (spans.args(row) for row in range(len(spans)))
    return [encode(arguments).decode(errors="replace") if arguments else None for arguments in rows]
