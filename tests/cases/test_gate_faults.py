"""Faults in what a gate and a query are asked: unknown directions, keys there twice, shares, tables, marks, columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from analyzers.gate.metrics import metric, more_is_better
from dsv4bench.cli import app
from tests.builders.places import CASES

DIRECTIONS = CASES / "84-metric-direction-guessed"
REPEATED = CASES / "85-samples-key-twice"
TABLE = CASES / "100-gate-table-misspelt"
PERCENT = CASES / "101-threshold-in-percent"
MARK = CASES / "105-toml-byte-order-mark"


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def gate(head: Path, base: Path, *options: object) -> Result:
    return invoke("gate", "check", head, "--baseline", base, *options)


def message(result: Result) -> str:
    return result.stdout + str(result.exception or "")


def code(result: Result) -> int:
    return getattr(result.exception, "exit_code", result.exit_code)


def samples(path: Path, name: str, values: list[float]) -> Path:
    document = {"config": {"batch": 1}, "machine": "a", "metrics": {name: values}}
    path.write_text(json.dumps(document))
    return path


FULL = [1000.0, 1001.0, 999.0, 1002.0, 998.0, 1000.5, 1003.0, 997.0]
HALF = [value / 2 for value in FULL]


@pytest.mark.parametrize(
    "name",
    ["tokens/s", "req/s", "qps", "speedup", "bandwidth", "hit rate", "GB/s", "output_tokens_per_s", "goodput",
     "requests per second", "tokens_per_sec", "tok_s", "tokens_s", "copy_gb_s", "Throughput"],
)  # fmt: skip
def test_a_halved_rate_fails(name: str, tmp_path: Path) -> None:
    base, head = samples(tmp_path / "base.json", name, FULL), samples(tmp_path / "head.json", name, HALF)
    assert code(gate(head, base, "--metric", name)) == 1
    assert code(gate(head, base)) == 1
    assert code(gate(base, head, "--metric", name)) == 0


@pytest.mark.parametrize(
    "name", ["latency", "wall time", "ttft_p99_ms", "s/step", "ms/token", "itl", "misses"]
)
def test_what_doubles_of_a_time_or_a_size_fails(name: str, tmp_path: Path) -> None:
    base, head = samples(tmp_path / "base.json", name, HALF), samples(tmp_path / "head.json", name, FULL)
    assert code(gate(head, base, "--metric", name)) == 1


@pytest.mark.parametrize(
    "name",
    [
        "score",
        "quality",
        "tokens",
        "widgets[bs=2]",
        "memory_free_gb",
        "uptime_s",
        "token_s",
        "throughput_drop",
        "time_between_failures_s",
        "cache_hits",
        "foo_per_s",
    ],
)
def test_a_direction_that_nothing_tells_is_asked_for(name: str, tmp_path: Path) -> None:
    base, head = samples(tmp_path / "base.json", name, FULL), samples(tmp_path / "head.json", name, HALF)
    for options in ((), ("--metric", name)):
        refused = gate(head, base, *options)
        assert code(refused) == 2
        assert "more or less of it is better" in message(refused)
        assert " worse" not in message(refused)
    assert code(gate(head, base, "--metric", f"{name}=0.02:more")) == 1
    assert code(gate(head, base, "--metric", f"{name}:less")) == 0
    config = tmp_path / "gate.toml"
    config.write_text(f'[gate.metrics."{name}"]\nmax_regression = 0.02\nbetter = "more"\n')
    assert code(gate(head, base, "--config", config)) == 1


def test_the_direction_of_a_known_metric_is_no_matter_of_opinion(tmp_path: Path) -> None:
    base = samples(tmp_path / "base.json", "tpot_ms", FULL)
    refused = gate(base, base, "--metric", "tpot:more")
    assert code(refused) == 2
    assert "less of it is better" in message(refused)


def test_case_84() -> None:
    base, head = DIRECTIONS / "base-0.json", DIRECTIONS / "head-0.json"
    result = gate(head, base, "--metric", "tokens/s=0.02")
    assert code(result) == 1
    assert metric("tokens/s").unit == "tokens/s"
    assert more_is_better("step_time[0].wall.mean") is False


def test_a_key_that_is_there_twice_is_named() -> None:
    refused = gate(REPEATED / "head.json", REPEATED / "base.json")
    assert code(refused) == 2
    assert "'tpot' is there twice" in message(refused)
    assert code(gate(REPEATED / "base.json", REPEATED / "head.json")) == 2


@pytest.mark.parametrize(
    "text",
    [
        '{"config": {"b": 1}, "config": {"b": 2}, "metrics": {"tpot": [1, 2]}}',
        '{"config": {"b": 1, "b": 2}, "metrics": {"tpot": [1, 2]}}',
        '{"metrics": {"tpot": [1]}, "metrics": {"tpot": [2]}}',
        '{"metrics": {"tpot": [1, 2]}, "machine": "a", "machine": "a"}',
        '{"config": {"deep": [{"x": 1, "x": 1}]}, "metrics": {"tpot": [1]}}',
    ],
)
def test_no_object_of_a_samples_file_has_a_key_twice(text: str, tmp_path: Path) -> None:
    path = tmp_path / "samples.json"
    path.write_text(text)
    assert code(gate(path, REPEATED / "base.json")) == 2
    assert code(invoke("gate", "baseline", "show", path)) == 2


def test_a_table_that_is_misspelt_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = gate(TABLE / "head.json", TABLE / "base.json", "--config", TABLE / "dsv4bench.toml")
    assert code(refused) == 2
    assert "did you mean 'gate'?" in message(refused)
    assert code(gate(TABLE / "head.json", TABLE / "base.json", "--config", TABLE / "right.toml")) == 1
    monkeypatch.chdir(tmp_path)
    for text in ("[gates]\n", "[Gate]\n", "[gat.metrics.tpot]\nlimit = 5.0\n", "[other]\n", "limit = 5\n"):
        Path("dsv4bench.toml").write_text(text)
        assert code(gate(TABLE / "head.json", TABLE / "base.json")) == 2
    Path("dsv4bench.toml").write_text("[gate.metrics.tpot]\nmax_regresion = 0.02\n")
    assert "max_regression" in message(gate(TABLE / "head.json", TABLE / "base.json"))


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [("2%", 1), ("0.02", 1), ("2", 2), ("1", 2), ("100", 2), ("200%", 0), (" 2 %", 1), ("-0.1", 2), ("nan", 2), ("inf", 2),
     ("nan%", 2), ("x%", 2)],
)  # fmt: skip
def test_a_share_of_one_and_more_is_written_in_percent(threshold: str, expected: int) -> None:
    result = gate(
        PERCENT / "head.json", PERCENT / "base.json", "--metric", f"tpot={threshold}", "--excluded", "300%"
    )
    assert code(result) == expected
    if threshold == "2":
        assert "2% or 0.02" in message(result)


@pytest.mark.parametrize(("value", "expected"), [('"2%"', 1), ("0.02", 1), ("2", 2), ("2.0", 2), ('"2"', 2)])
def test_shares_in_a_file_are_read_alike(value: str, expected: int, tmp_path: Path) -> None:
    config = tmp_path / "gate.toml"
    config.write_text(f"[gate.metrics.tpot]\nmax_regression = {value}\n")
    assert code(gate(PERCENT / "head.json", PERCENT / "base.json", "--config", config)) == expected


def test_limits_are_amounts() -> None:
    assert gate(PERCENT / "base.json", PERCENT / "base.json", "--limit", "tpot=200").exit_code in (0, 5)


def test_a_byte_order_mark_is_read_over(tmp_path: Path) -> None:
    options = ("--config", MARK / "bom.toml")
    plain = tmp_path / "plain.toml"
    plain.write_bytes((MARK / "bom.toml").read_bytes().removeprefix(b"\xef\xbb\xbf"))
    marked = gate(MARK / "head.json", MARK / "base.json", *options)
    unmarked = gate(MARK / "head.json", MARK / "base.json", "--config", plain)
    assert (marked.exit_code, marked.stdout) == (unmarked.exit_code, unmarked.stdout)
    assert "Invalid statement" not in message(marked)
    assert code(invoke("profiles", MARK / "bom.toml")) == code(invoke("profiles", plain))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_mark_of_another_encoding_is_named(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "wide.toml"
    path.write_bytes("\ufeff[gate]\n".encode(encoding))
    refused = gate(MARK / "head.json", MARK / "base.json", "--config", path)
    assert code(refused) == 2
    assert "UTF-16" in message(refused)
    assert "UTF-16" in message(invoke("profiles", path))


@pytest.mark.parametrize("late", ["inf", "1e300", "1e30", "0", "5"])
def test_never_late_is_a_number_too(late: str) -> None:
    result = invoke("analyze", CASES / "103-late-ms-infinite" / "plain.log", "--late-ms", late)
    assert result.exit_code == 0


@pytest.mark.parametrize("late", ["nan", "-1", "-inf", "x"])
def test_what_is_no_time_is_refused(late: str) -> None:
    result = invoke("analyze", CASES / "103-late-ms-infinite" / "plain.log", "--late-ms", late)
    assert code(result) == 2


QUERY = "select a.name, b.name from spans a join spans b on a.dispatch_id = b.dispatch_id"


def query(text: str, output: str) -> str:
    trace = CASES / "97-sql-two-columns-one-name" / "trace.json"
    result = invoke("analyze", trace, "--sql", text, "--sql-format", output)
    assert result.exit_code == 0, message(result)
    return result.stdout


def test_two_columns_of_one_name_are_both_there() -> None:
    pytest.importorskip("duckdb")
    rows: list[dict[str, Any]] = json.loads(query(QUERY, "json"))
    assert all(row.keys() == {"name", "name_1"} for row in rows)
    assert any(row["name"] != row["name_1"] for row in rows)
    assert query(QUERY, "csv").splitlines()[0] == "name,name_1"
    assert "name\\_1" in query(QUERY, "md")
    taken = "select 1 as name, 2 as name, 3 as name_1, 4 as name"
    assert json.loads(query(taken, "json")) == [{"name": 1, "name_2": 2, "name_1": 3, "name_3": 4}]


@pytest.mark.parametrize(
    ("window", "expected"), [(":inf", 0), ("-inf:inf", 0), (":1e303", 0), ("nan:", 2), (":nan", 2)]
)
def test_a_window_may_be_without_end_but_is_no_nan(window: str, expected: int) -> None:
    log = CASES / "103-late-ms-infinite" / "plain.log"
    assert code(invoke("analyze", log, f"--window={window}")) == expected
