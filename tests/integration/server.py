"""`dsv4bench serve` as a user starts it, and clients of it."""

import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from tests.integration.command import command
from tests.integration.conftest import children_of, is_alive

START_S = 60


class ServerProcess:
    """A running server. Its log is what it writes to stderr."""

    def __init__(self, environment: dict[str, str], log: Path, *arguments: object) -> None:
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                command("serve", *arguments, "--port", 0),
                env=environment,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        self.log = log
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert " on http://" in line, log.read_text()
        self.url = line.split(" on ")[1].strip()

    def await_ready(self) -> None:
        end = time.monotonic() + START_S
        while "Application startup complete" not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end
            time.sleep(0.05)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait for its end; returns the exit code."""
        return self.process.wait(START_S)


@contextmanager
def running_server(environment: dict[str, str], log: Path, *arguments: object) -> Iterator[ServerProcess]:
    """A server that is ready. It may end before; whatever happens, nothing of it is left."""
    server = ServerProcess(environment, log, *arguments)
    processes: set[int] = set()
    try:
        server.await_ready()
        processes = children_of(server.process.pid)
        yield server
        if server.process.poll() is None:
            server.signal(signal.SIGTERM)
        server.end()
    finally:
        server.process.kill()
        server.process.wait()
        assert server.process.stdout is not None
        server.process.stdout.close()
    end = time.monotonic() + START_S
    while any(map(is_alive, processes)):
        assert time.monotonic() < end, "processes of the server are left"
        time.sleep(0.05)


async def events(response: aiohttp.ClientResponse) -> AsyncIterator[Any]:
    """The events of a stream up to its end, which must be there."""
    async for line in response.content:
        if line == b"data: [DONE]\n":
            return
        if line.startswith(b"data: "):
            yield msgspec.json.decode(line.removeprefix(b"data: "))
    raise AssertionError("the stream ended without [DONE]")
