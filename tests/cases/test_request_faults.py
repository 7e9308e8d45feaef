"""Request records of others that say less, or more, than they seem to; each test is named after its case."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from analyzers.analysis import analyze, judge
from analyzers.clients.goodput import parse_slos
from analyzers.clients.requests import RequestFigures, measure_requests
from analyzers.errors import AnalyzerError, UnusableInputError
from analyzers.gate.samples import join_samples, samples_of_runs
from analyzers.measurement import AnalysisOptions
from analyzers.readers.request_timing import RequestTiming
from analyzers.recording.copies import content_identity, copies_among
from analyzers.recording.recording import load_recording, load_runs
from analyzers.report.model import Finding, Report
from analyzers.report.tables import report_tables
from dsv4bench.cli import app
from tests.builders.places import CASES
from tests.builders.requests import request, write_requests

MS = 1_000_000


def command(*arguments: str | Path) -> tuple[int, str]:
    """Exit code and output of a command."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(done.exception, AnalyzerError):
        return done.exception.exit_code, str(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def lines(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def measured(*paths: Path, slo: str | None = None) -> RequestFigures:
    options = AnalysisOptions(slos=parse_slos(slo)) if slo else None
    [figures] = analyze(paths, options).requests
    return figures


def found(report: Report, code: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.code == code]


def plain(name: object, submit: float = 0, tokens: int = 11) -> dict[str, Any]:
    """A request of `tokens` tokens, 100 ms after `submit` and in the 200 ms after that."""
    return {
        "request_id": name,
        "submit_ms": submit,
        "first_token_ms": submit + 100,
        "end_ms": submit + 300,
        "output_tokens": tokens,
    }


def words(report: Report) -> str:
    return "\n".join(
        " ".join([*(cell for row in table.written() for cell in row), *table.notes])
        for table in report_tables(report)
    )


# 95: several benchmarks in one report.

SWEEP = CASES / "95-guidellm-sweep" / "sweep.json"


def test_95_each_benchmark_by_itself() -> None:
    report = analyze([SWEEP])
    assert [run.name for run in report.runs] == [f"{SWEEP}#1", f"{SWEEP}#2"]
    first, second = (run.report.requests[0] for run in report.runs)
    assert (first.tpot.mean, first.throughput_per_s) == (10 * MS, pytest.approx(379.3, abs=0.05))
    assert (second.tpot.mean, second.throughput_per_s) == (100 * MS, pytest.approx(92.4, abs=0.05))
    assert report.requests == []
    assert (report.records, report.parsed, report.lost) == (20, 20, 0)
    [joined] = found(report, "runs_joined")
    assert "holds several benchmarks" in joined.evidence


@pytest.mark.parametrize(("number", "tpot_ms"), [(1, 10), (2, 100)])
def test_95_one_benchmark_is_named_by_its_number(number: int, tpot_ms: int) -> None:
    assert measured(Path(f"{SWEEP}#{number}")).tpot.mean == tpot_ms * MS


@pytest.mark.parametrize("name", ["3", "0", "-1", "01", "x", ""])
def test_95_a_benchmark_that_is_not_there(name: str) -> None:
    code, output = command("analyze", f"{SWEEP}#{name}")
    assert code == 2
    assert "holds 2 benchmarks" in output or "No such file" in output


def test_95_the_gate_asks_which_benchmark_is_meant() -> None:
    code, output = command("gate", "check", SWEEP, "--limit", "tpot=60")
    assert code == 2
    assert f"{SWEEP}#1, {SWEEP}#2" in output
    code, output = command("gate", "check", f"{SWEEP}#2", "--limit", "tpot=60")
    assert (code, output.startswith("FAIL: tpot: the median is 100 ms")) == (1, True)


def test_95_a_comparison_asks_which_benchmark_is_meant() -> None:
    assert command("compare", SWEEP, SWEEP)[0] == 2
    code, output = command("compare", f"{SWEEP}#1", f"{SWEEP}#2", "--json")
    change = next(entry for entry in json.loads(output)["metrics"] if entry["name"] == "tpot")
    assert (code, change["a"], change["b"]) == (0, [10], [100])


def test_95_one_benchmark_stays_one_run(tmp_path: Path) -> None:
    document = json.loads(SWEEP.read_text())
    path = tmp_path / "one.json"
    path.write_text(json.dumps({"benchmarks": document["benchmarks"][:1]}))
    assert measured(path).tpot.mean == 10 * MS


@pytest.mark.parametrize("order", [(0, 1, 1), (1, 0), (1, 1, 0, 0)])
def test_95_however_many_there_are_in_whatever_order(order: Sequence[int], tmp_path: Path) -> None:
    document = json.loads(SWEEP.read_text())
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps({"benchmarks": [document["benchmarks"][index] for index in order]}))
    report = analyze([path])
    tpots = [run.report.requests[0].tpot.mean for run in report.runs]
    assert tpots == [(10, 100)[index] * MS for index in order]


def test_95_an_empty_benchmark_is_one_without_requests(tmp_path: Path) -> None:
    document = json.loads(SWEEP.read_text())
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps({"benchmarks": [document["benchmarks"][0], {"requests": {}}, None]}))
    report = analyze([path])
    assert [len(run.report.requests) for run in report.runs] == [1, 0, 0]


def test_95_beside_a_trace_each_is_still_by_itself(tmp_path: Path) -> None:
    other = lines(tmp_path / "requests.jsonl", plain("a"))
    report = analyze([other, SWEEP])
    assert [run.report.requests[0].tpot.mean for run in report.runs] == [20 * MS, 10 * MS, 100 * MS]


# 96: requests that are there twice.


def test_96_identical_lines_are_one_request() -> None:
    once, twice = (CASES / "96-request-lines-twice" / f"{name}.jsonl" for name in ("once", "twice"))
    for path in (once, twice):
        figures = measured(path)
        assert (figures.requests, figures.output_tokens) == (4, 44)
        assert figures.throughput_per_s == pytest.approx(133.333, abs=0.001)
    assert found(analyze([once]), "input_note") == []
    report = analyze([twice])
    [note] = found(report, "input_note")
    assert "request_repeated=4, first at line 5: id q0" in note.evidence
    assert (judge(report).exit_code, report.lost) == (0, 0)


def test_96_our_own_records_are_one_request(tmp_path: Path) -> None:
    own = request("r", [10 * MS, 20 * MS])
    figures = measured(write_requests(tmp_path / "requests.jsonl", own, own, own))
    assert (figures.requests, figures.output_tokens) == (1, 2)


def test_96_records_of_guidellm_are_one_request(tmp_path: Path) -> None:
    document = json.loads((CASES / "102-guidellm-incomplete" / "report.json").read_text())
    document["benchmarks"][0]["requests"]["successful"] *= 2
    path = tmp_path / "report.json"
    path.write_text(json.dumps(document))
    assert (measured(path).requests, measured(path).output_tokens) == (10, 110)


@pytest.mark.parametrize(("first", "second"), [(7, 7.0), ("7", "7")])
def test_96_an_id_is_a_value(first: object, second: object, tmp_path: Path) -> None:
    assert measured(lines(tmp_path / "r.jsonl", plain(first), plain(second))).requests == 1


@pytest.mark.parametrize(("first", "second"), [(7, "7"), (1, True), (None, None), ([1], "[1]")])
def test_96_ids_that_are_none_or_two(first: object, second: object, tmp_path: Path) -> None:
    assert measured(lines(tmp_path / "r.jsonl", plain(first), plain(second))).requests == 2


@pytest.mark.parametrize("other", [plain("a", submit=5), plain("a", tokens=12), {"id": "a", "error": "lost"}])
def test_96_one_id_for_two_requests_is_a_fault_that_is_named(other: dict[str, Any], tmp_path: Path) -> None:
    path = lines(tmp_path / "r.jsonl", plain("a"), plain("b"), other)
    report = analyze([path])
    [figures] = report.requests
    assert (figures.requests, figures.output_tokens) == (1, 11)
    [lost] = found(report, "lost_records")
    assert lost.title == "2 of 3 records lost: request records of one id that differ: none of them is used"
    assert "first at line 3: id a, as line 1" in lost.evidence
    assert judge(report).exit_code == 4


def test_96_a_warm_up_may_count_from_the_same_number(tmp_path: Path) -> None:
    records = [{**plain(1), "phase": "warmup"}, {**plain(1, submit=900), "phase": "measured"}]
    report = analyze([lines(tmp_path / "r.jsonl", *records)])
    assert [(figures.phase, figures.requests) for figures in report.requests] == [
        ("measured", 1),
        ("warmup", 1),
    ]
    assert report.lost == 0


def test_96_a_file_and_its_copy_are_one(tmp_path: Path) -> None:
    once = CASES / "96-request-lines-twice" / "once.jsonl"
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(once.read_bytes())
    report = analyze([once, copy])
    [figures] = report.requests
    assert (figures.requests, figures.output_tokens) == (4, 44)
    [note] = found(report, "input_note")
    assert note.title == f"{copy}: a copy of {once}: one run, counted once"


def test_96_a_file_and_one_that_holds_it_too_are_one() -> None:
    once, twice = (CASES / "96-request-lines-twice" / f"{name}.jsonl" for name in ("once", "twice"))
    figures = measured(once, twice)
    assert (figures.requests, figures.output_tokens) == (4, 44)


def test_96_two_clients_that_count_from_the_same_number_are_two(tmp_path: Path) -> None:
    first = lines(tmp_path / "a.jsonl", plain(1), plain(2))
    second = lines(tmp_path / "b.jsonl", plain(1, submit=7), plain(2, submit=7))
    assert measured(first, second).requests == 4


# 102: what was in flight when the time was up.

INCOMPLETE = CASES / "102-guidellm-incomplete" / "report.json"


def test_102_what_was_in_flight_at_the_end_is_no_failure() -> None:
    figures = measured(INCOMPLETE, slo="tpot=50")
    assert (figures.requests, figures.failed, figures.cut) == (10, 0, 2)
    assert (figures.tpot.n, figures.ttft.n, figures.e2e.n, figures.output_tokens) == (10, 10, 10, 110)
    assert figures.goodput is not None
    assert (figures.goodput.met, figures.goodput.counted, figures.goodput.not_applicable) == (10, 10, 0)


def test_102_it_is_said_as_for_spans_that_the_window_cuts() -> None:
    report = analyze([INCOMPLETE])
    [edge] = found(report, "edge_of_window")
    assert edge.title == "2 measured requests in flight when the time was up (edge=2)"
    assert "2 more requests in flight when the time was up: in no figure" in words(report)
    assert judge(report).exit_code == 0


@pytest.mark.parametrize(
    "record",
    [
        {"request_id": "c"},
        {"request_id": "c", "request_start_time": 1.7e9, "time_to_first_token_ms": None},
        {"request_id": "c", "error": "cancelled", "output_tokens": 3},
        {"time_to_first_token_ms": 100.0},
    ],
)
def test_102_whatever_its_record_holds(record: dict[str, Any], tmp_path: Path) -> None:
    document = json.loads(INCOMPLETE.read_text())
    document["benchmarks"][0]["requests"]["incomplete"] = [record]
    path = tmp_path / "report.json"
    path.write_text(json.dumps(document))
    report = analyze([path])
    [figures] = report.requests
    assert (figures.requests, figures.failed, figures.cut, report.lost) == (10, 0, 1, 0)


def test_102_errors_still_fail(tmp_path: Path) -> None:
    document = json.loads(INCOMPLETE.read_text())
    requests = document["benchmarks"][0]["requests"]
    requests["errored"] = [{"request_id": "e", "error": "timeout"}]
    path = tmp_path / "report.json"
    path.write_text(json.dumps(document))
    figures = measured(path, slo="tpot=50")
    assert (figures.requests, figures.failed, figures.cut) == (11, 1, 2)
    assert figures.goodput is not None
    assert (figures.goodput.met, figures.goodput.counted) == (10, 11)


def test_102_nothing_but_what_was_in_flight_is_no_data(tmp_path: Path) -> None:
    document = json.loads(INCOMPLETE.read_text())
    document["benchmarks"][0]["requests"]["successful"] = []
    path = tmp_path / "report.json"
    path.write_text(json.dumps(document))
    report = analyze([path])
    assert judge(report).exit_code == 3
    [finding] = found(report, "no_data")
    assert finding.title == "no data: 2 requests, all of them in flight when the time was up"


# 115: requests that cannot be.

INVALID = CASES / "115-gate-on-requests-that-are-invalid" / "requests.jsonl"


def test_115_analyze_names_the_record_and_says_nothing_of_profiling() -> None:
    code, output = command("analyze", INVALID)
    assert code == 4
    assert "no data: 1 of 1 requests invalid" in output
    report = analyze([INVALID])
    [lost] = found(report, "lost_records")
    assert "line 1: its times run backwards: the end at 200 ms lies before the first token at 240 ms" in (
        lost.evidence
    )
    assert not any("profiling" in finding.advice for finding in report.findings)


def test_115_the_gate_says_that_nothing_is_valid(tmp_path: Path) -> None:
    good = lines(tmp_path / "good.jsonl", plain("a"))
    for arguments in (
        (INVALID, "--limit", "tpot=60"),
        (INVALID, "--baseline", good),
        (good, "--baseline", INVALID),
        (INVALID, "--baseline", good, "--limit", "tpot=60", "--force-compare"),
    ):
        code, output = command("gate", "check", *arguments)
        assert code == 4
        assert output.startswith(
            "INVALID: tpot has no valid samples: 1 of 1 requests invalid, first at line 1"
        )


def test_115_no_baseline_is_made_of_it(tmp_path: Path) -> None:
    code, output = command("gate", "baseline", "save", tmp_path / "main.json", INVALID)
    assert code == 4
    assert "1 of 1 requests invalid" in output
    assert not (tmp_path / "main.json").exists()


def test_115_one_of_several_is_enough(tmp_path: Path) -> None:
    path = lines(tmp_path / "some.jsonl", plain("a"), json.loads(INVALID.read_text()))
    code, output = command("gate", "check", path, "--limit", "tpot=60")
    assert code == 4
    assert "1 of 2 requests invalid, first at line 2" in output
    good = lines(tmp_path / "good.jsonl", plain("a"))
    code, output = command("gate", "check", good, path, "--limit", "tpot=60")
    assert (code, "the candidate has an invalid run" in output) == (4, True)
    code, output = command("gate", "check", good, path, "--limit", "tpot=60", "--drop-failed")
    assert (code, "left out a run: 1 of 2 requests invalid" in " ".join(output.split())) == (5, True)


@pytest.mark.parametrize(
    "record",
    [
        {"id": 1, "submit_ms": 300, "first_token_ms": 240, "end_ms": 400, "output_tokens": 8},
        {"id": 1, "submit_ms": 0, "first_token_ms": 1, "end_ms": 2, "output_tokens": -8},
        {"id": 1, "submit_ms": 0, "first_token_ms": 1, "end_ms": 2, "output_tokens": "8"},
        {"id": 1, "submit_ms": 0, "first_token_ms": "soon", "end_ms": 2, "output_tokens": 8},
        {"id": 1, "submit_ms": 0, "chunks": [{"t_ms": 5, "tokens": 1}, {"t_ms": 4, "tokens": 1}]},
        {"id": 1, "submit_ms": 0, "ttft_ms": -1, "output_tokens": 8},
        {"id": 1, "submit_ms": 0, "submit_s": 1, "first_token_ms": 1, "end_ms": 2, "output_tokens": 8},
    ],
)
def test_115_whatever_is_wrong_with_it(record: dict[str, Any], tmp_path: Path) -> None:
    path = lines(tmp_path / "requests.jsonl", record)
    assert judge(analyze([path])).exit_code == 4
    assert command("gate", "check", path, "--limit", "tpot=60")[0] == 4


def test_115_no_advice_on_profiling_for_what_holds_no_spans(tmp_path: Path) -> None:
    samples, manifest = tmp_path / "samples.json", tmp_path / "run.json"
    samples.write_text("[")
    samples.write_text("[1")
    manifest.write_bytes((CASES / "86-copies-of-one-run" / "base-1" / "run.json").read_bytes())
    for path in (samples, manifest):
        findings = analyze([path]).findings
        assert findings[0].code == "no_data"
        assert not any("profiling" in finding.advice for finding in findings)
    trace = tmp_path / "trace.json"
    trace.write_text('{"traceEvents": []}')
    assert any("profiling" in finding.advice for finding in analyze([trace]).findings)


# 116: the peak rate.


def test_116_the_most_tokens_in_a_second_that_begins_at_an_arrival() -> None:
    figures = measured(CASES / "116-peak-rate" / "requests.jsonl")
    assert (figures.peak_per_s, figures.peak_unavailable) == (13, None)
    assert figures.throughput_per_s == pytest.approx(15 / 2.6)


def test_116_below_a_second_there_is_none_and_it_is_said_why(tmp_path: Path) -> None:
    chunks = [{"t_ms": at, "tokens": 5} for at in (100, 500, 999)]
    path = lines(tmp_path / "r.jsonl", {"id": 1, "submit_ms": 0, "chunks": chunks})
    figures = measured(path)
    assert (figures.peak_per_s, figures.throughput_per_s) == (None, pytest.approx(15 / 0.999))
    assert "peak unavailable: the requests took 999 ms, less than a second" in words(analyze([path]))


def test_116_without_the_arrivals_there_is_none() -> None:
    figures = measured(CASES / "63-tpot-mean-of-means" / "requests.jsonl")
    assert figures.peak_unavailable == "when each of the tokens arrived is not known"


def test_116_the_end_of_the_window_is_outside_of_it(tmp_path: Path) -> None:
    chunks = [
        {"t_ms": at, "tokens": tokens} for at, tokens in ((0, 4), (999.999999, 8), (1000, 16), (2600, 1))
    ]
    path = lines(tmp_path / "r.jsonl", {"id": 1, "submit_ms": 0, "chunks": chunks})
    # [999.999999, 1999.999999) holds 24; [0, 1000) only 12.
    assert measured(path).peak_per_s == 24


SECOND = 1_000 * MS
ARRIVALS = st.lists(
    st.lists(st.tuples(st.integers(0, 4 * SECOND), st.integers(1, 9)), min_size=1, max_size=12),
    min_size=1,
    max_size=4,
)


def timings_of(requests: Sequence[Sequence[tuple[int, int]]]) -> list[RequestTiming]:
    timings = []
    for number, events in enumerate(requests):
        chunks = tuple(sorted(events))
        timings.append(
            RequestTiming(
                str(number),
                "measured",
                send_ns=0,
                chunks=chunks,
                first_ns=chunks[0][0],
                last_ns=chunks[-1][0],
                output_tokens=sum(tokens for _, tokens in chunks),
                first_chunk_tokens=chunks[0][1],
            )
        )
    return timings


@settings(max_examples=200, deadline=None)
@given(ARRIVALS)
def test_116_peak_is_what_trying_every_window_finds_and_never_below_the_mean(
    requests: list[list[tuple[int, int]]],
) -> None:
    [figures] = measure_requests(timings_of(requests))
    events = [event for request in requests for event in request]
    most = max(
        sum(tokens for time, tokens in events if begin <= time < begin + SECOND) for begin, _ in events
    )
    mean = figures.throughput_per_s
    if figures.elapsed_ns is None or figures.elapsed_ns < SECOND or (mean is not None and most < mean):
        assert figures.peak_per_s is None
        assert figures.peak_unavailable
    else:
        assert figures.peak_per_s == most
        assert mean is not None
        assert figures.peak_per_s >= mean


# 117: fields that nobody here understands.

FIELDS = CASES / "117-fields-that-are-not-understood"


def test_117_pairs_of_a_time_and_the_tokens_so_far_are_arrivals() -> None:
    figures = measured(FIELDS / "requests.jsonl")
    recording = load_recording([FIELDS / "requests.jsonl"])
    assert [timing.output_tokens for timing in recording.requests] == [31, 21]
    assert figures.output_tokens == 52
    assert figures.full_batch_window_ns == (300 * MS, 600 * MS)
    assert figures.full_batch_throughput_per_s == pytest.approx(100)
    # Nothing says when they were sent.
    assert (figures.ttft.n, figures.e2e.n, figures.elapsed_ns, figures.throughput_per_s) == (0, 0, None, None)
    # 500 ms over 30 tokens, 600 ms over 20.
    assert figures.tpot.mean == pytest.approx((500 / 30 + 30) / 2 * MS)


def test_117_tokens_that_cannot_be_told_are_none() -> None:
    report = analyze([FIELDS / "unknown.jsonl"])
    [figures] = report.requests
    assert (figures.output_tokens, figures.tokens_unknown, figures.tpot.n) == (None, 1, 0)
    assert figures.fields_not_understood == ["toks"]
    [finding] = found(report, "request_fields")
    assert (finding.severity, finding.evidence) == ("warning", "fields not understood: toks")
    code, output = command("analyze", FIELDS / "unknown.jsonl")
    assert code == 0
    assert "unavailable (not understood: toks)" in " ".join(output.split())
    assert "output tokens 0" not in output
    assert "0 output tokens" not in output


@pytest.mark.parametrize(
    "strange",
    [
        {"tokens": 31},
        {"n_tokens": "31"},
        {"arrivals": [[100, 1], [600, 31]]},
        {"usage": {"completion_tokens": 31}},
        {"itl_ms": [10, 20]},
        {"output_tokens": None, "tokens_out": 31},
    ],
)
def test_117_whatever_the_field_is_called_it_is_named(strange: dict[str, Any], tmp_path: Path) -> None:
    record = {"id": 1, "submit_ms": 0, "first_token_ms": 100, "end_ms": 600, **strange}
    figures = measured(lines(tmp_path / "r.jsonl", record))
    assert (figures.output_tokens, figures.throughput_per_s, figures.tpot.mean) == (None, None, None)
    assert figures.fields_not_understood == [name for name in strange if name != "output_tokens"]
    assert (figures.ttft.mean, figures.e2e.mean) == (100 * MS, 600 * MS)


def test_117_totals_say_of_how_many_requests(tmp_path: Path) -> None:
    unknown = {"id": "x", "submit_ms": 0, "first_token_ms": 100, "end_ms": 600, "toks": 31}
    report = analyze([lines(tmp_path / "r.jsonl", plain("a"), plain("b", submit=5), unknown)])
    [figures] = report.requests
    assert (figures.output_tokens, figures.tokens_unknown) == (22, 1)
    # 22 tokens of two requests in the time of three would be a rate of nothing.
    assert (figures.throughput_per_s, figures.effective_tpot_ns, figures.peak_per_s) == (None, None, None)
    assert "22, of 2 of 3 requests (not understood: toks)" in words(report)
    [finding] = found(report, "request_fields")
    assert finding.title.startswith("the output tokens of 1 of 3 measured requests cannot be told")


@pytest.mark.parametrize(("unit", "scale"), [("s", 1000), ("ms", 1), ("us", 0.001), ("ns", 0.000001)])
def test_117_times_bear_their_unit(unit: str, scale: float, tmp_path: Path) -> None:
    record = {
        "id": 1,
        f"submit_{unit}": 0,
        f"tokens_at_{unit}": [[100 / scale, 1], [600 / scale, 31]],
        f"first_token_{unit}": 100 / scale,
    }
    figures = measured(lines(tmp_path / "r.jsonl", record))
    assert (figures.ttft.mean, figures.e2e.mean, figures.output_tokens) == (100 * MS, 600 * MS, 31)


@pytest.mark.parametrize(
    ("pairs", "what"),
    [
        ([[100, 5], [200, 3]], "the tokens so far in tokens_at go back from 5 to 3"),
        ([[200, 1], [100, 3]], "its times run backwards"),
        ([[100, -1]], "-1 is no number of tokens"),
        ([[100, "1"]], "'1' is no number of tokens"),
        ([[100, None]], "None is no number of tokens"),
        ([[None, 1]], "None is no time"),
        ([[100]], "[100] in tokens_at is no [time, tokens so far]"),
        ([100, 200], "100 in tokens_at is no [time, tokens so far]"),
        ([], "tokens_at is no list of [time, tokens so far]"),
        ({"100": 1}, "tokens_at is no list of [time, tokens so far]"),
        ([[0.1, 1], [0.6, 31]], "the times in tokens_at lie outside of first_token and end"),
    ],
)
def test_117_pairs_that_cannot_be_arrivals_are_invalid(pairs: Any, what: str, tmp_path: Path) -> None:
    record = {"id": 1, "first_token_ms": 100, "end_ms": 600, "tokens_at": pairs}
    report = analyze([lines(tmp_path / "r.jsonl", record)])
    [lost] = found(report, "lost_records")
    assert what in lost.evidence
    assert judge(report).exit_code == 4


def test_117_pairs_and_a_count_that_contradict_each_other_are_invalid(tmp_path: Path) -> None:
    record = {"id": 1, "submit_ms": 0, "tokens_at": [[100, 1], [600, 31]], "output_tokens": 60}
    report = analyze([lines(tmp_path / "r.jsonl", record)])
    assert "31 tokens in tokens_at but output_tokens is 60" in found(report, "lost_records")[0].evidence


def test_117_latencies_without_a_place_on_the_clock_make_no_rate(tmp_path: Path) -> None:
    records = [{"id": n, "ttft_ms": 100, "e2e_ms": 300, "output_tokens": 11} for n in range(2)]
    figures = measured(lines(tmp_path / "r.jsonl", *records))
    assert (figures.ttft.mean, figures.e2e.mean, figures.tpot.mean) == (100 * MS, 300 * MS, 20 * MS)
    assert (figures.elapsed_ns, figures.throughput_per_s, figures.full_batch_window_ns) == (None, None, None)
    alone = measured(lines(tmp_path / "one.jsonl", records[0]))
    assert alone.throughput_per_s == pytest.approx(11 / 0.3)


def test_117_a_record_without_any_known_field_is_named_among_others(tmp_path: Path) -> None:
    report = analyze([lines(tmp_path / "r.jsonl", plain("a"), {"who": "b", "toks": 31})])
    [lost] = found(report, "lost_records")
    assert "line 2: no request record of a known shape: its fields are who, toks" in lost.evidence


# 86: copies of one run.

COPIES = CASES / "86-copies-of-one-run"


def copies(name: str) -> list[Path]:
    return [COPIES / f"{name}-{number}" for number in range(1, 7)]


@pytest.fixture
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_elsewhere")
def test_86_the_gate_counts_a_run_once() -> None:
    code, output = command("gate", "baseline", "save", "main", *copies("base"))
    assert (code, output.startswith("baselines/main.json: 1 run saved\n")) == (0, True)
    assert f"{COPIES / 'base-6'}: copies of {COPIES / 'base-1'}: one run, counted once" in output
    code, output = command("gate", "check", *copies("head"), "--baseline", "main", "--json")
    document = json.loads(output)
    assert (code, document["verdict"]) == (5, "UNDECIDED")
    [judged] = [entry for entry in document["metrics"] if entry["judged"]]
    assert (judged["base_runs"], judged["head_runs"]) == (1, 1)
    assert any("copies of" in warning for warning in document["warnings"])


@pytest.mark.usefixtures("_elsewhere")
def test_86_a_copy_of_a_run_of_the_baseline_is_no_candidate() -> None:
    command("gate", "baseline", "save", "main", COPIES / "base-1")
    code, output = command("gate", "check", COPIES / "base-2", "--baseline", "main")
    assert (code, "is a run of both sides" in output) == (5, True)


def test_86_a_comparison_has_one_run_a_side() -> None:
    sides: list[str | Path] = ["--a", *copies("base"), "--b", *copies("head")]
    code, output = command("compare", *sides, "--json")
    document = json.loads(output)
    assert (code, document["a"]["runs"], document["b"]["runs"]) == (
        0,
        [str(COPIES / "base-1")],
        [str(COPIES / "head-1")],
    )
    assert all(entry["p_value"] is None for entry in document["metrics"])
    assert any("copies of" in warning for warning in document["a"]["warnings"])


def test_86_a_run_that_both_sides_hold_is_named() -> None:
    _, output = command("compare", COPIES / "base-1", COPIES / "base-2", "--json")
    assert (
        json.loads(output)["notes"][0] == f"{COPIES / 'base-1'} of A and {COPIES / 'base-2'} of B are one run"
    )


def test_86_the_history_keeps_it_once(tmp_path: Path) -> None:
    code, output = command("history", "add", *copies("base"), "--db", tmp_path / "history.sqlite")
    assert code == 0
    assert [line.partition(":")[0] for line in output.splitlines()] == ["added", *["there already"] * 5]


def test_86_analyze_measures_it_once_and_says_so() -> None:
    report = analyze(copies("base")[:2])
    assert report.runs == []
    assert report.requests == analyze(copies("base")[:1]).requests
    [note] = found(report, "input_note")
    assert note.title == f"{COPIES / 'base-2'}: a copy of {COPIES / 'base-1'}: one run, counted once"
    assert [run.name for run in load_runs([*copies("base"), *copies("head")]).recordings] == [
        str(COPIES / "base-1"),
        str(COPIES / "head-1"),
    ]


def copy_of_base(root: Path, *, manifest: bytes | None = None, requests: bytes | None = None) -> Path:
    root.mkdir()
    (root / "run.json").write_bytes(manifest or (COPIES / "base-1" / "run.json").read_bytes())
    (root / "requests.jsonl").write_bytes(requests or (COPIES / "base-1" / "requests.jsonl").read_bytes())
    return root


def test_86_a_copy_is_one_however_it_was_handled(tmp_path: Path) -> None:
    text = (COPIES / "base-1" / "run.json").read_bytes()
    written_anew = copy_of_base(tmp_path / "anew", manifest=msgspec.json.format(text, indent=4))
    touched = copy_of_base(tmp_path / "touched")
    (touched / "notes.txt").write_text("mine")
    edited = copy_of_base(tmp_path / "edited", manifest=text.replace(b'"node"', b'"gone"'))
    paths = [COPIES / "base-1", written_anew, touched, edited, COPIES / "base-1" / "requests.jsonl"]
    assert len(load_runs(paths).recordings) == 1
    assert len(load_runs(paths).only().requests) == 2


def test_86_runs_of_other_times_are_two(tmp_path: Path) -> None:
    lines_of = (COPIES / "base-1" / "requests.jsonl").read_bytes()
    other = copy_of_base(tmp_path / "other", requests=lines_of.replace(b"285337640231", b"285337640232"))
    assert len(load_runs([COPIES / "base-1", other]).recordings) == 2


def test_86_files_without_a_manifest_are_known_by_their_content(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        lines(tmp_path / name / "requests.jsonl", plain("r"))
    code, output = command("gate", "check", tmp_path / "a", tmp_path / "b", "--limit", "tpot=60")
    assert (code, "candidate: 1 run" in output) == (5, True)
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_bytes((tmp_path / "a" / "requests.jsonl").read_bytes())
    code, output = command("gate", "check", tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--limit", "tpot=60")
    assert (code, "candidate: 1 run" in output) == (5, True)


@pytest.mark.usefixtures("_elsewhere")
def test_86_samples_given_twice_count_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text('{"metrics": {"tpot_ms": [50, 51, 52]}}')
    code, output = command("gate", "check", tmp_path / "a.json", tmp_path / "b.json", "--limit", "tpot=60")
    assert (code, "candidate: 3 runs" in output) == (5, True)
    assert "counted once" in output
    command("gate", "baseline", "save", "main", COPIES / "base-1")
    code, output = command("gate", "check", "baselines/main.json", COPIES / "base-2", "--limit", "tpot=60")
    assert (code, "candidate: 1 run" in output) == (5, True)


def test_86_two_readings_of_counters_that_did_not_move_are_two(tmp_path: Path) -> None:
    for name in ("before", "after"):
        (tmp_path / f"{name}.prom").write_text(
            "spec_decode_num_drafts_total 5\nspec_decode_num_draft_tokens_total 5\n"
        )
    [observation] = analyze([tmp_path / "before.prom", tmp_path / "after.prom"]).observations
    assert observation.figures["steps"] == 0


def test_86_copies_on_one_side_of_a_comparison_do_not_hide_another_run(tmp_path: Path) -> None:
    lines_of = (COPIES / "base-1" / "requests.jsonl").read_bytes()
    other = copy_of_base(tmp_path / "other", requests=lines_of.replace(b"285337640231", b"285337640232"))
    _, output = command(
        "compare", "--a", COPIES / "base-1", COPIES / "base-2", other, "--b", COPIES / "head-1", "--json"
    )
    assert json.loads(output)["a"]["runs"] == [str(COPIES / "base-1"), str(other)]


def test_95_a_name_with_a_hash_is_a_file_first(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl#1"
    lines(path, plain("a"))
    assert measured(path).requests == 1
    with pytest.raises(UnusableInputError):
        load_recording([tmp_path / "missing.json#1"])


def test_86_a_pipe_is_read_once(tmp_path: Path) -> None:
    pipes = [tmp_path / "a", tmp_path / "b"]
    for pipe in pipes:
        os.mkfifo(pipe)
    # Nobody writes: to open one would never end.
    assert content_identity(pipes[0]) != content_identity(pipes[1])
    assert copies_among(pipes) == []


def test_86_runs_of_a_gate_that_are_one_run_count_once() -> None:
    parts = [samples_of_runs([path]) for path in (*copies("base"), *copies("head"))]
    joined = join_samples(parts)
    assert [Path(label).name for label in joined.runs] == ["base-1", "head-1"]
    assert len(joined.metrics["tpot"]) == len(joined.digests) == 2


def test_117_a_gate_says_that_a_figure_is_of_some_requests(tmp_path: Path) -> None:
    unknown = {"id": "x", "submit_ms": 0, "first_token_ms": 100, "end_ms": 600, "toks": 31}
    path = lines(tmp_path / "r.jsonl", plain("a"), unknown)
    _, output = command("gate", "check", path, "--limit", "tpot=60", "--json")
    [warning] = [text for text in json.loads(output)["warnings"] if "cannot be told" in text]
    assert "the output tokens of 1 of 2 measured requests" in warning


def test_116_a_peak_below_the_mean_is_none(tmp_path: Path) -> None:
    chunks = [{"t_ms": 0, "tokens": 1}, {"t_ms": 1500, "tokens": 1}]
    figures = measured(lines(tmp_path / "r.jsonl", {"id": 1, "submit_ms": 0, "chunks": chunks}))
    # Two tokens in 1.5 s, and no second that holds both.
    assert (figures.throughput_per_s, figures.peak_per_s) == (pytest.approx(2 / 1.5), None)
    assert figures.peak_unavailable is not None
    assert "fewer than the mean" in figures.peak_unavailable


def test_117_an_end_that_is_not_known_bounds_no_elapsed_time(tmp_path: Path) -> None:
    endless = {"id": "x", "submit_ms": 0, "first_token_ms": 100, "output_tokens": 500}
    figures = measured(lines(tmp_path / "r.jsonl", plain("a"), endless))
    assert (figures.output_tokens, figures.elapsed_ns, figures.throughput_per_s) == (511, None, None)


def test_102_beside_a_trace_requests_in_flight_are_no_failure(tmp_path: Path) -> None:
    document = json.loads(INCOMPLETE.read_text())
    document["benchmarks"][0]["requests"]["successful"] = []
    (tmp_path / "report.json").write_text(json.dumps(document))
    event = {"name": "a", "ph": "X", "ts": 1, "dur": 2, "pid": 1, "tid": 1}
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": [event]}))
    report = analyze([tmp_path / "trace.json", tmp_path / "report.json"])
    assert report.requests[0].cut == 2
    assert judge(report).exit_code == 0
