"""The server process: it listens, starts the engine, serves until it is told to stop, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import uvicorn

from dsv4bench.errors import Dsv4benchError, EngineError, RunInterruptedError, UsageError
from dsv4bench.run.outputs import describe
from dsv4bench.serving.app import make_app
from dsv4bench.serving.bridge import EngineBridge, ServedEngine
from dsv4bench.serving.logs import log_to_stderr
from dsv4bench.serving.profiling import ProfileControl, TracingPlan
from dsv4bench.serving.service import EngineFacts, Service

_BACKLOG = 4096
_LOOK_S = 0.1
"""How often the server looks whether the engine has failed or the last answer is given."""
_ERROR_GRACE_S = 5.0
"""How long answers that were cut off get to say so."""
_FAILED_S = 1.0
"""How long a server whose engine has failed tells why, before its process ends."""
_CONNECTIONS_GRACE_S = 5
_ONE_SIGNAL_S = 0.5
"""A signal that comes so soon behind the first is the same one: a terminal and `timeout` tell a group and its member."""
_KEEP_ALIVE_S = 75
"""How long a connection may lie idle: longer than clients keep theirs, so that none sends a request into its end."""
_log = logging.getLogger("dsv4bench.serving")


@dataclass(frozen=True)
class StartedEngine:
    """An engine that is up, and how many of its programs came from the cache."""

    engine: ServedEngine
    program_cache: dict[str, int]


class _Uvicorn(uvicorn.Server):
    """uvicorn without signal handlers of its own: a signal must let running answers end first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """A socket that connections may come to; port 0 is any free one.

    Raises:
        UsageError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        # At once: whoever waits for the port finds it open as long as the engine starts.
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise UsageError(
            f"cannot listen on {host} port {port}: {error.strerror or error}; choose another --port (0: any free one) or "
            f"--host"
        ) from error
    listener.setblocking(False)
    return listener


def url_of(listener: socket.socket, host: str) -> str:
    """Where the socket is reached."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}"


class Server:
    """Runs one service on a socket. `start_engine` is called in a thread of its own and may take minutes."""

    def __init__(
        self,
        service: Service,
        listener: socket.socket,
        start_engine: Callable[[], StartedEngine],
        plan: TracingPlan,
        drain_timeout_s: float,
        *,
        restarts_allowed: bool = False,
    ) -> None:
        """`restarts_allowed` says that the engine may replace ranks that ended."""
        self._service = service
        self._listener = listener
        self._start_engine = start_engine
        self._plan = plan
        self._drain_timeout_s = drain_timeout_s
        self._restarts_allowed = restarts_allowed
        self._signals = 0
        self._first_signal = 0.0
        self._cut_off = False
        self._signalled = asyncio.Event()
        self._aborted = asyncio.Event()

    async def run(self) -> None:
        """Serve until a signal ends it.

        Raises:
            EngineError: the engine did not start, or failed.
            RunInterruptedError: a second signal cut off the answers that were being given.
        """
        loop = asyncio.get_running_loop()
        self._service.recorder.name_thread("http")
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal, signal.Signals(number))
        config = uvicorn.Config(
            make_app(self._service),
            lifespan="off",
            backlog=_BACKLOG,
            log_config=log_to_stderr(),
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_CONNECTIONS_GRACE_S,
        )
        http = _Uvicorn(config)
        serving = asyncio.create_task(http.serve(sockets=[self._listener]))
        try:
            await self._live()
        finally:
            http.should_exit = True
            await serving
        if self._aborted.is_set() and self._cut_off:
            raise RunInterruptedError(
                "stopped by a second signal; the answers that were being given were cut off"
            )

    async def _live(self) -> None:
        service = self._service
        try:
            started = await asyncio.to_thread(self._start_engine)
        except Dsv4benchError as error:
            service.lifecycle.enter("failed", describe(error))
            service.recorder.close()
            raise
        failure: BaseException | None = None
        try:
            if not self._signals:
                failure = await self._serve(started)
        finally:
            # Nothing waits any more, unless its time was up: then it is dropped.
            await asyncio.to_thread(started.engine.close, abort=True)
            service.recorder.close()
            _log.info("the ranks have stopped")
        if failure is not None:
            raise _failure_of(failure)

    async def _serve(self, started: StartedEngine) -> BaseException | None:
        """Serve until a signal or a failure of the engine, which is returned."""
        service, engine = self._service, started.engine
        bridge = EngineBridge(engine, asyncio.get_running_loop())
        profile = ProfileControl(self._plan, service.recorder, bridge)
        service.engine = EngineFacts(bridge, profile, started.program_cache)
        if not self._signals:
            service.lifecycle.enter("ready")
            _log.info("Application startup complete.")
        while not self._signals and self._failure(engine) is None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._signalled.wait(), _LOOK_S)
        failure = self._failure(engine)
        if failure is not None:
            service.lifecycle.enter("failed", describe(failure))
            _log.error("%s", service.lifecycle.describe())
            await self._answers_given(_ERROR_GRACE_S)
            # Who asks why learns it, and no process lingers on without an engine.
            await asyncio.sleep(_FAILED_S)
        else:
            await self._drain()
        if profile.is_open:
            await profile.stop()
        return failure or self._failure(engine)

    def _failure(self, engine: ServedEngine) -> BaseException | None:
        """Why no more requests can be answered. Ranks that end while nobody needs them are only missed by the next one."""
        if engine.failure is not None or self._restarts_allowed:
            return engine.failure
        return None if self._service.admission.count else engine.worker.failure

    async def _drain(self) -> None:
        service = self._service
        _log.info("shutting down: %d requests are being answered", service.admission.count)
        if await self._answers_given(self._drain_timeout_s):
            return
        _log.warning("%d answers are cut off", service.admission.count)
        self._cut_off = True
        service.cancel_all()
        await self._answers_given(_ERROR_GRACE_S)

    async def _answers_given(self, timeout_s: float) -> bool:
        """Wait until no request is being answered; False when the time was up, or a second signal came, before."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        already_aborted = self._aborted.is_set()
        while self._service.admission.count and loop.time() < end:
            if self._aborted.is_set() and not already_aborted:
                return False
            await asyncio.sleep(_LOOK_S / 5)
        return not self._service.admission.count

    def _on_signal(self, number: signal.Signals) -> None:
        now = asyncio.get_running_loop().time()
        if self._signals and now - self._first_signal < _ONE_SIGNAL_S:
            return
        self._first_signal = self._first_signal or now
        self._signals += 1
        self._service.lifecycle.enter("draining")
        _log.info("%s received", number.name)
        self._signalled.set()
        if self._signals > 1:
            if self._service.engine is None:
                # Nothing interrupts a start; its ranks end with this process.
                os._exit(RunInterruptedError.exit_code)
            self._aborted.set()


def _failure_of(failure: BaseException) -> Exception:
    if isinstance(failure, Dsv4benchError):
        return failure
    error = EngineError(f"the engine failed: {describe(failure)}")
    error.__cause__ = failure
    return error
