"""The asynchronous decode engine: requests in, tokens out, up to two steps in flight."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dsv4bench.cache.layout import CacheLayout
from dsv4bench.engine.life import EngineLife, pages_of
from dsv4bench.engine.options import EngineOptions, check_options
from dsv4bench.engine.reach import reachable_headroom
from dsv4bench.engine.requests import Request, RequestHandle
from dsv4bench.engine.sampling import check_sampling
from dsv4bench.engine.scheduler import Scheduler
from dsv4bench.engine.steps import DecodeStep, Outcome, Step
from dsv4bench.errors import EngineError, UsageError
from dsv4bench.tracing.recorder import NullRecorder, Recorder
from dsv4bench.worker.program_cache import ProgramCache
from dsv4bench.worker.torch_worker import TorchWorker

__all__ = ["Engine", "EngineOptions", "EngineProgress", "check_options"]

_LIFE_CHECK_S = 0.1
"""How often whoever waits for the engine's thread looks whether it still lives."""


@dataclass(frozen=True)
class EngineProgress:
    """Counts since the engine started; a consistent enough view for a display.

    `prefix_hits` and `cached_tokens`: starts of requests behind a cached prefix, and the positions not prefilled so.
    """

    tokens: int
    decode_steps: int
    accepted: int
    proposed: int
    restarts: int
    prefix_hits: int = 0
    cached_tokens: int = 0


class _Close:
    """Engine event: end. `abort` drops what waits and what is running; otherwise it is completed first."""

    def __init__(self, *, abort: bool) -> None:
        self.abort = abort


class _Settle:
    """Engine event: say when nothing is in flight and no request waits or runs."""

    def __init__(self) -> None:
        self.settled = threading.Event()


@dataclass(frozen=True)
class _Cancel:
    """Engine event: end a request early."""

    request_id: str


_Event = RequestHandle | Outcome | _Cancel | _Settle | _Close


class Engine:
    """The facade. Thread-safe: any thread may submit, cancel and wait."""

    def __init__(self, options: EngineOptions, recorder: Recorder | None = None) -> None:
        """Start the ranks and the lanes; returns when every rank is ready.

        Raises:
            UsageError: options that the model cannot be run with.
            RankError: a rank did not start.
        """
        check_options(options)
        self.options = options
        self._recorder = recorder or NullRecorder()
        self.layout = CacheLayout.derive(
            options.config, options.max_model_len + reachable_headroom(options.mtp)
        )
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._submitting = threading.Lock()
        self._closed = False
        self._failure: BaseException | None = None
        self._decode_steps = self._restarts = 0
        # Of the engine's thread alone: the steps in flight, what went wrong with one, who waits for the last one's end,
        # and whether the engine ends with it.
        self._in_flight: deque[Step] = deque()
        self._trouble: BaseException | None = None
        self._settling: list[_Settle] = []
        self._closing = False
        self._scheduler = Scheduler(
            self.layout,
            options.ranks,
            options.requests_per_rank,
            options.prefill_tokens,
            options.mtp,
            options.config.eos_token_id,
            pages_of(options, self.layout),
            options.prefix_snapshots if options.prefix_reuse else 0,
        )
        self._life = EngineLife(options, self.layout, self._recorder, self._events.put)
        self._thread = threading.Thread(target=self._serve, name="engine lane", daemon=True)
        self._thread.start()

    def submit(
        self, request: Request, listener: Callable[[RequestHandle], None] | None = None
    ) -> RequestHandle:
        """Queue a request and return at once; `listener` is told what becomes of it, see `RequestHandle`.

        Raises:
            UsageError: the request cannot fit the engine.
            EngineError: the engine is closed or has failed.
        """
        name = request.request_id
        with self._recorder.span(
            "ReplicaEngineCore.add_request", "serving", request_id=name, max_new_tokens=request.max_tokens
        ):
            self._check(request)
            handle = RequestHandle(request, time.perf_counter_ns(), listener)
            with self._submitting:
                if self._failure is not None:
                    raise EngineError(f"the engine has failed: {self._failure}") from self._failure
                if self._closed:
                    raise EngineError("the engine is closed")
                self._events.put(handle)
        return handle

    def cancel(self, request_id: str) -> None:
        """End a request early; it keeps the tokens published so far. Unknown ids are ignored: it may have ended."""
        self._events.put(_Cancel(request_id))

    @property
    def worker(self) -> TorchWorker:
        """The worker of the current life; another one after a restart."""
        return self._life.worker

    @property
    def program_cache(self) -> ProgramCache:
        """Hits and misses of the current life's start."""
        return self._life.program_cache

    @property
    def failure(self) -> BaseException | None:
        """What made the engine stop, if anything did."""
        return self._failure

    def progress(self) -> EngineProgress:
        """Counts so far."""
        counts = self._scheduler.counts
        return EngineProgress(
            counts.tokens,
            self._decode_steps,
            counts.accepted,
            counts.proposed,
            self._restarts,
            counts.prefix_hits,
            counts.cached_tokens,
        )

    def settle(self) -> None:
        """Wait until no request waits or runs and every step is out, those behind the last finished request included."""
        request = _Settle()
        self._events.put(request)
        while self._thread.is_alive() and not request.settled.wait(_LIFE_CHECK_S):
            pass

    def close(self, *, abort: bool = False) -> None:
        """End the engine: complete what was submitted, or drop it (`abort`). Steps in flight are drained. Idempotent."""
        with self._submitting:
            self._closed = True
        self._events.put(_Close(abort=abort))
        self._thread.join()
        self._life.close()

    def _check(self, request: Request) -> None:
        vocab, name = self.options.config.vocab_size, request.request_id
        prompt = request.prompt_token_ids
        if not len(prompt):
            raise UsageError(f"request {name}: the prompt is empty")
        if request.max_tokens < 1:
            raise UsageError(f"request {name}: max_tokens must be at least 1, got {request.max_tokens}")
        if len(prompt) + request.max_tokens > self.options.max_model_len:
            raise UsageError(
                f"request {name}: {len(prompt)} prompt tokens and {request.max_tokens} output tokens exceed "
                f"max_model_len {self.options.max_model_len}"
            )
        check_sampling(name, request.sampling)
        self._scheduler.check(request)
        for token in prompt:
            if not 0 <= token < vocab:
                raise UsageError(f"request {name}: prompt token {token} is not in 0..{vocab - 1}")

    # The engine's thread

    def _serve(self) -> None:
        self._recorder.name_thread("engine")
        while True:
            if self._trouble is not None and not self._in_flight:
                # Every step behind the failed one has come out: the late results are drained.
                self._recover(self._trouble)
                self._trouble = None
            self._queue_steps()
            if not self._in_flight and self._scheduler.idle:
                for request in self._settling:
                    request.settled.set()
                self._settling.clear()
                if self._closing:
                    return
            self._handle(self._next_event())

    def _queue_steps(self) -> None:
        """Give the worker steps up to the depth, as long as there are any and nothing is wrong."""
        while self._trouble is None and self._failure is None and len(self._in_flight) < self.options.depth:
            with self._recorder.span("scheduler.schedule", "scheduler") as span:
                step = self._scheduler.schedule()
                if isinstance(step, DecodeStep):
                    span.args["step_id"] = step.step_id
            if step is None:
                return
            with self._recorder.span("scheduler.queue_worker_step", "scheduler", **_step_args(step)):
                self._life.lanes.put(step)
            self._in_flight.append(step)

    def _next_event(self) -> _Event:
        """Wait for what happens next: with a step in flight, that is the wait for its output."""
        if not self._in_flight:
            return self._events.get()
        with self._recorder.span(
            "scheduler.wait_worker_output", "scheduler", **_step_args(self._in_flight[0])
        ):
            return self._events.get()

    def _handle(self, event: _Event) -> None:
        match event:
            case Outcome():
                self._in_flight.popleft()
                self._trouble = self._process(event) or self._trouble
            case RequestHandle():
                self._accept(event)
            case _Cancel():
                self._scheduler.cancel(event.request_id)
            case _Settle():
                self._settling.append(event)
            case _Close():
                self._closing = True
                if event.abort:
                    self._scheduler.end_all("cancelled")

    def _accept(self, handle: RequestHandle) -> None:
        if self._failure is not None:
            handle.finish("error", self._failure)
        else:
            self._scheduler.add(handle)

    def _process(self, outcome: Outcome) -> BaseException | None:
        """Take in what became of a step; returns what went wrong, if anything did."""
        if outcome.error is not None:
            self._scheduler.abandon(outcome.step)
            return _naming_step(outcome.step, outcome.error)
        with self._recorder.span("scheduler.process_step_output", "scheduler", **_step_args(outcome.step)):
            try:
                self._scheduler.process(outcome, time.perf_counter_ns())
                self._decode_steps += isinstance(outcome.step, DecodeStep)
            except EngineError as error:
                return _naming_step(outcome.step, error)
        return None

    def _recover(self, trouble: BaseException) -> None:
        """Begin another life with the requests that were running, as often as the options allow; else stop."""
        if self._closed or self._restarts >= self.options.max_restarts:
            self._stop(trouble)
            return
        self._restarts += 1
        before = self.worker
        try:
            self._life.close()
            self._scheduler.restart()
            self._life = EngineLife(self.options, self.layout, self._recorder, self._events.put)
        except EngineError as error:
            self._stop(error)
        else:
            self.worker.tracing, self.worker.device_phases = before.tracing, before.device_phases
            self.worker.faults = before.faults

    def _stop(self, error: BaseException) -> None:
        with self._submitting:
            self._failure = error
        self._scheduler.end_all("error", error)


def _naming_step(step: Step, error: BaseException) -> BaseException:
    """An engine's error with the step that it ended in front."""
    if not isinstance(error, EngineError):
        return error
    name = f"decode step {step.step_id}" if isinstance(step, DecodeStep) else f"prefill {step.prefill_id}"
    named = type(error)(f"{name}: {error}")
    named.__cause__ = error
    return named


def _step_args(step: Step) -> dict[str, Any]:
    return {"step_id": step.step_id} if isinstance(step, DecodeStep) else {"prefill_id": step.prefill_id}
