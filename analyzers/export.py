"""The span table for other tools: a Parquet file, or the answer to one SQL query. Needs the extras named in each error.

One row a span. Times are int64 ns of the row's clock; an id that a span does not carry is null. `pid` is different for
different processes; `orig_pid` is what the file has, which ranks in containers may share.
"""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from analyzers.errors import UnusableInputError
from analyzers.readers.strace import family
from analyzers.table.processes import merged_pids
from analyzers.table.spans import ABSENT, ID_COLUMNS, Clock, Kind, Source, SpanTable
from analyzers.text.markdown import render_table
from analyzers.text.output import drawn, write_output, writing
from analyzers.text.tables import CellKind, Column, Table
from analyzers.text.terminal import print_table

TABLE_NAME = "spans"

QueryFormat = Literal["table", "md", "json", "csv"]

_WIDTH = 200
_READ_ONLY = ("SELECT", "EXPLAIN")


class MissingExtraError(UnusableInputError):
    """A library that an optional extra brings is not installed."""


class QueryError(UnusableInputError):
    """A query that cannot be run, or may not."""


@dataclass(frozen=True)
class QueryResult:
    """The rows of a query, in plain Python values."""

    columns: list[str]
    rows: list[tuple[Any, ...]]


def write_parquet(spans: SpanTable, path: Path) -> None:
    """Write the span table to `path`, through a rename.

    Raises:
        MissingExtraError: pyarrow is not installed.
        UnusableInputError: the file cannot be written.
    """
    table = _arrow_table(spans, "parquet", "--export-parquet")
    parquet = importlib.import_module("pyarrow.parquet")
    partial = path.with_name(path.name + ".partial")
    with writing(path, "--export-parquet"):
        parquet.write_table(table, partial, compression="zstd")
        partial.replace(path)


def run_query(spans: SpanTable, query: str) -> QueryResult:
    """Answer one read-only SQL statement over the table `spans`.

    The database is in memory, reaches no file and no network, and its configuration is locked.

    Raises:
        MissingExtraError: duckdb or pyarrow is not installed.
        QueryError: the query is not one SELECT or EXPLAIN, or the database refuses it.
    """
    duckdb = _library("duckdb", "sql", "--sql")
    table = _arrow_table(spans, "sql", "--sql")
    connection = duckdb.connect(":memory:", config={"enable_external_access": "false"})
    try:
        connection.register(TABLE_NAME, table)
        connection.execute("SET lock_configuration = true")
        statements = duckdb.extract_statements(query)
        if len(statements) != 1 or statements[0].type.name not in _READ_ONLY:
            raise QueryError(f"--sql: expected one SELECT over the table {TABLE_NAME}, read-only: {query}")
        cursor = connection.execute(statements[0])
        columns = [description[0] for description in cursor.description]
        return QueryResult(columns, cursor.fetchall())
    except duckdb.Error as error:
        raise QueryError(f"--sql: {error}") from error
    finally:
        connection.close()


def write_query(result: QueryResult, output: QueryFormat, out: Path | None) -> None:
    """Write a result to the file `out`, or to standard output when it is None.

    JSON is an array of objects; CSV has a head line, and nothing for null.

    Raises:
        UnusableInputError: the file cannot be written.
    """
    write_output(_rendered(result, output), out)


def _rendered(result: QueryResult, output: QueryFormat) -> str:
    match output:
        case "json":
            rows = [dict(zip(result.columns, row, strict=True)) for row in result.rows]
            return msgspec.json.format(msgspec.json.encode(rows, enc_hook=str), indent=2).decode() + "\n"
        case "csv":
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(result.columns)
            writer.writerows(result.rows)
            return text.getvalue()
        case "md":
            return render_table(_table(result))
        case "table":
            return drawn(lambda console: print_table(_table(result), console), _WIDTH)


def _table(result: QueryResult) -> Table:
    columns = [
        Column(name, _kind([row[index] for row in result.rows]), str, absent="")
        for index, name in enumerate(result.columns)
    ]
    return Table("Query", columns, result.rows, [f"{len(result.rows)} rows"])


def _kind(values: Sequence[Any]) -> CellKind:
    """Numbers, where no value that is there is anything else."""
    known = [value for value in values if value is not None]
    numbers = all(isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in known)
    return CellKind.NUMBER if known and numbers else CellKind.TEXT


def _arrow_table(spans: SpanTable, extra: str, option: str) -> Any:
    arrow = _library("pyarrow", extra, option)

    def labels(codes: Any, values: list[str]) -> Any:
        return arrow.DictionaryArray.from_arrays(
            arrow.array(np.asarray(codes, dtype=np.int32)), arrow.array(values or [""])
        )

    def integers(values: Any) -> Any:
        column = np.ascontiguousarray(values)
        return arrow.array(column, mask=column == ABSENT)

    lanes, processes, threads = spans.lanes, spans.process_names, spans.thread_names
    columns = {
        "name": labels(spans.name, list(spans.names)),
        "category": labels(spans.category, list(spans.categories)),
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
        "hid": labels(spans.hid, list(spans.hids)),
        **{column: integers(getattr(spans, column)) for column in ID_COLUMNS},
        "arguments": arrow.array(_arguments(spans), type=arrow.string()),
    }
    return arrow.table(columns)


def _arguments(spans: SpanTable) -> list[str | None]:
    """The arguments of every row as a JSON object; null for none."""
    encode = msgspec.json.Encoder(enc_hook=str).encode
    rows = (spans.args(row) for row in range(len(spans)))
    return [encode(arguments).decode(errors="replace") if arguments else None for arguments in rows]


def _library(name: str, extra: str, option: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingExtraError(
            f"{option} needs {name}: install the extra, `pip install 'dsv4bench[{extra}]'`"
        ) from None
