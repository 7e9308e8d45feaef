"""An engine without ranks: it publishes what a test tells it to, from a thread of its own, as the real one does."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dsv4bench.engine.engine import EngineProgress
from dsv4bench.engine.requests import Request, RequestHandle
from dsv4bench.errors import EngineError, UsageError

Script = Callable[[Request], Sequence[Sequence[int]]]


@dataclass
class FakeWorker:
    tracing: bool = True
    device_phases: bool = False
    rank_pids: dict[int, int] = field(default_factory=lambda: {0: 4711})
    failure: BaseException | None = None


def counting_up(request: Request) -> list[list[int]]:
    """Tokens 100, 101, ...: one by the prefill, then two a step."""
    tokens = list(range(100, 100 + request.max_tokens))
    return [tokens[:1], *(tokens[start : start + 2] for start in range(1, len(tokens), 2))]


class FakeEngine:
    """Gives each request the steps of `script`, one every `step_s`; with `held` it waits for `release`."""

    def __init__(self, script: Script = counting_up, *, step_s: float = 0.0, held: bool = False) -> None:
        self.worker = FakeWorker()
        self.failure: BaseException | None = None
        self.requests: list[Request] = []
        self.cancelled: list[str] = []
        self.settled = 0
        self.closed = False
        self._script = script
        self._step_s = step_s
        self._go = threading.Event()
        if not held:
            self._go.set()
        self._handles: dict[str, RequestHandle] = {}
        self._threads: list[threading.Thread] = []
        self._tokens = self._accepted = self._proposed = 0

    def submit(
        self, request: Request, listener: Callable[[RequestHandle], None] | None = None
    ) -> RequestHandle:
        if self.failure is not None:
            raise EngineError(f"the engine has failed: {self.failure}")
        if request.max_tokens == 13:
            raise UsageError("request: 13 tokens bring bad luck")
        handle = RequestHandle(request, time.perf_counter_ns(), listener)
        self.requests.append(request)
        self._handles[request.request_id] = handle
        self._threads.append(threading.Thread(target=self._run, args=(handle,), daemon=True))
        self._threads[-1].start()
        return handle

    def release(self) -> None:
        self._go.set()

    def cancel(self, request_id: str) -> None:
        self.cancelled.append(request_id)
        self._handles[request_id].finish("cancelled")

    def fail(self, error: BaseException) -> None:
        self.failure = error
        for handle in self._handles.values():
            handle.finish("error", error)

    def progress(self) -> EngineProgress:
        return EngineProgress(self._tokens, 0, self._accepted, self._proposed, 0)

    def settle(self) -> None:
        self.settled += 1

    def close(self, *, abort: bool = False) -> None:
        self.closed = True
        for handle in self._handles.values():
            handle.finish("cancelled")
        self._go.set()
        for thread in self._threads:
            thread.join()

    def _run(self, handle: RequestHandle) -> None:
        self._go.wait(30)
        handle.rank = 0
        for index, tokens in enumerate(self._script(handle.request)):
            time.sleep(self._step_s)
            if handle.finish_reason is not None:
                return
            if index:
                handle.steps += 1
                handle.proposed += 1
                handle.accepted += len(tokens) - 1
            else:
                handle.prefills += 1
            self._tokens += len(tokens)
            handle.publish(tokens, time.perf_counter_ns())
        handle.finish("length")
