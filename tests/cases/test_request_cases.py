"""Request records that invite wrong definitions; each test is named after its case."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from analyzers.analysis import analyze, judge
from analyzers.clients.goodput import SloError, parse_slos
from analyzers.clients.requests import RequestFigures, measure_requests
from analyzers.measurement import AnalysisOptions
from analyzers.readers.request_timing import RequestTiming
from analyzers.readers.requests import read_requests
from analyzers.report.tables import report_tables
from analyzers.statistics.summary import summarize
from tests.builders.places import CASES

MS = 1_000_000


def measured(case: str) -> RequestFigures:
    report = analyze([CASES / case / "requests.jsonl"])
    return next(figures for figures in report.requests if figures.phase == "measured")


def test_59_one_token_has_no_tpot() -> None:
    figures = measured("59-tpot-output-len-1")
    assert (figures.tpot.n, figures.tpot.mean, figures.tpot_undefined) == (1, 10 * MS, 1)
    assert figures.ttft.n == 2


def test_59_goodput_counts_an_undefined_tpot_as_not_applicable() -> None:
    path = CASES / "59-tpot-output-len-1" / "requests.jsonl"
    for limits, met, counted, not_applicable in [
        ("tpot=10", 1, 1, 1),
        ("tpot=9.999", 0, 1, 1),
        ("ttft=50", 2, 2, 0),
        ("ttft=50, tpot=9", 0, 1, 1),
        ("e2e=60", 1, 2, 0),
    ]:
        [figures] = analyze([path], AnalysisOptions(slos=parse_slos(limits))).requests
        goodput = figures.goodput
        assert goodput is not None
        assert (goodput.met, goodput.counted, goodput.not_applicable) == (met, counted, not_applicable)


def test_59_a_failed_request_meets_no_objective() -> None:
    failed = RequestTiming(
        "1", "measured", send_ns=0, first_ns=1, last_ns=2, output_tokens=3, error="timeout"
    )
    [figures] = measure_requests([failed], {"ttft": MS})
    assert figures.goodput is not None
    assert (figures.goodput.met, figures.goodput.counted, figures.goodput.not_applicable) == (0, 1, 0)


@pytest.mark.parametrize("text", ["", "itl=5", "tpot", "tpot=fast", "tpot=-1", "tpot=1,tpot=2"])
def test_objectives_that_cannot_be_understood(text: str) -> None:
    with pytest.raises(SloError):
        parse_slos(text)


def test_61_chunks_of_several_tokens() -> None:
    figures = measured("61-tpot-multi-token-chunks")
    assert figures.output_tokens == 7
    assert figures.ttft.mean == 100 * MS
    assert figures.tpot.mean == 15 * MS
    assert figures.step_time.mean == 30 * MS
    assert figures.tokens_per_step == 2.0


def test_61_all_three_are_named_and_the_ambiguous_word_is_not() -> None:
    report = analyze([CASES / "61-tpot-multi-token-chunks" / "requests.jsonl"])
    text = " ".join(cell for table in report_tables(report) for row in table.written() for cell in row)
    for name in ("tpot", "step_time", "tokens_per_step"):
        assert name in text
    assert not re.search(r"\bITL\b", text, re.IGNORECASE)


def test_61_a_chunk_without_tokens_is_no_output_event() -> None:
    # Chat servers open with the role: the first token comes at 100 ms.
    record = {
        "id": 1,
        "submit_ms": 0,
        "chunks": [
            {"t_ms": 40, "tokens": 0},
            {"t_ms": 100, "tokens": 2},
            {"t_ms": 115, "tokens": 0},
            {"t_ms": 130, "tokens": 3},
        ],
    }
    [figures] = measure_requests(
        read_requests(json.dumps(record).encode(), "requests.jsonl").benchmarks[0].timings
    )
    assert (figures.ttft.mean, figures.step_time.n, figures.step_time.mean) == (100 * MS, 1, 30 * MS)
    # 30 ms over the three tokens after the first chunk.
    assert (figures.tpot.mean, figures.tokens_per_step) == (10 * MS, 3.0)


def test_61_all_tokens_in_one_chunk_have_no_time_between_them() -> None:
    record = {"id": 1, "submit_ms": 0, "chunks": [{"t_ms": 100, "tokens": 5}]}
    [figures] = measure_requests(
        read_requests(json.dumps(record).encode(), "requests.jsonl").benchmarks[0].timings
    )
    assert (figures.tpot.n, figures.tpot_undefined, figures.output_tokens) == (0, 1, 5)


def test_63_both_means_by_name() -> None:
    figures = measured("63-tpot-mean-of-means")
    assert figures.tpot.mean == 30 * MS
    assert figures.tpot_token_weighted_ns == pytest.approx(1500 * MS / 110)


def test_64_tpot_with_and_without_the_first_token() -> None:
    figures = measured("64-tpot-definition-clash")
    assert figures.tpot.mean == 10 * MS
    assert figures.tpot_incl_first.mean == 19 * MS


GUIDELLM = {
    "request_id": "a",
    "request_start_time": 1_750_000_000.25,
    "time_to_first_token_ms": 100.0,
    "inter_token_latency_ms": 10.0,
    "time_per_output_token_ms": 19.0,
    "output_tokens": 10,
}


@pytest.mark.parametrize(
    "left_out", ["", "time_to_first_token_ms", "time_per_output_token_ms", "request_start_time"]
)
@pytest.mark.parametrize("is_report", [True, False])
def test_64_guidellm_is_read_by_meaning(left_out: str, is_report: bool, tmp_path: Path) -> None:
    record = {key: value for key, value in GUIDELLM.items() if key != left_out}
    document = {"benchmarks": [{"requests": {"successful": [record], "errored": [], "incomplete": []}}]}
    path = tmp_path / "guidellm.json"
    path.write_text(json.dumps(document, indent=2) if is_report else json.dumps(record))
    [figures] = analyze([path]).requests
    # Its inter-token latency is our tpot; its time per output token counts the first one in.
    assert (figures.tpot.mean, figures.tpot_incl_first.mean) == (10 * MS, 19 * MS)
    assert (figures.ttft.mean, figures.e2e.mean) == (100 * MS, 190 * MS)


def test_64_requests_that_guidellm_saw_fail_are_failed(tmp_path: Path) -> None:
    requests = {
        "successful": [],
        "errored": [{"request_id": "b", "error": "timeout"}],
        "incomplete": [GUIDELLM],
    }
    path = tmp_path / "guidellm.json"
    path.write_text(json.dumps({"benchmarks": [{"requests": requests}]}))
    report = analyze([path])
    [figures] = report.requests
    # What was in flight at the end is no failure: see case 102.
    assert (figures.failed, figures.requests, figures.cut, figures.tpot.n) == (1, 1, 1, 0)
    assert judge(report).exit_code == 1


def test_65_tokens_are_counted_as_ids_not_as_text() -> None:
    figures = measured("65-tokens-from-text")
    assert figures.output_tokens == 12
    assert figures.tpot.mean == 6 * MS
    # 1 token where 12 were: reported, and in no other figure.
    assert figures.mismatch_pct == pytest.approx(100 * 11 / 12)


def test_65_chunks_counted_by_their_text_keep_their_times_only() -> None:
    record = {
        "id": 1,
        "submit_ms": 0,
        "output_token_ids": [1, 2, 3, 4, 5],
        "chunks": [{"t_ms": 10, "tokens": 0}, {"t_ms": 20, "tokens": 1}, {"t_ms": 50, "tokens": 0}],
    }
    [figures] = measure_requests(
        read_requests(json.dumps(record).encode(), "requests.jsonl").benchmarks[0].timings
    )
    assert (figures.output_tokens, figures.tpot.mean, figures.ttft.mean) == (5, 10 * MS, 10 * MS)
    assert (figures.tokens_per_step, figures.mismatch_pct) == (None, 80.0)


def test_70_warm_up_stands_apart() -> None:
    report = analyze([CASES / "70-warmup-wave-in-stats" / "requests.jsonl"])
    by_phase = {figures.phase: figures for figures in report.requests}
    assert by_phase["measured"].ttft.p95 == 700 * MS
    assert (by_phase["warmup"].ttft.n, by_phase["warmup"].ttft.max) == (10, 50_000 * MS)


def test_70_warm_up_counts_on_request() -> None:
    path = CASES / "70-warmup-wave-in-stats" / "requests.jsonl"
    [figures] = analyze([path], AnalysisOptions(include_warmup=True)).requests
    assert (figures.phase, figures.ttft.p95) == ("measured", 50_000 * MS)


def test_70_a_cold_first_wave_is_noticed_without_phases(tmp_path: Path) -> None:
    lines = (CASES / "70-warmup-wave-in-stats" / "requests.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    path = tmp_path / "requests.jsonl"
    path.write_text(
        "\n".join(json.dumps({**record, "phase": None}) for record in records).replace('"phase": null, ', "")
    )
    [finding] = [finding for finding in analyze([path]).findings if finding.code == "cold_start"]
    assert finding.title == "first wave is 71x the median: cold start inside the sample?"
    assert not [
        f
        for f in analyze([CASES / "70-warmup-wave-in-stats" / "requests.jsonl"]).findings
        if f.code == "cold_start"
    ]


def test_72_all_failed_is_a_failure_without_figures() -> None:
    report = analyze([CASES / "72-percentile-of-nothing" / "requests.jsonl"])
    [figures] = report.requests
    assert (figures.failed, figures.requests) == (2, 2)
    for summary in (figures.ttft, figures.e2e, figures.tpot, figures.step_time):
        assert (summary.n, summary.mean, summary.p50) == (0, None, None)
    assert figures.throughput_per_s is None
    assert any(finding.title == "failed=2 of 2 measured requests" for finding in report.findings)
    assert judge(report).exit_code == 1


@pytest.mark.parametrize(
    ("record", "failed"),
    [
        ({"id": 1, "error": "timeout"}, 1),
        ({"id": 1, "success": False, "submit_ms": 0}, 1),
        ({"id": 1, "error": "", "submit_ms": 0, "ttft_ms": 5}, 0),
        ({"id": 1, "error": None, "submit_ms": 0, "ttft_ms": 5}, 0),
    ],
)
def test_72_what_counts_as_failed(record: dict[str, object], failed: int) -> None:
    [figures] = measure_requests(
        read_requests(json.dumps(record).encode(), "requests.jsonl").benchmarks[0].timings
    )
    assert (figures.failed, figures.ttft.n) == (failed, 1 - failed)


def test_73_percentiles_need_their_sample() -> None:
    samples = json.loads((CASES / "73-percentile-small-n" / "samples.json").read_text())
    summary = summarize(samples)
    assert (summary.n, summary.p50, summary.p95, summary.p99) == (5, 12, None, None)


def test_the_published_batch_figures_follow_from_their_definitions() -> None:
    # 32 requests x 256 tokens in 19.189 s: 426.9 tokens/s, effective TPOT 74.957 ms.
    end = 19_189 * MS
    timings = [
        RequestTiming(str(n), "measured", send_ns=0, first_ns=100 * MS, last_ns=end, output_tokens=256)
        for n in range(32)
    ]
    [figures] = measure_requests(timings)
    assert figures.output_tokens == 8192
    assert figures.throughput_per_s == pytest.approx(426.909, rel=1e-5)
    assert figures.effective_tpot_ns == pytest.approx(74.957 * MS, rel=1e-5)


def test_a_record_whose_times_run_backwards_is_counted_not_used() -> None:
    requests = read_requests(
        b'{"id": 1, "submit_ms": 10, "first_token_ms": 5, "end_ms": 20, "output_tokens": 3}\n'
        b'{"id": 2, "submit_ms": 0.5, "first_token_ms": 5, "end_ms": 20, "output_tokens": 3}\n',
        "requests.jsonl",
    ).benchmarks[0]
    assert (requests.report.records, requests.report.parsed, requests.report.lost) == (2, 1, 1)
    assert requests.timings[0].send_ns == 500_000


def test_rates_in_a_part_of_the_time_need_every_arrival() -> None:
    known = {"id": 1, "submit_ms": 0, "chunks": [{"t_ms": 10, "tokens": 1}, {"t_ms": 1000, "tokens": 1}]}
    unknown = {"id": 2, "submit_ms": 0, "first_token_ms": 10, "end_ms": 1000, "output_tokens": 50}
    data = "\n".join(map(json.dumps, (known, unknown))).encode()
    [figures] = measure_requests(read_requests(data, "requests.jsonl").benchmarks[0].timings)
    # A peak of 2 tokens/s beside a mean of 52 would be a contradiction.
    assert (figures.throughput_per_s, figures.peak_per_s) == (52, None)
    assert figures.full_batch_throughput_per_s is None
