"""Result files of AIPerf, vLLM's and SGLang's benchmarks: the same requests, whatever their words for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analyzers.analysis import analyze, judge
from analyzers.clients.requests import tpot_parts
from analyzers.readers.requests import read_requests

DATA = Path(__file__).parent / "data"
AIPERF = DATA / "aiperf.jsonl"


def aiperf_says(key: str) -> list[float]:
    records = [json.loads(line) for line in AIPERF.read_text().splitlines()]
    return [record["metrics"][key]["value"] for record in records if key in record["metrics"]]


def test_aiperf_times_and_tokens_come_back_exactly() -> None:
    (requests,) = read_requests(AIPERF.read_bytes(), "x").benchmarks
    whole = [timing for timing in requests.timings if timing.is_whole]
    assert [timing.output_tokens for timing in whole] == [8, 8, 8, 16]
    assert [timing.first_ns - timing.send_ns for timing in whole] == [
        round(value * 1e6) for value in aiperf_says("time_to_first_token")
    ]
    # Its ITL is our TPOT: (latency - TTFT) / (tokens - 1).
    for timing, said in zip(whole, aiperf_says("inter_token_latency"), strict=True):
        duration, tokens = tpot_parts(timing)
        assert duration / tokens / 1e6 == pytest.approx(said, abs=1e-5)
    # Eight tokens in eight chunks are one each; sixteen in ten nobody can tell.
    assert [timing.chunks is None for timing in whole] == [False, False, False, True]


def test_aiperf_requests_that_failed_say_why() -> None:
    (requests,) = read_requests(AIPERF.read_bytes(), "x").benchmarks
    (failed,) = [timing for timing in requests.timings if timing.error is not None]
    assert failed.error.startswith("500 Internal Server Error")


def test_aiperf_warm_up_stands_apart_and_cancelled_requests_were_in_flight() -> None:
    lines = [json.loads(line) for line in AIPERF.read_text().splitlines()[:3]]
    lines[0]["metadata"]["benchmark_phase"] = "warmup"
    lines[1]["metadata"]["was_cancelled"] = True
    data = "\n".join(map(json.dumps, lines)).encode()
    (requests,) = read_requests(data, "x").benchmarks
    assert [(timing.phase, timing.was_cut) for timing in requests.timings] == [
        ("warmup", False),
        ("measured", True),
        ("measured", False),
    ]


def bench(**changes: Any) -> dict[str, Any]:
    """Three requests: three tokens one by one, five in three events, and one that failed. Seconds."""
    return {
        "backend": "vllm",
        "input_lens": [4, 4, 4],
        "output_lens": [3, 5, 0],
        "ttfts": [0.05, 0.1, 0.0],
        "itls": [[0.01, 0.02], [0.02, 0.02], []],
        "errors": ["", "", "Bad Gateway"],
        **changes,
    }


def test_bench_results_give_latencies_without_a_clock() -> None:
    (requests,) = read_requests(json.dumps(bench()).encode(), "x").benchmarks
    first, second, failed = requests.timings
    assert (first.first_ns, first.last_ns, first.output_tokens) == (50_000_000, 80_000_000, 3)
    assert first.chunks == ((50_000_000, 1), (60_000_000, 1), (80_000_000, 1))
    # As vLLM: (latency - TTFT) / (n - 1), for nobody says what an event brought.
    assert tpot_parts(second) == (40_000_000, 4)
    assert second.chunks is None
    assert failed.error == "Bad Gateway"
    assert not any(timing.is_placed for timing in requests.timings)


def test_start_times_place_requests_on_one_clock() -> None:
    data = json.dumps(bench(start_times=[10.0, 10.5, 11.0])).encode()
    (requests,) = read_requests(data, "x").benchmarks
    assert [timing.send_ns for timing in requests.timings] == [10_000_000_000, 10_500_000_000, 11_000_000_000]
    assert all(timing.is_placed for timing in requests.timings)


def test_every_line_of_several_is_a_run_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "sglang.jsonl"
    path.write_text(json.dumps(bench()) + "\n" + json.dumps(bench(output_lens=[3, 3, 0])) + "\n")
    runs = read_requests(path.read_bytes(), str(path)).benchmarks
    assert [[timing.output_tokens for timing in run.timings] for run in runs] == [[3, 5, 0], [3, 3, 0]]
    report = analyze([path])
    assert [run.report.requests[0].output_tokens for run in report.runs] == [8, 6]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"ttfts": [0.05, 0.1]}, "the arrays have different lengths"),
        ({"ttfts": [0.05, 0.1, "x"]}, "'x' in ttfts is no time"),
        ({"itls": [[0.01, -0.02], [0.02, 0.02], []]}, "in itls is no time"),
        ({"itls": [[0.01, float("nan")], [0.02, 0.02], []]}, "in itls is no time"),
        ({"output_lens": [3, -1, 0]}, "-1 is no number of tokens"),
    ],
)
def test_what_contradicts_itself_is_lost_with_its_reason(
    changes: dict[str, Any], why: str, tmp_path: Path
) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(bench(**changes)))
    report = analyze([path])
    assert report.lost > 0
    assert judge(report).exit_code == 4
    assert why in " ".join(str(issue.where) for entry in report.inputs for issue in entry.issues)


def test_requests_without_output_have_failed_even_where_no_error_is_kept() -> None:
    document = bench()
    del document["errors"]
    (requests,) = read_requests(json.dumps(document, indent=1).encode(), "x").benchmarks
    assert [timing.error for timing in requests.timings] == [None, None, "no output"]
