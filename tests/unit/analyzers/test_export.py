"""The span table as Parquet and behind SQL: every value as it was read, and nothing but reading allowed."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from analyzers.errors import UnusableInputError
from analyzers.export import MissingExtraError, QueryError, run_query, write_parquet, write_query
from analyzers.table.spans import (
    Clock,
    Kind,
    Lane,
    Source,
    SpanTable,
    SpanTableBuilder,
    concatenate,
    empty_table,
)
from dsv4bench.cli import main
from tests.builders.places import CASES

TRACE = CASES / "39-out-of-order-completion" / "trace.json"


@pytest.fixture
def spans() -> SpanTable:
    serving, ranks = SpanTableBuilder(Source.SERVING), SpanTableBuilder(Source.STRACE)
    lane = Lane("trace.json", "CPU functions", 7)
    serving.append(
        "decode.worker_submit",
        10,
        5,
        lane,
        clock=Clock.FILE,
        category="kernel",
        step_id=3,
        arguments={"k": [1, "é"]},
    )
    serving.append("request.queued", 2**62, 0, lane, clock=Clock.HOST, kind=Kind.INSTANT)
    serving.thread_names[lane] = "device lane"
    ranks.append(
        "chip.run", 20, 30, Lane("rank.log", 100, 1), clock=Clock.DEVICE, hid="ab", rank=0, dispatch_id=0
    )
    return concatenate([serving.build(), ranks.build()])


EXPECTED: list[dict[str, Any]] = [
    {
        "name": "decode.worker_submit", "category": "kernel", "family": "unknown", "start_ns": 10, "duration_ns": 5,
        "end_ns": 15, "clock": "file", "source": "serving", "kind": "span", "rank": None, "pid": None, "tid": 7,
        "thread": "device lane", "file": "trace.json", "step_id": 3, "dispatch_id": None,
        "arguments": '{"k":[1,"é"]}',
    },
    {
        "name": "request.queued", "start_ns": 2**62, "end_ns": 2**62, "clock": "host", "kind": "instant",
        "step_id": None, "arguments": None,
    },
    {
        "name": "chip.run", "family": "chip", "clock": "device", "source": "strace", "rank": 0, "pid": 100, "tid": 1,
        "process": "", "hid": "ab", "dispatch_id": 0, "step_id": None,
    },
]  # fmt: skip


def test_parquet_holds_every_value(spans: SpanTable, tmp_path: Path) -> None:
    path = tmp_path / "spans.parquet"
    write_parquet(spans, path)
    rows = pyarrow.parquet.read_table(path).to_pylist()
    assert [{key: row[key] for key in wanted} for row, wanted in zip(rows, EXPECTED, strict=True)] == EXPECTED
    assert list(tmp_path.iterdir()) == [path]


def test_no_spans_are_an_empty_file(tmp_path: Path) -> None:
    write_parquet(empty_table(), tmp_path / "none.parquet")
    assert pyarrow.parquet.read_table(tmp_path / "none.parquet").num_rows == 0
    assert run_query(empty_table(), "select count(*) from spans").rows == [(0,)]


def test_a_file_that_cannot_be_written_is_named(spans: SpanTable, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnusableInputError, match=r"--export-parquet .*such\.parquet: cannot be written"):
        write_parquet(spans, tmp_path / "file" / "such.parquet")


def test_a_query_is_answered_from_the_table(spans: SpanTable) -> None:
    result = run_query(
        spans, "select source, count(*) as n, sum(duration_ns) from spans group by source order by n"
    )
    assert result.columns[:2] == ["source", "n"]
    assert result.rows == [("strace", 1, 30), ("serving", 2, 5)]


@pytest.mark.parametrize(
    "query",
    [
        "select 1; select 2",
        "",
        "delete from spans",
        "create table t as select 1",
        "copy (select 1) to 'out.csv'",
        "select * from read_csv('/etc/passwd')",
        "attach 'other.db'",
        "set threads = 1",
        "install httpfs",
        "select * from nowhere",
        "selekt 1",
    ],
)
def test_nothing_but_one_reading_statement_is_run(
    query: str, spans: SpanTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(QueryError, match="--sql: "):
        run_query(spans, query)
    assert list(tmp_path.iterdir()) == []


def test_results_are_written_in_every_format(spans: SpanTable, tmp_path: Path) -> None:
    result = run_query(
        spans, "select name, step_id, 1.5::decimal(3,1) as share from spans order by start_ns limit 2"
    )
    path = tmp_path / "out"
    write_query(result, "csv", path)
    assert path.read_text() == "name,step_id,share\ndecode.worker_submit,3,1.5\nchip.run,,1.5\n"
    write_query(result, "json", path)
    assert json.loads(path.read_text()) == [
        {"name": "decode.worker_submit", "step_id": 3, "share": "1.5"},
        {"name": "chip.run", "step_id": None, "share": "1.5"},
    ]
    write_query(result, "md", path)
    assert "| decode.worker\\_submit | 3 | 1.5 |" in path.read_text()
    write_query(result, "table", path)
    assert "decode.worker_submit" in path.read_text()
    assert path.read_text().rstrip().endswith("2 rows")


@pytest.mark.parametrize(
    ("library", "extra", "call"),
    [
        ("pyarrow", "parquet", lambda spans, path: write_parquet(spans, path)),
        ("duckdb", "sql", lambda spans, path: run_query(spans, "select 1")),
    ],
)
def test_a_missing_library_names_its_extra(
    library: str, extra: str, call: Any, spans: SpanTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=rf"needs {library}: .*dsv4bench\[{extra}\]"):
        call(spans, tmp_path / "x")
    monkeypatch.undo()
    importlib.import_module(library)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["dsv4bench", "analyze", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit_info:
        main()
    return exit_info.value.code if isinstance(exit_info.value.code, int) else 0


def test_the_command_exports_and_answers_what_passes_its_filters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "spans.parquet"
    # Case 39 has three submits and three waits.
    query = "select count(*) as n, max(dispatch_id) as last from spans"
    assert run(monkeypatch, TRACE, "--sql", query, "--sql-format", "json", "--export-parquet", path) == 0
    assert json.loads(capsys.readouterr().out) == [{"n": 6, "last": 3}]
    assert pyarrow.parquet.read_table(path).num_rows == 6
    assert run(monkeypatch, TRACE, "--sql", "drop table spans") == 2
    assert run(monkeypatch, TRACE, "--steps", "nonsense") == 2
    assert "--steps nonsense: expected A:B" in capsys.readouterr().err
