"""`dsv4bench serve` as clients that nobody here wrote see it: openai, guidellm, aiperf.

Runs where DSV4BENCH_FOREIGN names an environment that has them (CONTRIBUTING.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analyzers.analysis import analyze
from tests.integration.command import command
from tests.integration.foreign_processes import OFFLINE, ask, foreign_environment, free_port, program, server

pytestmark = pytest.mark.slow

MODEL = "deepseek-v4-tiny"
KEY = "the key"
REQUESTS, OUTPUT_TOKENS = 4, 16
TOUR_TOKENS = 8
"""What the tour asks for."""
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tokenizer, as these clients want one; there is a model in it too."""
    folder = tmp_path_factory.mktemp("tiny-v4")
    ask([str(program("python")), str(HERE / "foreign" / "tiny_deepseek_v4.py"), str(folder)], **OFFLINE)
    return folder


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("serve") / "server.log"


@pytest.fixture(scope="module")
def url(environment: dict[str, str], log: Path) -> Iterator[str]:
    foreign_environment()
    port = free_port()
    serve = ["serve", "gbs32-mtp1", "--ranks", "2", "--port", port, "--api-key", KEY]
    with server(command(*serve), port, log, environment) as address:
        yield address


def test_the_openai_client_completes_chats_streams_gives_up_and_is_refused(url: str, log: Path) -> None:
    found = json.loads(
        ask([str(program("python")), str(HERE / "foreign" / "openai_tour.py"), url, MODEL, KEY])
    )
    assert found["models"] == [MODEL]
    assert (found["tokens"], found["finish"]) == (TOUR_TOKENS, "length")
    assert (found["streamed_tokens"], found["streamed_finish"]) == (TOUR_TOKENS, "length")
    assert found["streamed"] == found["completion"] != ""
    assert found["chat_streamed"] == found["chat"] != ""
    assert found["chat_roles"] == ["assistant"]
    refused = {what: (answer.get("error"), answer.get("status")) for what, answer in found["refused"].items()}
    assert refused == {
        "a wrong key": ("AuthenticationError", 401),
        "an unknown model": ("NotFoundError", 404),
        "a negative length": ("BadRequestError", 400),
        "a length that is no number": ("BadRequestError", 400),
        "a prompt that is too long": ("BadRequestError", 400),
        "two answers": ("BadRequestError", 400),
    }
    assert all(answer["message"] for answer in found["refused"].values())
    # What the client gave up after three events is not generated to its 400 tokens.
    assert "out=400" not in log.read_text()


def test_guidellm_and_this_project_read_one_result_alike(url: str, tokenizer: Path, tmp_path: Path) -> None:
    backend = f"kind=openai_http,target={url},model={MODEL},request_format=/v1/completions,api_key={KEY}"
    ask(
        [
            *(str(program("guidellm")), "run", "--backend", backend, "--profile", "kind=synchronous"),
            *("--constraint", f"kind=max_requests,count={REQUESTS}", "--disable-progress"),
            *("--tokenizer", f"kind=huggingface_auto,model={tokenizer}"),
            *("--data", f"kind=synthetic_text,prompt_tokens=64,output_tokens={OUTPUT_TOKENS}"),
            *("--output", f"kind=json,path={tmp_path / 'guidellm.json'}"),
        ],
        **OFFLINE,
    )
    theirs = json.loads((tmp_path / "guidellm.json").read_text())["benchmarks"][0]["metrics"]
    assert theirs["request_totals"]["successful"] == theirs["request_totals"]["total"] == REQUESTS
    ours = analyze([tmp_path / "guidellm.json"]).requests[0]
    assert (ours.requests, ours.failed, ours.output_tokens) == (REQUESTS, 0, REQUESTS * OUTPUT_TOKENS)
    for figure, their_name in (
        (ours.ttft.mean, "time_to_first_token_ms"),
        (ours.tpot_incl_first.mean, "time_per_output_token_ms"),
    ):
        assert figure == pytest.approx(mean(theirs, their_name) * 1e6, rel=1e-3), their_name


def mean(metrics: dict[str, Any], name: str) -> float:
    value: float = metrics[name]["successful"]["mean"]
    return value


def test_aiperf_and_this_project_read_one_result_alike(url: str, tokenizer: Path, tmp_path: Path) -> None:
    for endpoint in ("completions", "chat"):
        output = tmp_path / endpoint
        ask(
            [
                *(str(program("aiperf")), "profile", "-m", MODEL, "-u", url, "--api-key", KEY, "--streaming"),
                *("--endpoint-type", endpoint, "--isl", "64", "--osl", str(OUTPUT_TOKENS)),
                *(
                    "--request-count",
                    str(REQUESTS),
                    "--concurrency",
                    "2",
                    "--extra-inputs",
                    "ignore_eos:true",
                ),
                *("--use-server-token-count", "--tokenizer", str(tokenizer), "--ui", "none"),
                *("--output-artifact-dir", str(output), "--no-gpu-telemetry", "--no-server-metrics"),
            ]
        )
        theirs = json.loads((output / "profile_export_aiperf.json").read_text())
        ours = analyze([output / "profile_export.jsonl"]).requests[0]
        assert (ours.requests, ours.failed, ours.output_tokens) == (REQUESTS, 0, REQUESTS * OUTPUT_TOKENS)
        for figure, their_name in (
            (ours.ttft.mean, "time_to_first_token"),
            (ours.e2e.mean, "request_latency"),
            (ours.tpot.mean, "inter_token_latency"),
        ):
            assert figure == pytest.approx(theirs[their_name]["avg"] * 1e6, rel=1e-6), their_name
