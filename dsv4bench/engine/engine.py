"""The asynchronous decode engine: requests in, tokens out, up to two steps in flight."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from dsv4bench.cache.layout import CacheGroup, CacheLayout
from dsv4bench.engine.lanes import Lanes
from dsv4bench.engine.requests import Request, RequestHandle
from dsv4bench.engine.runner import ModelRunner
from dsv4bench.engine.sampling import check_sampling
from dsv4bench.engine.scheduler import Scheduler, reachable_headroom
from dsv4bench.engine.steps import DecodeStep, Outcome, Step
from dsv4bench.errors import EngineError, UsageError
from dsv4bench.model.config import ModelConfig
from dsv4bench.tracing.recorder import NullRecorder, Recorder
from dsv4bench.worker.program_specs import MAX_SPECULATIVE_TOKENS, SETUP, ProgramsSetup, program_specs
from dsv4bench.worker.task_args import PREFILL_TILE
from dsv4bench.worker.torch_worker import TorchWorker, WorkerOptions

_FLOAT_BYTES = 4


@dataclass(frozen=True)
class EngineOptions:
    """How to run the engine. Lengths in tokens, times in seconds; `depth` is how many steps may be in flight."""

    config: ModelConfig
    checkpoint: Path
    ranks: int = 8
    requests_per_rank: int = 4
    depth: int = 2
    speculative_tokens: int = 1
    max_model_len: int = 512
    prefill_tokens: int = 1024
    exchange: Literal["shared-memory", "torch-distributed"] = "shared-memory"
    dispatch_timeout_s: float = 60.0
    rank_logs: tuple[Path, ...] = ()
    server_log: Path | None = None


@dataclass(frozen=True)
class EngineProgress:
    """Counts since the engine started; a consistent enough view for a display."""

    tokens: int
    decode_steps: int
    accepted: int
    proposed: int


class _Close:
    """Engine event: end. `abort` drops what waits and what is running; otherwise it is completed first."""

    def __init__(self, *, abort: bool) -> None:
        self.abort = abort


@dataclass(frozen=True)
class _Cancel:
    request_id: str


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
            options.config, options.max_model_len + reachable_headroom(options.speculative_tokens)
        )
        self.worker = TorchWorker(_worker_options(options, self.layout))
        try:
            self._runner = ModelRunner(
                self.worker,
                options.config,
                self.layout,
                self._recorder,
                requests_per_rank=options.requests_per_rank,
                prefill_tokens=options.prefill_tokens,
                speculative_tokens=options.speculative_tokens,
            )
        except BaseException:
            self.worker.close()
            raise
        self._scheduler = Scheduler(
            self.layout,
            options.ranks,
            options.requests_per_rank,
            options.prefill_tokens,
            options.speculative_tokens,
            options.config.eos_token_id,
        )
        self._events: queue.SimpleQueue[RequestHandle | Outcome | _Cancel | _Close] = queue.SimpleQueue()
        self._submitting = threading.Lock()
        self._closed = False
        self._failure: BaseException | None = None
        self._tokens = self._decode_steps = self._accepted = self._proposed = 0
        self._lanes = Lanes(self._runner, self._recorder, self._events.put)
        self._thread = threading.Thread(target=self._serve, name="engine lane", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> RequestHandle:
        """Queue a request and return at once.

        Raises:
            UsageError: the request cannot fit the engine.
            EngineError: the engine is closed or has failed.
        """
        self._check(request)
        handle = RequestHandle(request, time.perf_counter_ns())
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
    def failure(self) -> BaseException | None:
        """What made the engine stop, if anything did."""
        return self._failure

    def progress(self) -> EngineProgress:
        """Counts so far."""
        return EngineProgress(self._tokens, self._decode_steps, self._accepted, self._proposed)

    def close(self, *, abort: bool = False) -> None:
        """End the engine: complete what was submitted, or drop it (`abort`). Steps in flight are drained. Idempotent."""
        with self._submitting:
            self._closed = True
        self._events.put(_Close(abort=abort))
        self._thread.join()
        self._lanes.close()
        self.worker.close()

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
        for token in prompt:
            if not 0 <= token < vocab:
                raise UsageError(f"request {name}: prompt token {token} is not in 0..{vocab - 1}")

    # The engine's thread

    def _serve(self) -> None:
        recorder = self._recorder
        recorder.name_thread("engine")
        in_flight: list[Step] = []
        closing = False
        while True:
            while self._failure is None and len(in_flight) < self.options.depth:
                with recorder.span("scheduler.schedule", "scheduler") as span:
                    step = self._scheduler.schedule()
                    if isinstance(step, DecodeStep):
                        span.args["step_id"] = step.step_id
                if step is None:
                    break
                with recorder.span("scheduler.queue_worker_step", "scheduler", **_step_args(step)):
                    self._lanes.put(step)
                in_flight.append(step)
            if closing and not in_flight and self._scheduler.idle:
                return
            if in_flight:
                with recorder.span("scheduler.wait_worker_output", "scheduler", **_step_args(in_flight[0])):
                    event = self._events.get()
            else:
                event = self._events.get()
            if isinstance(event, Outcome):
                in_flight.pop(0)
                self._process(event)
            elif isinstance(event, RequestHandle):
                self._accept(event)
            elif isinstance(event, _Cancel):
                self._scheduler.cancel(event.request_id)
            else:
                closing = True
                if event.abort:
                    self._scheduler.end_all("cancelled")

    def _accept(self, handle: RequestHandle) -> None:
        if self._failure is not None:
            handle.finish("error", self._failure)
        else:
            self._scheduler.add(handle)

    def _process(self, outcome: Outcome) -> None:
        if outcome.error is None:
            with self._recorder.span(
                "scheduler.process_step_output", "scheduler", **_step_args(outcome.step)
            ):
                try:
                    self._scheduler.process(outcome, time.perf_counter_ns())
                    self._count(outcome)
                except EngineError as error:
                    self._fail(error)
            return
        self._scheduler.abandon(outcome.step)
        self._fail(_naming_step(outcome.step, outcome.error))

    def _fail(self, error: BaseException) -> None:
        with self._submitting:
            self._failure = self._failure or error
        self._scheduler.end_all("error", self._failure)

    def _count(self, outcome: Outcome) -> None:
        if not isinstance(outcome.step, DecodeStep):
            self._tokens += sum(chunk.terminal for chunks in outcome.step.chunks for chunk in chunks)
            return
        assert outcome.output is not None
        self._decode_steps += 1
        for rank, requests in enumerate(outcome.step.requests):
            committed = int(outcome.output.accepted_counts[rank, : len(requests)].sum())  # type: ignore[union-attr]
            self._tokens += committed
            self._accepted += committed - len(requests)
            self._proposed += len(requests) * self.options.speculative_tokens


def check_options(options: EngineOptions) -> None:
    """Refuse what cannot run, before anything is started.

    Raises:
        UsageError: names the option, its value and what is possible.
    """
    experts = options.config.n_routed_experts
    if options.ranks < 1 or experts % options.ranks:
        possible = [ranks for ranks in range(1, experts + 1) if experts % ranks == 0]
        raise UsageError(
            f"{options.ranks} ranks cannot share {experts} experts evenly; possible numbers of ranks: "
            f"{', '.join(map(str, possible))}"
        )
    if options.depth not in (1, 2):
        raise UsageError(f"depth must be 1 or 2, got {options.depth}")
    if not 0 <= options.speculative_tokens <= MAX_SPECULATIVE_TOKENS:
        raise UsageError(
            f"the number of speculative tokens must be 0..{MAX_SPECULATIVE_TOKENS}, got {options.speculative_tokens}"
        )
    longest = options.config.max_position_embeddings - reachable_headroom(options.speculative_tokens)
    if not 2 <= options.max_model_len <= longest:
        raise UsageError(
            f"max_model_len must be 2..{longest} for this model (its {options.config.max_position_embeddings} positions "
            f"less what speculation may reach beyond a request), got {options.max_model_len}"
        )
    rows = options.requests_per_rank * (options.speculative_tokens + 1)
    if not 1 <= rows <= PREFILL_TILE:
        raise UsageError(
            f"requests_per_rank {options.requests_per_rank} makes a step of {rows} rows a rank; 1..{PREFILL_TILE} fit"
        )


def _worker_options(options: EngineOptions, layout: CacheLayout) -> WorkerOptions:
    setup = ProgramsSetup(options.config, str(options.checkpoint))
    return WorkerOptions(
        ranks=options.ranks,
        setup=SETUP,
        setup_argument=msgspec.msgpack.encode(setup),
        programs=program_specs(options.config),
        exchange=options.exchange,
        host_bytes=_host_bytes(options, layout),
        device_bytes=_device_bytes(options, layout),
        exchange_bytes=_exchange_bytes(options),
        dispatch_timeout_s=options.dispatch_timeout_s,
        rank_logs=options.rank_logs,
        server_log=options.server_log,
    )


# The regions are sparse: a generous size costs nothing until it is used.


def _host_bytes(options: EngineOptions, layout: CacheLayout) -> int:
    tables = sum(group.table_width for group in layout.groups)
    row = 8 * (tables + 64) * options.requests_per_rank + 24 * options.prefill_tokens
    mtp_rows = 24 * options.requests_per_rank * PREFILL_TILE
    return 4 * options.ranks * (row + mtp_rows) + (16 << 20)


def _device_bytes(options: EngineOptions, layout: CacheLayout) -> int:
    pools = 0
    for group in layout.groups:
        pages = group.blocks_for(layout.max_model_len) * options.requests_per_rank
        layers, _, rows, width = group.pool_shape(pages)
        if group.group is CacheGroup.ORI:
            layers += layout.mtp_layers
        pools += layers * pages * rows * width * _FLOAT_BYTES
    streams = options.config.hc_mult * options.config.hidden_size * _FLOAT_BYTES
    state = options.requests_per_rank * ((PREFILL_TILE + 1) * streams + 8 * layout.max_model_len)
    return _round_to_page(2 * (pools + state) + (16 << 20))


def _exchange_bytes(options: EngineOptions) -> int:
    """Two areas a rank, each large enough for the rows that all ranks' tiles can send to one rank."""
    config = options.config
    rows = options.ranks * PREFILL_TILE * config.num_experts_per_tok
    area = rows * (config.hidden_size + 8) * _FLOAT_BYTES + 4096
    return _round_to_page(2 * options.ranks * area + 4096)


def _round_to_page(nbytes: int) -> int:
    return -(-nbytes // 4096) * 4096


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
