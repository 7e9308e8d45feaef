"""The client-side files of a run, from records whose figures are worked out by hand."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from analyzers.rundir import RequestRecord
from dsv4bench.run.outputs import write_performance_summary, write_requests, write_responses
from tests.builders.requests import request

S = 1_000_000_000


def record(name: str, send_s: float, arrivals_s: list[float], **fields: Any) -> RequestRecord:
    """A request with a token at each of the times."""
    tokens = [10 + index for index in range(len(arrivals_s))]
    times = [int(arrival * S) for arrival in arrivals_s]
    return request(name, times, send_ns=int(send_s * S), output_token_ids=tokens, **fields)


def summary(directory: Path, *records: RequestRecord, speculative_tokens: int = 1) -> dict[str, Any]:
    path = directory / "performance_summary.json"
    write_performance_summary(path, records, speculative_tokens, "verbose")
    loaded: dict[str, Any] = json.loads(path.read_bytes())
    return loaded


def test_throughput_is_tokens_over_the_time_from_the_first_send_to_the_last_token(tmp_path: Path) -> None:
    # Two requests of three tokens each: sent at 1.0 and 1.5 s, the last token at 5.0 s, so 6 tokens in 4 s.
    first = record("a", 1.0, [2.0, 3.0, 5.0], accepted=1, proposed=2)
    second = record("b", 1.5, [2.5, 3.5, 4.0], accepted=2, proposed=2, finish_reason="stop")
    assert summary(tmp_path, second, first) == {
        "requests": 2,
        "completed": 2,
        "output_tokens": 6,
        "elapsed_s": 4.0,
        "output_tokens_per_s": 1.5,
        "effective_tpot_ms": pytest.approx(4000 / 3),
        "mtp": {"speculative_tokens": 1, "accepted": 3, "proposed": 4, "rate": 0.75},
        "batch_elapsed_seconds": 4.0,
        "request_count": 2,
        "prompt_tokens_per_request": 2,
        "unique_prompts": 1,
        # printf '[[1,2],[1,2]]' | sha256sum
        "prompt_token_matrix_sha256": "e19ce9c0de1715ea8676b54f164a1ca6961c438ee5e47af202b9e35cdbfa42a5",
        "tokens_per_request": [3, 3],
        "total_output_tokens": 6,
        "throughput_tokens_per_second": 1.5,
        "profiler_enabled": True,
        "profile_level": "verbose",
    }


def test_requests_that_ended_early_count_their_tokens_and_leave_tpot_undefined(tmp_path: Path) -> None:
    records = (
        record("a", 0.0, [1.0, 2.0], finish_reason="error"),
        record("b", 0.0, [1.0], finish_reason="cancelled"),
        record("c", 0.5, [], finish_reason=None),
        record("d", 0.5, [1.0, 1.5, 2.0, 2.5]),
    )
    found = summary(tmp_path, *records, speculative_tokens=0)
    assert (found["requests"], found["completed"], found["output_tokens"]) == (4, 1, 7)
    assert (found["elapsed_s"], found["output_tokens_per_s"]) == (2.5, 2.8)
    assert found["effective_tpot_ms"] is None
    assert found["mtp"] == {"speculative_tokens": 0, "accepted": 0, "proposed": 0, "rate": None}


def test_without_a_token_nothing_is_said_of_time(tmp_path: Path) -> None:
    found = summary(tmp_path, record("a", 0.0, [], finish_reason="error"))
    assert found["output_tokens"] == 0
    assert {found[key] for key in ("elapsed_s", "output_tokens_per_s", "effective_tpot_ms")} == {None}


def test_requests_are_one_record_a_line_and_responses_have_what_upstream_reads(tmp_path: Path) -> None:
    records = [record("a", 0.0, [1.0, 2.0], text="hi"), record("b", 0.0, [1.0], finish_reason="stop")]
    write_requests(tmp_path / "requests.jsonl", records)
    lines = (tmp_path / "requests.jsonl").read_bytes().splitlines()
    assert [msgspec.json.decode(line, type=RequestRecord) for line in lines] == records
    write_responses(tmp_path / "responses.json", records)
    assert json.loads((tmp_path / "responses.json").read_bytes()) == [
        {
            "index": 0,
            "text": "hi",
            "token_ids": [10, 11],
            "finish_reason": "length",
            "prompt_tokens": 2,
            "completion_tokens": 2,
        },
        {
            "index": 1,
            "text": None,
            "token_ids": [10],
            "finish_reason": "stop",
            "prompt_tokens": 2,
            "completion_tokens": 1,
        },
    ]
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".partial"] == []
