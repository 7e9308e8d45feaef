"""What the endpoints share: the engine behind its bridge, limits, counts, and what is said of requests that ended."""

from __future__ import annotations

import asyncio
import heapq
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from analyzers.rundir import RankProcess
from dsv4bench.engine.requests import Request, RequestHandle
from dsv4bench.errors import EngineError, UsageError
from dsv4bench.load.engine_target import SentRequest
from dsv4bench.load.requests import LoadRequest, Prompt
from dsv4bench.run.outputs import record_of, request_lines
from dsv4bench.serving.bridge import EngineBridge, TokenStream
from dsv4bench.serving.errors import ApiError
from dsv4bench.serving.generation import Generation, PromptReader
from dsv4bench.serving.lifecycle import Lifecycle
from dsv4bench.serving.limits import Admission
from dsv4bench.serving.metrics import EngineState, ServerMetrics
from dsv4bench.serving.profiling import ProfileControl
from dsv4bench.tracing.append import write_lines
from dsv4bench.tracing.recorder import NullRecorder, Recorder

_STDERR = 2
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServiceOptions:
    """What a server answers, and to whom. `most_requests` may be answered at once; sizes in bytes."""

    model: str
    created_s: int
    api_key: str | None
    most_requests: int
    most_body_bytes: int
    speculative_tokens: int
    prefix_reuse: bool
    max_model_len: int


@dataclass
class EngineFacts:
    """What is known of the engine once it is up."""

    bridge: EngineBridge
    profile: ProfileControl
    program_cache: dict[str, int] = field(default_factory=dict)


class Service:
    """One server's state, of the loop's thread alone. `engine` is None until the engine is up."""

    def __init__(
        self, options: ServiceOptions, prompts: PromptReader, recorder: Recorder | None, *, profiled: bool
    ) -> None:
        """`profiled` says whether /start_profile and /stop_profile exist."""
        self.options = options
        self.prompts = prompts
        self.recorder = recorder or NullRecorder()
        self.profiled = profiled
        self.lifecycle = Lifecycle()
        self.admission = Admission(options.most_requests)
        self.metrics = ServerMetrics(options.model, self._engine_state)
        self.engine: EngineFacts | None = None
        self._free_lanes: list[int] = []
        self._lanes = 0

    async def submit(self, generation: Generation, request_id: str) -> TokenStream:
        """Put a valid request to the engine.

        Raises:
            ApiError: 400 for what cannot fit the engine, 409 for an id that is in use, 503 without an engine.
        """
        prompt = generation.prompt
        if self.prompts.is_long(prompt):
            token_ids = await asyncio.to_thread(self.prompts.read, prompt)
        else:
            token_ids = self.prompts.read(prompt)
        max_tokens = self.prompts.max_tokens(generation, len(token_ids))
        # The engine may have gone while the prompt was read.
        self.lifecycle.check_ready()
        assert self.engine is not None
        bridge = self.engine.bridge
        if request_id in bridge.streams:
            raise ApiError(409, f"a request with the id {request_id} is being answered", "X-Request-Id")
        request = Request(request_id, token_ids, max_tokens, generation.ignore_eos, generation.sampling)
        try:
            stream = bridge.submit(request)
        except UsageError as error:
            raise ApiError(400, str(error)) from error
        except EngineError as error:
            raise ApiError(503, str(error)) from error
        self.metrics.observe_prompt(len(token_ids))
        return stream

    def cancel_all(self) -> None:
        """End all requests; their answers say why."""
        if self.engine is not None:
            for request_id in self.engine.bridge.streams:
                self.engine.bridge.engine.cancel(request_id)

    def take_lane(self) -> int:
        """A lane of the trace for one request: spans of requests on one lane never overlap."""
        if self._free_lanes:
            return heapq.heappop(self._free_lanes)
        self._lanes += 1
        self.recorder.name_thread(f"http {self._lanes}", lane=self._lanes)
        return self._lanes

    def give_lane(self, lane: int) -> None:
        """The lane's request has been answered."""
        heapq.heappush(self._free_lanes, lane)

    def log_end(self, handle: RequestHandle, token_ids: Sequence[int], finish_reason: str) -> None:
        """Say of a request what upstream's server says; `finish_reason` is that of its answer."""
        request = handle.request
        if finish_reason not in ("length", "stop"):
            _log.info("request %s %s: %d tokens sent", request.request_id, finish_reason, len(token_ids))
            return
        prompt = Prompt(tuple(request.prompt_token_ids), None)
        asked = LoadRequest(request.request_id, prompt, request.max_tokens)
        record = record_of(SentRequest(asked, handle, None, "measured"), self.options.prefix_reuse)
        sent = msgspec.structs.replace(
            record,
            finish_reason=finish_reason,
            output_token_ids=list(token_ids),
            token_times_ns=handle.token_times_ns[: len(token_ids)],
        )
        write_lines(_STDERR, "".join(request_lines(sent)).encode())

    def device_map(self) -> list[RankProcess]:
        """The ranks, with their processes and devices."""
        if self.engine is None:
            return []
        pids = self.engine.bridge.engine.worker.rank_pids
        return [RankProcess(rank, pid, f"cpu:{rank}") for rank, pid in sorted(pids.items())]

    def process_facts(self) -> dict[str, object]:
        """What /metrics/json says beside upstream's figures."""
        engine = self.engine
        return {
            "status": self.lifecycle.phase,
            "pid": os.getpid(),
            "program_cache": engine.program_cache if engine else {},
            "engine": msgspec.to_builtins(engine.bridge.engine.progress()) if engine else {},
            "device_map": msgspec.to_builtins(self.device_map()),
        }

    def _engine_state(self) -> EngineState | None:
        if self.engine is None:
            return None
        bridge = self.engine.bridge
        handles = [stream.handle for stream in bridge.streams.values()]
        running = sum(handle.rank is not None for handle in handles)
        return EngineState(
            bridge.engine.progress(),
            running,
            len(handles) - running,
            self.options.speculative_tokens,
            self.options.prefix_reuse,
        )
