"""From the engine's threads to asyncio: requests in, published tokens out, one wake-up of the loop for all of a step."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from dsv4bench.engine.engine import EngineProgress
from dsv4bench.engine.requests import Request, RequestHandle


class ServedWorker(Protocol):
    """What serving uses of the engine's worker."""

    tracing: bool
    device_phases: bool
    rank_pids: dict[int, int]

    @property
    def failure(self) -> BaseException | None:
        """What made it fail, if anything did."""
        ...


class ServedEngine(Protocol):
    """What serving uses of an engine; `dsv4bench.engine.engine.Engine` is one."""

    @property
    def worker(self) -> ServedWorker:
        """The worker of the current life."""
        ...

    @property
    def failure(self) -> BaseException | None:
        """What made the engine stop, if anything did."""
        ...

    def submit(
        self, request: Request, listener: Callable[[RequestHandle], None] | None = None
    ) -> RequestHandle:
        """Queue a request; `listener` is told in the engine's thread what becomes of it."""
        ...

    def cancel(self, request_id: str) -> None:
        """End a request early."""
        ...

    def progress(self) -> EngineProgress:
        """Counts so far."""
        ...

    def settle(self) -> None:
        """Wait until nothing is in flight."""
        ...

    def close(self, *, abort: bool = False) -> None:
        """End the engine."""
        ...


@dataclass(frozen=True)
class Published:
    """Tokens that a step published, when it did (ns of CLOCK_MONOTONIC), and whether they were the last ones."""

    token_ids: list[int]
    time_ns: int | None
    last: bool


class TokenStream:
    """What an engine publishes of one request, step by step. Belongs to the loop's thread."""

    def __init__(self, handle: RequestHandle) -> None:
        self.handle = handle
        self.abandoned = False
        self._changed = asyncio.Event()
        self._seen = 0

    def wake(self) -> None:
        """Something was published, or the request has ended."""
        self._changed.set()

    def abandon(self) -> None:
        """The client has left: `steps` ends."""
        self.abandoned = True
        self._changed.set()

    async def steps(self) -> AsyncIterator[list[Published]]:
        """Every publication once, as many at a time as there are; the last has `last` set, and tokens if any are left."""
        while not self.abandoned:
            # In this order: what ended has published everything before.
            ended = self.handle.finish_reason is not None
            steps = self._new_steps()
            published = [
                Published(token_ids, time_ns, last=ended and index == len(steps) - 1)
                for index, (token_ids, time_ns) in enumerate(steps)
            ]
            if ended:
                yield published or [Published([], None, last=True)]
                return
            if published:
                yield published
            await self._changed.wait()
            self._changed.clear()

    def _new_steps(self) -> list[tuple[list[int], int]]:
        """What was published since, by step: tokens of one share their time."""
        times = self.handle.token_times_ns
        available = len(times)
        steps: list[tuple[list[int], int]] = []
        while self._seen < available:
            start, time_ns = self._seen, times[self._seen]
            while self._seen < available and times[self._seen] == time_ns:
                self._seen += 1
            steps.append((self.handle.token_ids[start : self._seen], time_ns))
        return steps


class EngineBridge:
    """Puts requests to an engine and wakes their streams. All methods are called in the loop's thread."""

    def __init__(self, engine: ServedEngine, loop: asyncio.AbstractEventLoop) -> None:
        self.engine = engine
        self._loop = loop
        self._streams: dict[str, TokenStream] = {}
        self._published: deque[RequestHandle] = deque()
        self._woken = False

    @property
    def streams(self) -> Mapping[str, TokenStream]:
        """The requests that are being answered, by id."""
        return self._streams

    def submit(self, request: Request) -> TokenStream:
        """Put a request to the engine; `release` is called when its answer has ended.

        Raises:
            UsageError: the request cannot fit the engine.
            EngineError: the engine is closed or has failed.
        """
        stream = TokenStream(self.engine.submit(request, self._on_published))
        self._streams[request.request_id] = stream
        return stream

    def release(self, request_id: str) -> None:
        """The answer has ended; a request that has not is cancelled."""
        stream = self._streams.pop(request_id)
        if stream.handle.finish_reason is None:
            self.engine.cancel(request_id)

    def _on_published(self, handle: RequestHandle) -> None:
        """In the engine's thread, once or twice a request and step: the first of them wakes the loop."""
        self._published.append(handle)
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        # The flag falls first: what is published from now on wakes the loop again.
        self._woken = False
        while self._published:
            stream = self._streams.get(self._published.popleft().request.request_id)
            if stream is not None:
                stream.wake()
