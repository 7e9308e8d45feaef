"""Every file, line and key that pypto-serving's published analyzers read, found in a run directory (docs/upstream.md).

The patterns are those that the analyzers apply to the text; nothing of our readers is used.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from analyzers.analysis import analyze
from tests.integration.command import SMALL, measured_of, run

TOKENS, REQUESTS = 12, 3
SUMMARY_KEYS = {
    "batch_elapsed_seconds",
    "request_count",
    "prompt_tokens_per_request",
    "unique_prompts",
    "prompt_token_matrix_sha256",
    "tokens_per_request",
    "total_output_tokens",
    "throughput_tokens_per_second",
    "effective_tpot_ms",
    "profiler_enabled",
    "profile_level",
}


@pytest.fixture(scope="module")
def recorded(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("upstream") / "run"
    result = run(environment, "run", "gbs32-mtp1", *SMALL, "--out", directory,
                 "--set", f"load.output_tokens={TOKENS}", "--set", f"load.requests={REQUESTS}",
                 "--set", "load.warmup_batches=1")  # fmt: skip
    assert result.returncode == 0, result.stderr
    return directory


def document(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_log_says_of_every_measured_request_what_the_analyzers_search(recorded: Path) -> None:
    log = (recorded / "server.log").read_text(encoding="utf-8", errors="replace")
    records = measured_of(recorded)
    assert len(records) == REQUESTS
    finished = re.findall(r"request (\S+) finished: prompt=(\d+) out=(\d+).*e2e=([0-9.]+)s", log)
    accepted = re.findall(r"MTP acceptance for (.*): accepted=(\d+) proposed=(\d+) rate=([0-9.]+)%", log)
    assert [line[:3] for line in finished] == [
        (record.request_id, str(len(record.prompt_token_ids)), str(TOKENS)) for record in records
    ]
    assert [line[:3] for line in accepted] == [
        (record.request_id, str(record.accepted), str(record.proposed)) for record in records
    ]
    for record, line in zip(records, finished, strict=True):
        assert float(line[3]) == pytest.approx((record.token_times_ns[-1] - record.send_ns) / 1e9, abs=1e-3)
    for record, line in zip(records, accepted, strict=True):
        assert record.accepted is not None
        assert record.proposed
        assert float(line[3]) == pytest.approx(100 * record.accepted / record.proposed, abs=0.01)
    devices = dict(re.findall(r"\[chip_process pid=(\d+) dev=(\d+)\] ready", log))
    assert sorted(devices.values()) == ["0", "1", "2", "3"]
    roots = re.findall(r"\[STRACE\] v=1 pid=(\d+) .*? name=chip\.run ", log)
    assert set(roots) == set(devices)


def test_the_trace_lies_where_they_look_and_has_the_categories_and_dispatches_that_they_need(
    recorded: Path,
) -> None:
    events = document(recorded / "serving-trace" / "trace.json")["traceEvents"]
    spans = [event for event in events if event.get("ph") == "X"]
    categories = Counter(event.get("cat") for event in spans)
    assert {"scheduler", "worker", "executor", "kernel", "serving"} <= categories.keys()
    assert all({"ts", "dur", "pid", "tid", "name"} <= event.keys() for event in spans)
    dispatches = [
        event
        for event in spans
        if event["cat"] == "kernel" and event["name"].endswith((".worker_run", ".worker_submit"))
    ]
    log = (recorded / "server.log").read_text(errors="replace")
    roots = Counter(re.findall(r"\[STRACE\] v=1 pid=(\d+) .*? name=chip\.run ", log))
    # One named dispatch for each run of a rank.
    assert set(roots.values()) == {len(dispatches)}
    start = min(event["ts"] for event in spans)
    end = max(event["ts"] + event["dur"] for event in spans)
    starts = [int(ts) / 1000 for ts in re.findall(r"name=chip\.run ts=(\d+)", log)]
    assert all(start <= time <= end for time in starts)


def test_the_answers_and_the_summary_have_their_keys(recorded: Path) -> None:
    answers = document(recorded / "responses.json")
    assert [answer["index"] for answer in answers] == list(range(REQUESTS))
    for answer in answers:
        assert answer.keys() >= {
            "index",
            "text",
            "token_ids",
            "finish_reason",
            "prompt_tokens",
            "completion_tokens",
        }
        assert len(answer["token_ids"]) == answer["completion_tokens"] == TOKENS
    summary = document(recorded / "performance_summary.json")
    assert summary.keys() >= SUMMARY_KEYS
    assert summary["tokens_per_request"] == [TOKENS] * REQUESTS
    assert (summary["request_count"], summary["total_output_tokens"]) == (REQUESTS, TOKENS * REQUESTS)
    assert (summary["profiler_enabled"], summary["profile_level"]) == (True, "verbose")
    elapsed = summary["batch_elapsed_seconds"]
    assert summary["effective_tpot_ms"] == pytest.approx(elapsed * 1000 / TOKENS)
    assert summary["throughput_tokens_per_second"] == pytest.approx(TOKENS * REQUESTS / elapsed)
    prompts = document(recorded / "prompt_manifest.json")
    matrix = [prompt["token_ids"] for prompt in prompts]
    assert matrix == [record.prompt_token_ids for record in measured_of(recorded)]
    compact = json.dumps(matrix, separators=(",", ":")).encode()
    assert summary["prompt_token_matrix_sha256"] == hashlib.sha256(compact).hexdigest()
    assert summary["unique_prompts"] == len({tuple(row) for row in matrix})
    assert {prompt["input_tokens"] for prompt in prompts} == {summary["prompt_tokens_per_request"]}


def test_without_our_requests_the_directory_states_the_same(recorded: Path) -> None:
    """What upstream finds in our run, our reader of upstream's directories finds too, and nothing contradicts."""
    whole = analyze([recorded])
    assert whole.stated is None
    requests = recorded / "requests.jsonl"
    content = requests.read_bytes()
    requests.unlink()
    try:
        report = analyze([recorded])
    finally:
        requests.write_bytes(content)
    stated = report.stated
    assert stated is not None
    assert stated.contradicted == {}
    measured = whole.requests[0]
    assert measured.mtp is not None
    assert (stated.requests.value, stated.output_tokens.value) == (REQUESTS, TOKENS * REQUESTS)
    assert (stated.mtp_accepted.value, stated.mtp_proposed.value) == (
        measured.mtp.accepted,
        measured.mtp.proposed,
    )
    assert stated.effective_tpot.value == pytest.approx(measured.effective_tpot_ns)
