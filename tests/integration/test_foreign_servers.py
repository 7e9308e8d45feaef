"""Runs against servers that nobody here wrote: `transformers serve` and guidellm's mock server, whose times are known.

Runs where DSV4BENCH_FOREIGN names an environment that has them (CONTRIBUTING.md).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.command import command, measured_of
from tests.integration.foreign_processes import (
    OFFLINE,
    ask,
    clean_environment,
    foreign_environment,
    free_port,
    program,
    server,
)

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
TTFT_MS, ITL_MS = 50.0, 5.0
REQUESTS, OUTPUT_TOKENS, PROMPT_TOKENS = 4, 12, 32
LOAD = [
    *("--set", f"load.requests={REQUESTS}", "--set", f"load.output_tokens={OUTPUT_TOKENS}"),
    *("--set", f"load.prompt_tokens={PROMPT_TOKENS}", "--set", "load.concurrency=2"),
]
Document = dict[str, Any]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny-v4")
    ask([str(program("python")), str(HERE / "foreign" / "tiny_deepseek_v4.py"), str(folder)], **OFFLINE)
    return folder


@pytest.fixture(scope="module")
def transformers_url(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    serve = [str(program("transformers")), "serve", str(model), "--host", "127.0.0.1", "--port", str(port)]
    log = tmp_path_factory.mktemp("transformers") / "server.log"
    with server(
        [*serve, "--device", "cpu", "--dtype", "float32"], port, log, clean_environment(**OFFLINE)
    ) as url:
        yield url


@pytest.fixture(scope="module")
def mock_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    serve = [
        str(program("guidellm")),
        "mock-server",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--model",
        "mock",
    ]
    times = ["--ttft-ms", str(TTFT_MS), "--itl-ms", str(ITL_MS)]
    log = tmp_path_factory.mktemp("mock") / "server.log"
    with server([*serve, *times], port, log, clean_environment()) as url:
        yield url


def run(environment: dict[str, str], directory: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command("run", "smoke", "--out", directory, *LOAD, *arguments),
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
    )


def report_of(directory: Path) -> Document:
    document: Document = json.loads((directory / "report.json").read_text())
    return document


def figures_of(directory: Path) -> Document:
    requests: list[Document] = report_of(directory)["requests"]
    return next(figures for figures in requests if figures["phase"] == "measured")


def test_transformers_serve_is_measured_and_what_it_cannot_give_is_unavailable(
    transformers_url: str, environment: dict[str, str], tmp_path: Path
) -> None:
    """It sends no [DONE], and says how many tokens there were in its last event alone."""
    done = run(environment, tmp_path / "run", "--server", "transformers", "--url", transformers_url)
    assert done.returncode == 0, done.stderr
    records = measured_of(tmp_path / "run")
    assert [record.completion_tokens for record in records] == [OUTPUT_TOKENS] * REQUESTS
    assert [record.prompt_tokens for record in records] == [PROMPT_TOKENS] * REQUESTS
    assert {(record.finish_reason, record.error, record.http_status) for record in records} == {
        ("length", None, 200)
    }
    figures = figures_of(tmp_path / "run")
    assert (figures["failed"], figures["output_tokens"]) == (0, REQUESTS * OUTPUT_TOKENS)
    assert figures["mtp"] is None
    report = report_of(tmp_path / "run")
    assert (report["steps"], report["skew"], report["pipelines"]) == ([], [], [])


def test_transformers_serve_is_started_and_stopped(
    model: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    serve = json.dumps(
        [
            *(str(program("transformers")), "serve", "{model}", "--host", "{host}", "--port", "{port}"),
            *("--device", "cpu", "--dtype", "float32"),
        ]
    )
    done = run(
        environment,
        tmp_path / "run",
        *("--server", "transformers", "--set", f"server.model={model}", "--set", f"server.command={serve}"),
    )
    assert done.returncode == 0, done.stderr
    assert figures_of(tmp_path / "run")["output_tokens"] == REQUESTS * OUTPUT_TOKENS
    facts = json.loads((tmp_path / "run" / "run.json").read_text())["server"]
    assert facts["started"]
    assert facts["exit_status"] is not None
    assert not Path(f"/proc/{facts['pid']}").exists()
    assert "Application startup complete" in (tmp_path / "run" / "server.log").read_text()


@pytest.mark.parametrize(
    ("arguments", "field", "key"),
    [
        (["--set", "server.endpoint.fields.ignore_eos=true"], "ignore_eos", "server.endpoint.fields"),
        (
            ["--set", 'server.endpoint.sampling_fields=["top_k"]', "--set", "load.temperature=1"],
            "top_k",
            "server.endpoint.sampling_fields",
        ),
        (
            ["--set", 'server.endpoint.length_fields=["max_tokens", "min_tokens"]'],
            "min_tokens",
            "server.endpoint.length_fields",
        ),
    ],
)
def test_a_field_that_transformers_refuses_is_named_with_the_key_that_governs_it(
    transformers_url: str,
    environment: dict[str, str],
    tmp_path: Path,
    arguments: list[str],
    field: str,
    key: str,
) -> None:
    url = ["--server", "transformers", "--url", transformers_url]
    done = run(environment, tmp_path / "run", *url, *arguments, "--set", "load.top_k=5")
    assert done.returncode == 1
    records = measured_of(tmp_path / "run")
    assert [record.http_status for record in records] == [422] * REQUESTS
    assert all(f"{field} is governed by {key}" in (record.error or "") for record in records)
    assert f"{field} is governed by {key}" in " ".join(done.stdout.split())


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_the_times_of_a_server_with_known_times_come_out(
    mock_url: str, environment: dict[str, str], tmp_path: Path, api: str
) -> None:
    """A timer never fires early: nothing may come out below what the server waits, and how much later is the machine's."""
    choice = ["--server", "openai", "--set", f"server.endpoint.api={api}", "--set", "load.concurrency=1"]
    done = run(environment, tmp_path / "run", "--url", mock_url, *choice)
    assert done.returncode == 0, done.stderr
    figures = figures_of(tmp_path / "run")
    assert (figures["failed"], figures["output_tokens"]) == (0, REQUESTS * OUTPUT_TOKENS)
    assert figures["tokens_per_step"] == 1.0
    assert figures["ttft"]["min"] / 1e6 > TTFT_MS
    # From the first event as it was sent to the last as it was read are 11 gaps at least; the first was read late by
    # what its TTFT is too long, at most.
    late = figures["ttft"]["max"] / 1e6 - TTFT_MS
    assert figures["tpot"]["min"] / 1e6 > ITL_MS - late / (OUTPUT_TOKENS - 1)


def test_without_an_environment_of_that_name_these_tests_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DSV4BENCH_FOREIGN", raising=False)
    with pytest.raises(pytest.skip.Exception, match="DSV4BENCH_FOREIGN names no environment"):
        foreign_environment()
