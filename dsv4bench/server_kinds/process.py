"""A server that a run starts: its process and everything it starts, its log, its health and its end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp

from dsv4bench.errors import EngineError
from dsv4bench.server_kinds import supervisor
from dsv4bench.server_kinds.resolve import PROFILE_FILE, ResolvedServer

_HEALTH_POLL_S = 0.25
_HEALTH_TIMEOUT_S = 5.0
_KILL_S = 15.0
"""How long the end of everything may take after SIGKILL."""
_LAST_LINES = 12
_LAST_BYTES = 1 << 16


class ServerProcess:
    """A running server; an asynchronous context manager at whose end nothing of it is left."""

    def __init__(self, server: ResolvedServer, log: Path) -> None:
        """`log` gets everything that it prints."""
        self._server = server
        self._log = log
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self._gone = asyncio.Event()
        self._failure: str | None = None
        self.pid: int | None = None
        self.exit_status: int | None = None
        """None while it runs; negative is the signal that ended it."""

    async def __aenter__(self) -> Self:
        """Start it.

        Raises:
            EngineError: its port is taken, or it cannot be run.
        """
        server = self._server
        _check_port(server)
        server.output.mkdir(parents=True, exist_ok=True)
        if server.profile_toml:
            (server.output / PROFILE_FILE).write_text(server.profile_toml, encoding="utf-8")
        ours, theirs = socket.socketpair()
        with theirs, self._log.open("ab") as log:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-S", supervisor.__file__, str(theirs.fileno()), *server.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | server.environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C reaches the run alone, which then ends the server in order
            )
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._listening = asyncio.create_task(self._listen(reader))
        while self.pid is None and self._failure is None and not self._gone.is_set():
            await asyncio.sleep(0.005)
        if self.pid is None:
            await self._close()
            raise EngineError(
                f"cannot run {shlex.join(server.command)}: {self._failure or 'it did not start'}"
            )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A run that is cancelled still ends its server in order.
        await asyncio.shield(asyncio.ensure_future(self._close()))

    async def wait_ready(self, told: Callable[[str], None]) -> float:
        """Wait until it says that it is ready; returns the seconds that took. `told` gets a line for people.

        Raises:
            EngineError: it ended before, or did not become healthy in time.
        """
        health, begin = self._server.kind.health, time.monotonic()
        state = "no answer"
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_HEALTH_TIMEOUT_S)) as session:
            while True:
                if self._ended.is_set():
                    raise EngineError(self.describe_end("before it was ready"))
                elapsed = time.monotonic() - begin
                state = await self._health(session)
                if state == "" and self._has_line(health.log_line):
                    return time.monotonic() - begin
                state = state or f"healthy, but its log lacks {health.log_line!r}"
                if elapsed > health.timeout_s:
                    raise EngineError(
                        f"the server was not ready after {health.timeout_s:g} s (server.health.timeout_s): GET "
                        f"{self._server.url}{health.path}: {state}{self.last_lines()}"
                    )
                told(f"waiting for the server: {elapsed:.0f} s, {state}")
                await self._sleep(_HEALTH_POLL_S)

    async def stop(self) -> None:
        """End it in order: its signal, its grace, then SIGKILL for whatever is left."""
        if self._writer is None or self._gone.is_set():
            return
        stop = self._server.kind.stop
        if not self._ended.is_set():
            self._tell(f"signal {signal.Signals[stop.signal].value}")
            await _within(self._ended.wait(), stop.grace_s)
        self._tell("kill")
        await _within(self._gone.wait(), _KILL_S)

    async def until_end(self) -> None:
        """Return when it has ended by itself."""
        await self._ended.wait()

    @property
    def has_ended(self) -> bool:
        """Whether it ended."""
        return self._ended.is_set()

    def describe_end(self, when: str) -> str:
        """How it ended, for people, with the last lines of its log."""
        status = self.exit_status
        how = "ended"
        if status is not None and status < 0:
            how = f"was killed by {signal.Signals(-status).name}"
        elif status is not None:
            how = f"exited with status {status}"
        return f"the server {how} {when}{self.last_lines()}"

    def last_lines(self) -> str:
        """The last lines of its log, to stand behind an error."""
        with self._log.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - _LAST_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        kept = [line for line in lines if line.strip()][-_LAST_LINES:]
        shown = "".join(f"\n  {line}" for line in kept)
        return f"; the end of {self._log}:{shown}" if kept else f"; it printed nothing ({self._log})"

    async def _health(self, session: aiohttp.ClientSession) -> str:
        """What is wrong with its health; "" for nothing."""
        health = self._server.kind.health
        try:
            async with session.get(self._server.url + health.path) as response:
                return "" if response.status == health.status else f"HTTP {response.status}"
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            refused = isinstance(error, aiohttp.ClientConnectorError)
            return "no answer yet" if refused else f"{error or type(error).__name__}"

    def _has_line(self, text: str) -> bool:
        return not text or text.encode() in self._log.read_bytes()

    async def _sleep(self, seconds: float) -> None:
        """Sleep, but no longer than the server lives."""
        await _within(self._ended.wait(), seconds)

    def _tell(self, order: str) -> None:
        assert self._writer is not None
        self._writer.write(order.encode() + b"\n")

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        """Take in what the supervisor says; the end of the connection is the end of everything."""
        # It resets the connection where it ends with an order still unread.
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                word, _, rest = line.decode().strip().partition(" ")
                if word == "pid":
                    self.pid = int(rest)
                elif word == "failed":
                    self._failure = rest
                elif word == "exit":
                    self.exit_status = int(rest)
                    self._ended.set()
        self._ended.set()
        self._gone.set()

    async def _close(self) -> None:
        await self.stop()
        if self._writer is not None:
            self._writer.close()
        if self._listening is not None:
            await _within(self._listening, _KILL_S)
        if self._supervisor is not None:
            await asyncio.to_thread(self._supervisor.wait)


async def _within(awaitable: Awaitable[object], seconds: float) -> None:
    """Wait for `awaitable`, `seconds` at most."""
    with contextlib.suppress(TimeoutError):  # the caller looks at what has become of it
        await asyncio.wait_for(awaitable, seconds)


def _check_port(server: ResolvedServer) -> None:
    host, port = server.kind.host, int(server.url.rpartition(":")[2])
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise EngineError(
                    f"cannot listen on {host}:{port}: {error.strerror} (server.host)"
                ) from error
            holder = _holder(port)
            raise EngineError(
                f"port {port} of {host} is taken{holder}; end what listens there, or choose another one with --set "
                "server.port=N (0: a free one)"
            ) from error


def _holder(port: int) -> str:
    """Who listens on a port, as far as /proc tells."""
    inodes = {fields[9] for fields in _listeners() if int(fields[1].rpartition(":")[2], 16) == port}
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            target = str(descriptor.readlink())
        except OSError:
            continue  # ended meanwhile, or not ours to see
        if target.removeprefix("socket:[").removesuffix("]") in inodes:
            return f" by pid {descriptor.parts[2]}"
    return ""


def _listeners() -> Iterator[list[str]]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        path = Path(table)
        if path.exists():
            for line in path.read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A":  # LISTEN
                    yield fields
