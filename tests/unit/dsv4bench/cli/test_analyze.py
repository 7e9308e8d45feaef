"""`dsv4bench analyze` and `validate`: formats, exit codes and error texts, in process."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from dsv4bench.cli import main
from tests.builders.places import CASES, TRACES

GOOD = CASES / "39-out-of-order-completion" / "trace.json"
FAULTY = CASES / "42-wait-nested-in-submit-zero-gap" / "trace.json"
REPAIRED = CASES / "01-json-no-closing-bracket" / "trace.json"
LOST = CASES / "07-json-unescaped-quote" / "trace.json"
EMPTY = CASES / "15-empty-inputs" / "zero_bytes.json"
FAILED = CASES / "72-percentile-of-nothing" / "requests.jsonl"
WARN_LEVEL = TRACES / "simpler-l3_warn_level.log"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["dsv4bench", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit_info:
        main()
    code = exit_info.value.code
    return code if isinstance(code, int) else 0


@pytest.mark.parametrize(
    ("path", "options", "code"),
    [
        (GOOD, [], 0),
        (GOOD, ["--strict"], 0),
        (FAULTY, [], 0),
        (FAULTY, ["--strict"], 4),
        (REPAIRED, [], 0),
        (REPAIRED, ["--strict"], 4),
        (LOST, [], 4),
        (LOST, ["--max-loss", "1"], 0),
        (EMPTY, [], 3),
        (WARN_LEVEL, [], 3),
        (FAILED, [], 1),
    ],
)
def test_exit_codes_of_analyze(
    path: Path,
    options: list[str],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, "analyze", path, *options) == code
    error = capsys.readouterr().err
    assert bool(error) == (code != 0)
    assert "Traceback" not in error


@pytest.mark.parametrize(("path", "code"), [(GOOD, 0), (FAULTY, 4), (REPAIRED, 4), (LOST, 4), (EMPTY, 3)])
def test_exit_codes_of_validate(path: Path, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "validate", path) == code


@pytest.mark.parametrize("command", ["analyze", "validate"])
def test_unusable_input_is_one_clear_line(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    no_trace = tmp_path / "notes.txt"
    no_trace.write_text("nothing of the kind\n")
    empty_directory = tmp_path / "empty"
    empty_directory.mkdir()
    for path, expected in [
        (tmp_path / "missing.json", "cannot be read: No such file or directory"),
        (no_trace, "not a trace"),
        (empty_directory, "not a run directory"),
        (CASES / "04-json-bare-array" / "other.json", "not a trace: no traceEvents"),
    ]:
        assert run(monkeypatch, command, path) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        [line] = captured.err.splitlines()
        assert line.startswith(f"dsv4bench: {path}: ")
        assert expected in line


def test_no_data_at_warn_level_names_the_log_level(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "analyze", WARN_LEVEL) == 3
    captured = capsys.readouterr()
    assert "the log level hides the runtime's timing records" in captured.err
    assert "PYPTO_RUNTIME_LOG=v9" in captured.out


def test_json_is_one_document_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "analyze", GOOD, "--format", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    [steps] = [entry for entry in document["steps"] if entry["scope"] == "all"]
    assert (steps["source"], steps["latency"]["n"], steps["latency"]["max"]) == (
        "submit_to_completion",
        3,
        100_000,
    )
    assert steps["latency"]["p95"] is None


def test_out_writes_the_report_to_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for output_format, start in [("md", "# Analysis\n"), ("json", "{"), ("table", "info: ")]:
        path = tmp_path / f"report.{output_format}"
        assert run(monkeypatch, "analyze", GOOD, "--format", output_format, "--out", path) == 0
        assert path.read_text(encoding="utf-8").startswith(start)
    assert capsys.readouterr().out == ""


def test_an_unwritable_out_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert run(monkeypatch, "analyze", GOOD, "--out", tmp_path / "file" / "place.md", "--format", "md") == 2
    assert "--out" in (said := capsys.readouterr().err)
    assert "cannot be written: Not a directory" in " ".join(said.split())


def test_the_directory_of_out_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "place.json"
    assert run(monkeypatch, "analyze", GOOD, "--out", path, "--format", "json") == 0
    assert json.loads(path.read_text(encoding="utf-8"))["schema_version"]


def test_late_ms_moves_the_threshold(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = TRACES / "simpler-l3_pipe_n2_depth2.log"
    assert run(monkeypatch, "analyze", log, "--format", "json", "--late-ms", "19") == 0
    [skew] = json.loads(capsys.readouterr().out)["skew"]
    # Half of 39.242 ms is the one start more than 19 ms after the median of its two ranks.
    assert [entry["after_median_ns"] for entry in skew["late_starts"]] == [39_242_377 / 2]


def test_bad_usage_exits_2(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "analyze", GOOD, "--format", "pdf") == 2
    assert run(monkeypatch, "analyze") == 2
    assert run(monkeypatch, "analyze", GOOD, GOOD) == 2
