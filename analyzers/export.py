"""The span table for other tools: a Parquet file, or the answer to one SQL query. Needs the extras named in each error."""

from __future__ import annotations

import csv
import importlib
import io
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from analyzers.errors import UnusableInputError
from analyzers.extras import library
from analyzers.json_text import json_document
from analyzers.table.arrow import span_arrow
from analyzers.table.spans import SpanTable
from analyzers.text.markdown import render_table
from analyzers.text.output import drawn, replacing, write_output
from analyzers.text.tables import CellKind, Column, Table
from analyzers.text.terminal import print_table

TABLE_NAME = "spans"

QueryFormat = Literal["table", "md", "json", "csv"]

_WIDTH = 200
_READ_ONLY = ("SELECT", "EXPLAIN")


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
    library("pyarrow", "parquet", "--export-parquet")
    table = span_arrow(spans)
    parquet = importlib.import_module("pyarrow.parquet")
    with replacing(path, "--export-parquet") as file:
        parquet.write_table(table, file, compression="zstd")


def run_query(spans: SpanTable, query: str) -> QueryResult:
    """Answer one read-only SQL statement over the table `spans`.

    The database is in memory, reaches no file and no network, and its configuration is locked.

    Raises:
        MissingExtraError: duckdb or pyarrow is not installed.
        QueryError: the query is not one SELECT or EXPLAIN, or the database refuses it.
    """
    duckdb = library("duckdb", "sql", "--sql")
    library("pyarrow", "sql", "--sql")
    table = span_arrow(spans)
    connection = duckdb.connect(":memory:", config={"enable_external_access": "false"})
    try:
        connection.register(TABLE_NAME, table)
        connection.execute("SET lock_configuration = true")
        statements = duckdb.extract_statements(query)
        if len(statements) != 1 or statements[0].type.name not in _READ_ONLY:
            raise QueryError(f"--sql: expected one SELECT over the table {TABLE_NAME}, read-only: {query}")
        cursor = connection.execute(statements[0])
        columns = _distinct([description[0] for description in cursor.description])
        return QueryResult(columns, cursor.fetchall())
    except duckdb.Error as error:
        raise QueryError(f"--sql: {error}") from error
    finally:
        connection.close()


def _distinct(names: Sequence[str]) -> list[str]:
    """The names of a result's columns, no two alike: a second `name` is `name_1`, unless there is one."""
    taken, found = set(names), []
    seen: set[str] = set()
    for name in names:
        own = name
        if name in seen:
            own = next(other for turn in itertools.count(1) if (other := f"{name}_{turn}") not in taken)
        taken.add(own)
        seen.add(own)
        found.append(own)
    return found


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
            return json_document(rows, str)
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
