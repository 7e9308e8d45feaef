"""Case 106: the directory that pypto-serving's profiling skill leaves, whole and in part, and what its files state."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from analyzers.analysis import analyze, judge
from analyzers.clients.stated import StatedFigure, StatedFigures
from analyzers.errors import NoDataError
from analyzers.gate.baseline import save_baseline
from analyzers.report.model import Report
from dsv4bench.cli import app
from tests.builders.places import CASES
from tests.builders.requests import request, write_requests

CASE = CASES / "106-upstream-artifact-directory"
MS = 1_000_000
REQUEST_LINE = "INFO request cmpl-1 finished: prompt=3 out=20 ttft=0.050s e2e=0.450s\n"
ACCEPTANCE_LINE = "INFO DeepSeekV4 MTP acceptance for cmpl-1: accepted=10 proposed=12 rate=83.33%\n"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A copy of the case to change."""
    copy = tmp_path / "artifacts"
    shutil.copytree(CASE, copy)
    return copy


def stated_of(*paths: Path) -> StatedFigures:
    stated = analyze(paths).stated
    assert stated is not None
    return stated


def dsv4bench(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, old
    path.write_text(text.replace(old, new))


def evidence(report: Report, code: str) -> list[str]:
    return [finding.evidence for finding in report.findings if finding.code == code]


def test_every_stated_figure_comes_with_its_sources() -> None:
    report = analyze([CASE])
    assert report.lost == 0
    assert judge(report, strict=True).exit_code == 0
    stated = report.stated
    assert stated is not None
    summary, log = "performance_summary.json", "server.log"
    assert (stated.requests.value, stated.output_tokens.value, stated.prompt_tokens.value) == (1, 20, 3)
    assert stated.output_tokens.sources == [summary, "responses.json", "completion-response.json", log]
    assert stated.prompt_tokens.sources == ["completion-response.json", log]
    assert (stated.mtp_accepted.value, stated.mtp_proposed.value) == (10, 12)
    assert stated.mtp_accepted.sources == stated.e2e.sources == stated.ttft.sources == [log]
    assert (stated.ttft.value, stated.e2e.value) == (50 * MS, 450 * MS)
    assert stated.throughput == StatedFigure(44.4, [summary])
    assert stated.effective_tpot == StatedFigure(22.5 * MS, [summary])
    assert stated.contradicted == {}


def test_the_table_names_figures_and_files_at_80_columns() -> None:
    done = dsv4bench("analyze", CASE)
    assert done.exit_code == 0
    table = done.stdout.partition("Requests, as stated")[2].partition("no client measured them")[0]
    for words in ("10 of 12 (83.3 %)", "44.4 tokens/s", "22.500 ms, prefill included", "mean 450.000 ms"):
        assert words in table
    assert "performance_summary.json" in table
    assert max(map(len, table.splitlines())) <= 80


def test_the_trace_of_the_directory_is_read_with_its_log() -> None:
    report = analyze([CASE])
    assert {Path(entry.path).name for entry in report.inputs} == {
        "trace.json", "server.log", "performance_summary.json", "responses.json", "completion-response.json",
    }  # fmt: skip
    decode = next(
        item for item in report.steps if item.callable.endswith("decode_mtp_fused") and item.scope == "all"
    )
    assert (decode.latency.n, decode.latency.mean) == (12, 58 * MS)
    assert sum(item.rounds for item in report.skew if item.scope == "all") == 14


def test_every_file_that_was_not_read_is_named(directory: Path) -> None:
    for name in ("notes.txt", ".hidden", "server.log~", "deep/er/other.log"):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n")
    report = analyze([directory])
    (finding,) = [finding for finding in report.findings if finding.code == "files_not_read"]
    assert finding.title == "6 files of the directory were not read"
    for name in (
        ".hidden",
        "notes.txt",
        "server.log~",
        "deep/er/other.log",
        "serving-trace/fragments/trace.700.jsonl",
        "serving-trace/fragments/trace.701.jsonl",
    ):
        assert name in finding.evidence


def test_many_files_are_counted_and_the_first_are_named(directory: Path) -> None:
    for number in range(30):
        (directory / f"a{number:02}.txt").write_text("")
    (found,) = evidence(analyze([directory]), "files_not_read")
    assert found.startswith("a00.txt, a01.txt")
    assert "and 24 more" in found


@pytest.mark.parametrize(
    "home", ["serving-trace/fragments", "fragments", "serving-trace/trace.json.fragments", "."]
)
def test_without_a_merged_trace_the_fragments_are_read_wherever_they_lie(directory: Path, home: str) -> None:
    fragments = directory / "serving-trace" / "fragments"
    (directory / "serving-trace" / "trace.json").unlink()
    moved = directory / "moved"
    shutil.move(fragments, moved)
    (directory / home).mkdir(parents=True, exist_ok=True)
    for path in moved.iterdir():
        shutil.move(path, directory / home / path.name)
    moved.rmdir()
    report = analyze([directory])
    assert report.lifecycle.pairs == 12
    assert evidence(report, "files_not_read") == []


def test_a_run_log_that_repeats_the_server_log_counts_once(directory: Path) -> None:
    once = analyze([directory])
    log = directory / "server.log"
    shutil.copy(log, directory / "run.log")
    assert analyze([directory]).records == once.records
    # The same with words of the driver around it: no copy, and yet nothing counts twice.
    (directory / "run.log").write_text(f"driver starts\n{log.read_text()}PROFILE_MERGED_EVENTS=198\n")
    again = analyze([directory])
    assert (again.records, again.spans, again.lost) == (once.records, once.spans, 0)
    assert again.stated is not None
    assert (again.stated.requests.value, again.stated.mtp_accepted.value) == (1, 10)
    assert [(item.rounds, item.incomplete) for item in again.skew] == [
        (item.rounds, item.incomplete) for item in once.skew
    ]
    log.unlink()
    alone = analyze([directory])
    assert (alone.spans, alone.stated.mtp_accepted.sources if alone.stated else None) == (
        once.spans,
        ["run.log"],
    )


def test_lines_said_twice_count_once(directory: Path) -> None:
    log = directory / "server.log"
    log.write_text(log.read_text() + ACCEPTANCE_LINE + REQUEST_LINE)
    stated = stated_of(directory)
    assert (stated.requests.value, stated.output_tokens.value) == (1, 20)
    assert (stated.mtp_accepted.value, stated.mtp_proposed.value) == (10, 12)


def shorten_responses(directory: Path) -> None:
    answer = {"index": 0, "text": "x", "token_ids": list(range(19)), "finish_reason": "length"}
    (directory / "responses.json").write_text(json.dumps([answer]))


@pytest.mark.parametrize(
    ("change", "figure", "said"),
    [
        (shorten_responses, "output_tokens", {20, 19}),
        (lambda d: replace(d / "server.log", " out=20 ", " out=19 "), "output_tokens", {20, 19}),
        (lambda d: replace(d / "completion-response.json", '"prompt_tokens": 3', '"prompt_tokens": 4'),
         "prompt_tokens", {3, 4}),
        (lambda d: replace(d / "performance_summary.json", '"request_count": 1', '"request_count": 2'),
         "requests", {1, 2}),
        (lambda d: replace(d / "performance_summary.json", "44.4", "88.8"), "throughput", {88.8, 20 / 0.45}),
        (lambda d: replace(d / "performance_summary.json", "22.5", "45.0"), "effective_tpot",
         {45.0 * MS, 22.5 * MS}),
        (lambda d: (d / "server.log").write_text(
            (d / "server.log").read_text() + ACCEPTANCE_LINE.replace("=10 ", "=9 ").replace("83.33", "75.00")),
         "mtp_accepted", {10, 9}),
    ],
)  # fmt: skip
def test_of_sources_that_contradict_each_other_none_is_used(
    directory: Path, change: Callable[[Path], None], figure: str, said: set[float]
) -> None:
    change(directory)
    report = analyze([directory])
    assert report.stated is not None
    found: StatedFigure = getattr(report.stated, figure)
    assert found.value is None
    assert sorted(value.value for value in found.contradictions) == pytest.approx(sorted(said))
    assert evidence(report, "sources_contradict")
    assert judge(report, strict=True).exit_code == 4
    assert "unavailable: " in dsv4bench("analyze", directory).stdout


def test_more_drafts_accepted_than_proposed_give_no_rate(directory: Path) -> None:
    replace(
        directory / "server.log",
        "accepted=10 proposed=12 rate=83.33%",
        "accepted=13 proposed=12 rate=108.33%",
    )
    report = analyze([directory])
    assert report.stated is not None
    assert (report.stated.mtp_accepted.value, report.stated.acceptance_rate) == (None, None)
    assert report.stated.impossible == ["cmpl-1"]
    assert evidence(report, "mtp_impossible")


def test_a_rate_that_is_not_that_of_its_counts_is_not_used(directory: Path) -> None:
    replace(directory / "server.log", "rate=83.33%", "rate=93.33%")
    report = analyze([directory])
    assert report.stated is not None
    assert report.stated.mtp_accepted.value is None
    assert report.lost == 1


@pytest.mark.parametrize(
    ("line", "torn"),
    [
        (ACCEPTANCE_LINE, "INFO DeepSeekV4 MTP acceptance for cmpl-1: accepted=10 proposed=1"),
        (ACCEPTANCE_LINE, "INFO DeepSeekV4 MTP acceptance for cmpl-1: accepted=1[mono_ns=1] \n"),
        (REQUEST_LINE, "INFO request cmpl-1 finished: prompt=3 out=2[mono_ns=1]\n"),
        (REQUEST_LINE, "INFO request cmpl-1 finished: prompt=3 out=20 ttft=0.050s e2e=0.4"),
        (REQUEST_LINE, "INFO request cmpl-1 finished:"),
        (REQUEST_LINE, "INFO request cmpl-1 finished: prompt=3 out=-1 ttft=0.050s e2e=0.450s\n"),
    ],
)
def test_a_torn_line_is_lost_and_gives_no_number(directory: Path, line: str, torn: str) -> None:
    log = directory / "server.log"
    log.write_text(log.read_text().replace(line, "") + torn)
    report = analyze([directory])
    assert report.lost == 1
    assert judge(report).exit_code == 4
    assert report.stated is not None
    # The files still say it, and nothing cut short contradicts them.
    assert report.stated.output_tokens.value == 20
    assert report.stated.contradicted == {}
    cut = report.stated.mtp_accepted if line is ACCEPTANCE_LINE else report.stated.e2e
    assert cut.value is None or "out=-1" in torn


def test_the_line_of_the_real_server_has_no_ttft(directory: Path) -> None:
    line = "(APIServer pid=7) INFO request cmpl-1 finished: prompt=3 out=20 reason=length e2e=0.45s (44.4 tok/s)\n"
    replace(directory / "server.log", REQUEST_LINE, f"\x1b[32m{line}\x1b[0m\n")
    stated = stated_of(directory)
    assert (stated.ttft.value, stated.e2e.value, stated.output_tokens.value) == (None, 450 * MS, 20)


def test_what_nobody_states_is_unavailable_and_never_0(directory: Path) -> None:
    for name in ("performance_summary.json", "responses.json", "completion-response.json"):
        (directory / name).unlink()
    stated = stated_of(directory)
    assert (stated.requests.value, stated.output_tokens.value, stated.prompt_tokens.value) == (1, 20, 3)
    assert stated.output_tokens.sources == ["server.log"]
    for figure in (stated.elapsed, stated.throughput, stated.effective_tpot):
        assert figure == StatedFigure()


@pytest.mark.parametrize("name", ["performance_summary.json", "responses.json", "completion-response.json"])
def test_any_of_the_files_is_read_alone(tmp_path: Path, name: str) -> None:
    whole = stated_of(CASE / name)
    assert whole.output_tokens.value == 20
    assert whole.mtp_accepted == whole.e2e == StatedFigure()
    (tmp_path / name).write_bytes((CASE / name).read_bytes())
    assert stated_of(tmp_path).output_tokens.value == 20
    assert dsv4bench("analyze", tmp_path).exit_code == 0


@pytest.mark.parametrize("name", ["performance_summary.json", "responses.json", "completion-response.json"])
@pytest.mark.parametrize("content", ["", "{", "[1, 2", '{"a": 1}', "null", "\x00"])
def test_a_file_that_is_not_what_its_name_says_is_lost_not_believed(
    directory: Path, name: str, content: str
) -> None:
    (directory / name).write_text(content)
    report = analyze([directory])
    assert report.lost >= 1
    assert report.stated is not None
    assert report.stated.output_tokens.value == 20
    assert name not in report.stated.output_tokens.sources


@pytest.mark.parametrize("value", ['"20"', "-1", "true", "1e400", "20.5", "[20]"])
def test_a_key_that_holds_no_count_is_lost(directory: Path, value: str) -> None:
    replace(
        directory / "performance_summary.json", '"total_output_tokens": 20', f'"total_output_tokens": {value}'
    )
    report = analyze([directory])
    assert report.lost == 1
    assert report.stated is not None
    assert report.stated.output_tokens.value == 20
    assert "performance_summary.json" not in report.stated.output_tokens.sources


def batch_of(directory: Path, requests: int, *, warmup: int = 0) -> None:
    """The files of a batch of 256 tokens a request, and a log that also has a warm-up's requests."""
    directory.mkdir()
    lines = []
    for number in range(warmup + requests):
        name = f"cmpl-{number:x}"
        lines.append(f"INFO request {name} finished: prompt=64 out=256 reason=length e2e={10 + number}.00s\n")
        lines.append(f"INFO DeepSeekV4 MTP acceptance for {name}: accepted=110 proposed=145 rate=75.86%\n")
    # The worker's lines and the engine's come in any order.
    (directory / "server.log").write_text("".join(lines[::-1]))
    answers = [
        {"index": n, "text": "", "token_ids": [7] * 256, "finish_reason": "length"} for n in range(requests)
    ]
    (directory / "responses.json").write_text(json.dumps(answers))
    summary = {
        "batch_elapsed_seconds": 19.2, "request_count": requests, "prompt_tokens_per_request": 64,
        "tokens_per_request": [256] * requests, "total_output_tokens": 256 * requests,
        "throughput_tokens_per_second": 256 * requests / 19.2, "effective_tpot_ms": 75.0,
    }  # fmt: skip
    (directory / "performance_summary.json").write_text(json.dumps(summary))


def test_a_batch_of_32_requests(tmp_path: Path) -> None:
    batch_of(tmp_path / "run", 32)
    stated = stated_of(tmp_path / "run")
    assert (stated.requests.value, stated.output_tokens.value, stated.prompt_tokens.value) == (32, 8192, 2048)
    assert (stated.mtp_accepted.value, stated.mtp_proposed.value) == (3520, 4640)
    assert (stated.e2e.value, stated.e2e.requests) == ((10 + 31 / 2) * 1000 * MS, 32)
    assert stated.contradicted == {}


def test_a_warm_up_in_the_log_is_no_contradiction(tmp_path: Path) -> None:
    batch_of(tmp_path / "run", 32, warmup=32)
    stated = stated_of(tmp_path / "run")
    assert (stated.requests.value, stated.output_tokens.value) == (32, 8192)
    assert "server.log" not in stated.output_tokens.sources
    assert (stated.mtp_accepted.value, stated.mtp_accepted.requests) == (7040, 64)
    assert "over 64 requests" in " ".join(dsv4bench("analyze", tmp_path / "run").stdout.split())
    # A log whose requests are others than the files' is one.
    replace(
        tmp_path / "run" / "server.log",
        "cmpl-0 finished: prompt=64 out=256",
        "cmpl-0 finished: prompt=64 out=9",
    )
    assert stated_of(tmp_path / "run").output_tokens.value == 8192
    log = tmp_path / "run" / "server.log"
    log.write_text(log.read_text().replace("out=256", "out=255"))
    assert stated_of(tmp_path / "run").output_tokens.value is None


def test_the_summary_that_the_driver_prints_is_the_same_summary(tmp_path: Path) -> None:
    batch_of(tmp_path / "run", 4)
    printed = json.dumps(json.loads((tmp_path / "run" / "performance_summary.json").read_text()))
    log = tmp_path / "run" / "server.log"
    log.write_text(log.read_text() + printed + "\n")
    stated = stated_of(tmp_path / "run")
    assert stated.throughput.sources == ["performance_summary.json", "server.log"]
    assert stated.contradicted == {}
    (tmp_path / "run" / "performance_summary.json").unlink()
    assert stated_of(tmp_path / "run").effective_tpot == StatedFigure(75.0 * MS, ["server.log"])


def test_what_a_client_measured_comes_first(directory: Path) -> None:
    write_requests(directory / "requests.jsonl", request("cmpl-1", [50 * MS, 60 * MS]))
    report = analyze([directory])
    assert report.stated is None
    assert [figures.output_tokens for figures in report.requests] == [2]
    assert "responses.json" in evidence(report, "files_not_read")[0]


def test_with_a_filter_nothing_is_stated_of_a_part() -> None:
    done = dsv4bench("analyze", CASE, "--name", "scheduler.*")
    assert "Requests, as stated" not in done.stdout


def test_the_gate_has_a_tpot_and_names_what_it_is() -> None:
    done = dsv4bench("gate", "check", CASE, "--limit", "tpot=60", "--json")
    verdict = json.loads(done.stdout)
    assert [(item["name"], item["head_median"]) for item in verdict["metrics"]] == [("tpot", 22.5)]
    assert "tpot is the effective TPOT of performance_summary.json, which includes prefill" in done.stdout
    assert dsv4bench("gate", "check", CASE, "--limit", "tpot=20").exit_code == 1


def test_a_stated_tpot_is_not_compared_with_a_measured_one(directory: Path, tmp_path: Path) -> None:
    stated, measured = tmp_path / "stated.json", tmp_path / "measured.json"
    assert dsv4bench("gate", "baseline", "save", stated, directory).exit_code == 0
    write_requests(directory / "requests.jsonl", request("a", [50 * MS, 60 * MS, 70 * MS]))
    assert dsv4bench("gate", "baseline", "save", measured, directory).exit_code == 0
    done = dsv4bench("gate", "check", stated, "--baseline", measured)
    assert done.exit_code == 5
    assert "requests unknown vs as stated" in done.stdout


def test_a_baseline_needs_what_its_gate_is_about(directory: Path, tmp_path: Path) -> None:
    for name in ("performance_summary.json", "responses.json", "completion-response.json"):
        (directory / name).unlink()
    baseline = tmp_path / "baseline.json"
    with pytest.raises(NoDataError, match="has no value of tpot, which the gate is about"):
        save_baseline(str(baseline), [directory])
    assert not baseline.exists()
    kept = dsv4bench("gate", "baseline", "save", baseline, directory, "--metric", "submit_to_completion")
    assert kept.exit_code == 0


def test_steps_rounds_and_ranks_of_the_directory_belong_together() -> None:
    report = analyze([CASE])
    decode = next(item for item in report.skew if item.callable == "deepseek_v4_decode_mtp_fused")
    assert (decode.scope, decode.rounds, decode.critical_rank.root.mean) == ("steady", 11, 29.5 * MS)
    assert (decode.runner_start_skew.min, decode.runner_start_skew.max) == (63_000, 63_000)
    assert [(entry.rank, entry.logical_device) for entry in report.ranks.devices] == [
        (rank, 2 * rank) for rank in range(8)
    ]
    blocking = {
        item.callable: item.latency.mean for item in report.steps if item.source == "blocking_kernel_span"
    }
    assert blocking == {"deepseek_v4_prefill": 40_200_000, "deepseek_v4_mtp_prefill": 8_200_000}
