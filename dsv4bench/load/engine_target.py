"""Requests to the embedded engine: the same load as on a server, without a wire between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from analyzers.rundir import RequestRecord
from dsv4bench.engine.engine import Engine
from dsv4bench.engine.requests import Request, RequestHandle
from dsv4bench.load.requests import LoadRequest, Phase


class EngineTarget:
    """A `Target` that is an engine in this process.

    `make_request` makes the engine's request of one of the load, and `make_record` the record of what became of it.
    """

    def __init__(
        self,
        engine: Engine,
        make_request: Callable[[LoadRequest], Request],
        make_record: Callable[[RequestHandle, LoadRequest, int | None, Phase], RequestRecord],
        *,
        timeout_s: float | None = None,
    ) -> None:
        self._engine = engine
        self._make_request = make_request
        self._make_record = make_record
        self._timeout_s = timeout_s

    async def send(self, request: LoadRequest, planned_ns: int | None, phase: Phase) -> RequestRecord:
        """See `Target.send`. The engine publishes tokens with their times; nothing here runs for each of them."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def listener(handle: RequestHandle) -> None:
            if handle.finish_reason is not None:
                loop.call_soon_threadsafe(ended.set)

        handle = self._engine.submit(self._make_request(request), listener)
        try:
            async with asyncio.timeout(self._timeout_s):
                await ended.wait()
        except (TimeoutError, asyncio.CancelledError):
            self._engine.cancel(request.request_id)
        return self._make_record(handle, request, planned_ns, phase)
