"""The span table as an Arrow table. Needs the extra `parquet`.

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
from analyzers.json_text import valid_text
from analyzers.table.families import family
from analyzers.table.processes import merged_pids
from analyzers.table.spans import ABSENT, ID_COLUMNS, Clock, Codes, Int64s, Kind, Source, SpanTable, is_number

if TYPE_CHECKING:
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
    arrow = library("pyarrow", "parquet", "an Arrow table")

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

    def ids(column: Int64s) -> pa.Array:
        # What is no integer stands among the arguments.
        return integers(np.where(is_number(column), column, ABSENT))

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
        "file": labels(spans.lane, [valid_text(lane.file) for lane in lanes]),
        "hid": labels(spans.hid, spans.hids),
        **{column: ids(getattr(spans, column)) for column in ID_COLUMNS},
        "arguments": arrow.array(_arguments(spans), type=arrow.string()),
    }
    schema = arrow.schema(
        [
            arrow.field(name, column.type, nullable=name not in ALWAYS_KNOWN)
            for name, column in columns.items()
        ]
    )
    return arrow.table(list(columns.values()), schema=schema)


def _arguments(spans: SpanTable) -> list[str | None]:
    """The arguments of every row as a JSON object; null for none."""
    encode = msgspec.json.Encoder(enc_hook=str).encode
    rows = (spans.args(row) for row in range(len(spans)))
    return [encode(arguments).decode(errors="replace") if arguments else None for arguments in rows]
