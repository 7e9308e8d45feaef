"""Request records that invite wrong definitions; each test is named after its case."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analyzers.analysis import AnalysisOptions, analyze, judge
from analyzers.readers.requests import RequestTiming, read_requests
from analyzers.requests import RequestFigures, measure_requests
from analyzers.statistics import summarize

DATA = Path(__file__).parent / "data"
MS = 1_000_000


def measured(case: str) -> RequestFigures:
    report = analyze([DATA / case / "requests.jsonl"])
    return next(figures for figures in report.requests if figures.phase == "measured")


def test_59_one_token_has_no_tpot() -> None:
    figures = measured("59-tpot-output-len-1")
    assert (figures.tpot.n, figures.tpot.mean, figures.tpot_undefined) == (1, 10 * MS, 1)
    assert figures.ttft.n == 2


def test_61_chunks_of_several_tokens() -> None:
    figures = measured("61-tpot-multi-token-chunks")
    assert figures.output_tokens == 7
    assert figures.ttft.mean == 100 * MS
    assert figures.tpot.mean == 15 * MS
    assert figures.step_time.mean == 30 * MS
    assert figures.tokens_per_step == 2.0


def test_63_both_means_by_name() -> None:
    figures = measured("63-tpot-mean-of-means")
    assert figures.tpot.mean == 30 * MS
    assert figures.tpot_token_weighted_ns == pytest.approx(1500 * MS / 110)


def test_64_tpot_with_and_without_the_first_token() -> None:
    figures = measured("64-tpot-definition-clash")
    assert figures.tpot.mean == 10 * MS
    assert figures.tpot_incl_first.mean == 19 * MS


def test_65_tokens_are_counted_as_ids_not_as_text() -> None:
    figures = measured("65-tokens-from-text")
    assert figures.output_tokens == 12
    assert figures.tpot.mean == 6 * MS


def test_70_warm_up_stands_apart() -> None:
    report = analyze([DATA / "70-warmup-wave-in-stats" / "requests.jsonl"])
    by_phase = {figures.phase: figures for figures in report.requests}
    assert by_phase["measured"].ttft.p95 == 700 * MS
    assert (by_phase["warmup"].ttft.n, by_phase["warmup"].ttft.max) == (10, 50_000 * MS)


def test_70_warm_up_counts_on_request() -> None:
    path = DATA / "70-warmup-wave-in-stats" / "requests.jsonl"
    [figures] = analyze([path], AnalysisOptions(include_warmup=True)).requests
    assert (figures.phase, figures.ttft.p95) == ("measured", 50_000 * MS)


def test_70_a_cold_first_wave_is_noticed_without_phases(tmp_path: Path) -> None:
    lines = (DATA / "70-warmup-wave-in-stats" / "requests.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    path = tmp_path / "requests.jsonl"
    path.write_text(
        "\n".join(json.dumps({**record, "phase": None}) for record in records).replace('"phase": null, ', "")
    )
    [finding] = [finding for finding in analyze([path]).findings if finding.code == "cold_start"]
    assert finding.title == "first wave is 71x the median: cold start inside the sample?"
    assert not [
        f
        for f in analyze([DATA / "70-warmup-wave-in-stats" / "requests.jsonl"]).findings
        if f.code == "cold_start"
    ]


def test_72_all_failed_is_a_failure_without_figures() -> None:
    report = analyze([DATA / "72-percentile-of-nothing" / "requests.jsonl"])
    [figures] = report.requests
    assert (figures.failed, figures.requests) == (2, 2)
    for summary in (figures.ttft, figures.e2e, figures.tpot, figures.step_time):
        assert (summary.n, summary.mean, summary.p50) == (0, None, None)
    assert figures.throughput_per_s is None
    assert any(finding.title == "failed=2 of 2 measured requests" for finding in report.findings)
    assert judge(report).exit_code == 1


def test_73_percentiles_need_their_sample() -> None:
    samples = json.loads((DATA / "73-percentile-small-n" / "samples.json").read_text())
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
    )
    assert (requests.report.records, requests.report.parsed, requests.report.lost) == (2, 1, 1)
    assert requests.timings[0].send_ns == 500_000


def test_peak_is_never_below_the_mean() -> None:
    timing = RequestTiming(
        request_id="1",
        phase="measured",
        send_ns=0,
        chunks=((0, 1), (1_500 * MS, 1)),
        first_ns=0,
        last_ns=1_500 * MS,
        output_tokens=2,
    )
    [figures] = measure_requests([timing])
    assert figures.throughput_per_s == pytest.approx(2 / 1.5)
    assert figures.peak_per_s == pytest.approx(2 / 1.5)
