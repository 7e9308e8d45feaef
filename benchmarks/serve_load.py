"""Many streamed requests at once against `dsv4bench serve`: none may be lost, and memory must not grow with them.

    python benchmarks/serve_load.py --concurrent 1000 --rounds 5

Starts a server of one rank, opens all requests of a round together, and says how each ended: whole, refused with a status,
or lost, which is an error. Between rounds it samples the server's memory and open files.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import aiohttp
import msgspec

from dsv4bench.run.resources import sample_process
from dsv4bench.serving.limits import raise_file_limit

_START_S = 120


async def one(session: aiohttp.ClientSession, tokens: int, index: int) -> str:
    """How one request ended: `whole`, or what it was refused or lost with."""
    body = {
        "prompt": [2 + index % 1000, 7, 8],
        "max_tokens": tokens,
        "stream": True,
        "return_token_ids": True,
    }
    try:
        async with session.post("/v1/completions", json=body) as response:
            if response.status != 200:
                return f"refused {response.status}"
            received = 0
            done = False
            async for line in response.content:
                if line == b"data: [DONE]\n":
                    done = True
                elif line.startswith(b"data: "):
                    event = msgspec.json.decode(line.removeprefix(b"data: "))
                    if "error" in event:
                        return f"error {event['error']['code']}"
                    received += sum(len(choice["token_ids"]) for choice in event["choices"])
            return "whole" if done and received == tokens else f"LOST after {received} tokens"
    except aiohttp.ClientError as error:
        return f"LOST: {type(error).__name__}"


async def rounds(url: str, pid: int, arguments: argparse.Namespace) -> bool:
    """Run all rounds; returns whether nothing was lost."""
    endings: Counter[str] = Counter()
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=arguments.timeout)
    async with aiohttp.ClientSession(url, connector=connector, timeout=timeout) as session:
        for number in range(arguments.rounds):
            began = time.perf_counter()
            ended = await asyncio.gather(
                *(one(session, arguments.tokens, index) for index in range(arguments.concurrent))
            )
            lasted = time.perf_counter() - began
            endings.update(ended)
            sample = sample_process("server", pid, 0)
            assert sample is not None
            whole = sum(end == "whole" for end in ended)
            print(
                f"round {number + 1}: {lasted:6.1f} s, {whole} whole, "
                f"{whole * arguments.tokens / lasted:7.0f} tokens/s, {sample.rss_bytes / 2**20:6.1f} MiB resident "
                f"({sample.anonymous_bytes / 2**20:.1f} anonymous), {sample.fds} files",
                flush=True,
            )
    print(", ".join(f"{end}: {count}" for end, count in sorted(endings.items())))
    return not any(end.startswith("LOST") for end in endings)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--concurrent", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=4)
    parser.add_argument("--timeout", type=float, default=300, help="seconds of one request")
    parser.add_argument("serve", nargs="*", help="more arguments of `dsv4bench serve`, behind --")
    arguments = parser.parse_args()
    raise_file_limit()
    command = [sys.executable, "-m", "dsv4bench", "serve", "smoke", "--port", "0"]
    command += ["--set", "engine.ranks=1", "--set", "engine.requests_per_rank=8", *arguments.serve]
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "server.log"
        with log.open("wb") as stderr:
            server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split(" on ")[-1].strip()
            end = time.monotonic() + _START_S
            while "Application startup complete" not in log.read_text():
                if server.poll() is not None or time.monotonic() > end:
                    sys.exit(f"the server did not start:\n{log.read_text()[-2000:]}")
                time.sleep(0.1)
            fine = asyncio.run(rounds(url, server.pid, arguments))
        finally:
            server.send_signal(signal.SIGTERM)
            status = server.wait()
            assert server.stdout is not None
            server.stdout.close()
        print(f"server: exit {status}, {log.stat().st_size / 2**20:.1f} MiB of log")
    sys.exit(0 if fine and status == 0 else 1)


if __name__ == "__main__":
    main()
