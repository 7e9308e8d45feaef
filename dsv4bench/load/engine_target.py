"""Requests to the embedded engine: the same load as on a server, without a wire between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from analyzers.rundir import RequestRecord
from dsv4bench.engine.engine import Engine
from dsv4bench.engine.requests import Request, RequestHandle
from dsv4bench.load.requests import LoadRequest, Phase


@dataclass
class SentRequest:
    """A request that the engine got; `error` says why it was given up, if it was."""

    request: LoadRequest
    handle: RequestHandle
    planned_ns: int | None
    phase: Phase
    error: str | None = None


class EngineTarget:
    """A `Target` that is an engine in this process.

    `make_request` makes the engine's request of one of the load, `make_record` the record of what became of it. `sent`
    gets every request as it is sent, so that none is lost with an engine that fails.
    """

    def __init__(
        self,
        engine: Engine,
        make_request: Callable[[LoadRequest], Request],
        make_record: Callable[[SentRequest], RequestRecord],
        sent: list[SentRequest],
        timeout_s: float,
    ) -> None:
        self._engine = engine
        self._make_request = make_request
        self._make_record = make_record
        self._sent = sent
        self._timeout_s = timeout_s

    async def send(self, request: LoadRequest, planned_ns: int | None, phase: Phase) -> RequestRecord:
        """See `Target.send`. The engine publishes tokens with their times; nothing here runs for each of them.

        Raises:
            EngineError: the engine takes no requests any more.
        """
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def listener(handle: RequestHandle) -> None:
            if handle.finish_reason is not None:
                loop.call_soon_threadsafe(ended.set)

        handle = self._engine.submit(self._make_request(request), listener)
        sent = SentRequest(request, handle, planned_ns, phase)
        self._sent.append(sent)
        try:
            async with asyncio.timeout(self._timeout_s):
                await ended.wait()
        except TimeoutError:
            sent.error = f"timed out after {self._timeout_s:g} s (load.timeout_s)"
            self._engine.cancel(request.request_id)
        except asyncio.CancelledError:
            # The engine ends with it, and says what became of the request.
            self._engine.cancel(request.request_id)
        return self._make_record(sent)
