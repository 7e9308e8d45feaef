"""`dsv4bench serve` with a real engine: two ranks, one request each."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from analyzers.analysis import analyze, judge
from dsv4bench.model.checkpoint import ensure_checkpoint
from dsv4bench.model.config import preset
from tests.integration.engine_runs import draw_prompts, run, tokens_of
from tests.integration.server import ServerProcess, events, running_server

pytestmark = pytest.mark.medium

ENGINE = ["smoke", "--ranks", 2, "--set", "engine.max_model_len=2048"]
CONFIG = preset("tiny")


@pytest.fixture(scope="module")
def server(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("serve")
    profile = ["--profile", "--profile-output", directory / "profile"]
    with running_server(
        environment, directory / "server.log", *ENGINE, *profile, "--max-queue", 1
    ) as running:
        yield running


def ask(server: ServerProcess, asking: Callable[[aiohttp.ClientSession], Awaitable[None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(60), aiohttp.ClientSession(server.url) as session:
            await asking(session)

    asyncio.run(within())


def completion(prompt: list[int], tokens: int, **fields: Any) -> dict[str, Any]:
    return {"prompt": prompt, "max_tokens": tokens, "return_token_ids": True, **fields}


async def stream_tokens(session: aiohttp.ClientSession, prompt: list[int], tokens: int) -> list[int]:
    async with session.post("/v1/completions", json=completion(prompt, tokens, stream=True)) as response:
        assert response.status == 200
        received = [event async for event in events(response)]
    assert received[-1]["usage"]["completion_tokens"] == tokens
    return [token for event in received[:-1] for token in event["choices"][0]["token_ids"]]


def strace_lines(server: ServerProcess) -> list[str]:
    return [line for line in server.log.read_text().splitlines() if "[STRACE]" in line]


async def health(session: aiohttp.ClientSession) -> tuple[int, str]:
    """Its status and its text."""
    async with session.get("/health") as response:
        return response.status, await response.text()


async def figures(session: aiohttp.ClientSession) -> dict[str, Any]:
    async with session.get("/metrics/json") as response:
        document: dict[str, Any] = await response.json()
    return document


def test_streams_have_the_tokens_of_the_engine(server: ServerProcess, environment: dict[str, str]) -> None:
    prompts = draw_prompts(CONFIG, [5, 40, 200])
    checkpoint = ensure_checkpoint(CONFIG, 0, Path(environment["DSV4BENCH_CACHE"]) / "checkpoints", "bigram")
    expected = tokens_of(run(CONFIG, checkpoint, prompts, 12, mtp=1, max_model_len=2048))

    async def asking(session: aiohttp.ClientSession) -> None:
        tokens = await asyncio.gather(*(stream_tokens(session, prompt, 12) for prompt in prompts))
        assert list(tokens) == expected

    ask(server, asking)


def test_a_chat_is_answered(server: ServerProcess) -> None:
    async def asking(session: aiohttp.ClientSession) -> None:
        body = {"messages": [{"role": "user", "content": "Huawei is"}], "max_tokens": 6}
        async with session.post("/v1/chat/completions", json=body) as response:
            document = await response.json()
        assert response.status == 200
        assert document["usage"]["prompt_tokens"] == 8
        assert document["choices"][0]["finish_reason"] in ("length", "stop")

    ask(server, asking)


def test_clients_that_leave_free_their_places(server: ServerProcess) -> None:
    async def asking(session: aiohttp.ClientSession) -> None:
        before = await figures(session)
        for _ in range(4):
            response = await session.post("/v1/completions", json=completion([5, 6], 2000, stream=True))
            await response.content.readline()
            response.close()
        # Each place would be taken for 2000 tokens.
        assert len(await stream_tokens(session, [7, 8], 4)) == 4
        now = await figures(session)
        assert now["replicas"][0]["counters"]["requests_aborted"] >= 3
        assert now["engine"]["tokens"] - before["engine"]["tokens"] < 2000
        while (await figures(session))["replicas"][0]["gauges"]["running"]:
            await asyncio.sleep(0.02)

    ask(server, asking)


def test_more_requests_than_the_server_takes_are_told_so(server: ServerProcess) -> None:
    async def asking(session: aiohttp.ClientSession) -> None:
        taken = [
            await session.post("/v1/completions", json=completion([5, 6], 1500, stream=True))
            for _ in range(3)
        ]
        assert [response.status for response in taken] == [200, 200, 200]
        async with session.post("/v1/completions", json=completion([5, 6], 4)) as refused:
            assert refused.status == 429
            assert refused.headers["Retry-After"]
        for response in taken:
            response.close()
        while (await figures(session))["replicas"][0]["gauges"]["running"]:
            await asyncio.sleep(0.02)

    ask(server, asking)


def test_a_profile_window_leaves_both_traces(server: ServerProcess) -> None:
    async def asking(session: aiohttp.ClientSession) -> None:
        async with session.post("/start_profile") as started:
            assert started.status == 200
        await asyncio.gather(*(stream_tokens(session, [5, 6, 7], 10) for _ in range(2)))
        async with session.post("/stop_profile") as stopped:
            assert stopped.status == 200

    ask(server, asking)
    trace = server.log.with_name("profile") / "trace.json"
    report = analyze([trace, server.log])
    assert judge(report).exit_code == 0, judge(report)
    assert any("decode" in step.callable for step in report.steps)
    assert {line.split(" name=")[1].split()[0] for line in strace_lines(server)} >= {
        "chip.run",
        "node.submit",
    }
    assert (
        len({line.split(" pid=")[1].split()[0] for line in strace_lines(server) if "chip.run " in line}) == 2
    )


def test_a_server_that_is_told_to_stop_answers_who_is_waiting(
    environment: dict[str, str], tmp_path: Path
) -> None:
    with running_server(environment, tmp_path / "log", *ENGINE, "--max-queue", 1) as server:

        async def asking(session: aiohttp.ClientSession) -> None:
            streams = [asyncio.create_task(stream_tokens(session, [5, 6], 60)) for _ in range(2)]
            while (await figures(session))["replicas"][0]["gauges"].get("running") != 2:
                await asyncio.sleep(0.01)
            server.signal(signal.SIGTERM)
            while (await health(session))[0] == 200:
                await asyncio.sleep(0.01)
            async with session.post("/v1/completions", json=completion([5], 1)) as refused:
                assert refused.status == 503
                assert refused.headers["Retry-After"]
            assert [len(tokens) for tokens in await asyncio.gather(*streams)] == [60, 60]

        ask(server, asking)
        assert server.end() == 0, server.log.read_text()


def test_a_second_signal_cuts_answers_off(environment: dict[str, str], tmp_path: Path) -> None:
    with running_server(environment, tmp_path / "log", *ENGINE) as server:

        async def asking(session: aiohttp.ClientSession) -> None:
            async with session.post(
                "/v1/completions", json=completion([5, 6], 2000, stream=True)
            ) as response:
                received = []
                async for event in events(response):
                    received.append(event)
                    if len(received) == 1:
                        server.signal(signal.SIGINT)
                        while (await health(session))[0] == 200:
                            await asyncio.sleep(0.01)
                        server.signal(signal.SIGINT)  # too soon to be another one
                        await asyncio.sleep(1)
                        server.signal(signal.SIGINT)
            assert received[-1]["error"]["code"] == 503

        ask(server, asking)
        assert server.end() == 130, server.log.read_text()


@pytest.mark.parametrize("busy", [True, False])
def test_a_rank_that_dies_ends_the_server_with_its_name(
    environment: dict[str, str], tmp_path: Path, busy: bool
) -> None:
    with running_server(environment, tmp_path / "log", *ENGINE) as server:

        async def asking(session: aiohttp.ClientSession) -> None:
            (rank,) = [entry for entry in (await figures(session))["device_map"] if entry["rank"] == 1]
            received = []
            if busy:
                async with session.post(
                    "/v1/completions", json=completion([5, 6], 2000, stream=True)
                ) as response:
                    async for event in events(response):
                        received.append(event)
                        if len(received) == 1:
                            os.kill(rank["pid"], signal.SIGKILL)
                assert "rank 1" in received[-1]["error"]["message"]
            else:
                os.kill(rank["pid"], signal.SIGKILL)
            while (answer := await health(session))[0] == 200:
                await asyncio.sleep(0.01)
            assert "rank 1" in answer[1]

        ask(server, asking)
        assert server.end() == 1
        assert "rank 1" in server.log.read_text().splitlines()[-1]


def test_a_signal_while_the_engine_starts_ends_it_cleanly(
    environment: dict[str, str], tmp_path: Path
) -> None:
    server = ServerProcess(environment, tmp_path / "log", *ENGINE)

    async def asking(session: aiohttp.ClientSession) -> None:
        assert (await health(session))[0] == 503
        async with session.post("/v1/completions", json=completion([5], 1)) as refused:
            assert refused.status == 503

    ask(server, asking)
    server.signal(signal.SIGTERM)
    assert server.end() == 0, server.log.read_text()
    assert server.process.stdout is not None
    server.process.stdout.close()
    assert "startup complete" not in server.log.read_text()


@pytest.mark.slow
def test_a_thousand_streams_at_once_are_all_answered(environment: dict[str, str]) -> None:
    benchmark = Path(__file__).parents[2] / "benchmarks" / "serve_load.py"
    done = subprocess.run(
        [sys.executable, str(benchmark), "--rounds", "2"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "whole: 2000\n" in done.stdout
