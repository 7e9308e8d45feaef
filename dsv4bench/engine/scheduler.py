"""Decides what runs next: continuous batching over data-parallel ranks, prefill and decode in separate steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from dsv4bench.cache.allocator import BlockAllocator
from dsv4bench.cache.layout import CacheLayout
from dsv4bench.engine.requests import ActiveRequest, FinishReason, RequestHandle
from dsv4bench.engine.state_slots import StateSlots
from dsv4bench.engine.steps import (
    DecodeOutput,
    DecodeStep,
    Outcome,
    PrefillChunk,
    PrefillOutput,
    PrefillStep,
    Step,
)
from dsv4bench.errors import EngineError


class Scheduler:
    """Places requests on ranks and forms steps. Called by the engine's thread alone.

    A request is admitted to the rank with the fewest requests, when that rank has a state slot for it and pages for
    its whole length. Waiting requests are prefilled before the next decode step; a request joins decode steps once
    its terminal prefill was processed. Pages and state slot are released when the request has ended and no pending
    step refers to them.
    """

    def __init__(
        self,
        layout: CacheLayout,
        ranks: int,
        requests_per_rank: int,
        prefill_tokens: int,
        speculative_tokens: int,
        eos_token_id: int,
    ) -> None:
        pages = [group.blocks_for(layout.max_model_len) * requests_per_rank for group in layout.groups]
        self._allocators = [BlockAllocator(layout, pages) for _ in range(ranks)]
        self._state_slots = [StateSlots(requests_per_rank) for _ in range(ranks)]
        self._prefill_tokens = prefill_tokens
        self._speculative_tokens = speculative_tokens
        self._eos = eos_token_id
        self._waiting: deque[RequestHandle] = deque()
        self._active: list[list[ActiveRequest]] = [[] for _ in range(ranks)]
        self._next_step = 0
        self._next_prefill = 0

    @property
    def idle(self) -> bool:
        """Whether no request waits or holds anything."""
        return not self._waiting and not any(self._active)

    def add(self, handle: RequestHandle) -> None:
        """Queue a request."""
        self._waiting.append(handle)

    def headroom(self) -> int:
        """Positions beyond prompt and output that a request can reach: see `reachable_headroom`."""
        return reachable_headroom(self._speculative_tokens)

    def schedule(self) -> Step | None:
        """The next step, or None when nothing can run now."""
        self._admit()
        return self._prefill_step() or self._decode_step()

    def process(self, outcome: Outcome, now_ns: int) -> None:
        """Publish the tokens of a successful step and release what nobody refers to any more."""
        if isinstance(outcome.step, DecodeStep):
            assert isinstance(outcome.output, DecodeOutput)
            for rank, requests in enumerate(outcome.step.requests):
                for row, request in enumerate(requests):
                    request.pending_steps -= 1
                    if not request.finished:
                        committed = int(outcome.output.accepted_counts[rank, row])
                        tokens = outcome.output.sampled_ids[rank, row, :committed].tolist()
                        self._take_decoded(request, tokens, now_ns)
        else:
            assert isinstance(outcome.output, PrefillOutput)
            for rank, chunks in enumerate(outcome.step.chunks):
                for row, chunk in enumerate(chunks):
                    chunk.request.pending_steps -= 1
                    if chunk.terminal and not chunk.request.finished:
                        chunk.request.decoding = True
                        self._publish(chunk.request, [int(outcome.output.sampled_ids[rank, row])], now_ns)
        self._release()

    def abandon(self, step: Step) -> None:
        """A step failed or was never run: it no longer refers to its requests."""
        if isinstance(step, DecodeStep):
            requests = [request for of_rank in step.requests for request in of_rank]
        else:
            requests = [chunk.request for of_rank in step.chunks for chunk in of_rank]
        for request in requests:
            request.pending_steps -= 1
        self._release()

    def end_all(self, reason: FinishReason, error: BaseException | None = None) -> None:
        """End every request that has not ended; what it published stays."""
        while self._waiting:
            self._waiting.popleft().finish(reason, error)
        for requests in self._active:
            for request in requests:
                request.handle.finish(reason, error)
        self._release()

    def cancel(self, request_id: str) -> None:
        """End one request; steps in flight drop its tokens."""
        for handle in [handle for handle in self._waiting if handle.request.request_id == request_id]:
            self._waiting.remove(handle)
            handle.finish("cancelled")
        for requests in self._active:
            for request in requests:
                if request.request.request_id == request_id:
                    request.handle.finish("cancelled")
        self._release()

    def _admit(self) -> None:
        while self._waiting:
            handle = self._waiting[0]
            rank = min(range(len(self._active)), key=lambda rank: len(self._active[rank]))
            if not self._state_slots[rank].available:
                return
            request = handle.request
            length = len(request.prompt_token_ids) + request.max_tokens + self.headroom()
            blocks = self._allocators[rank].allocate(length)
            if blocks is None:
                return
            self._waiting.popleft()
            slot, generation = self._state_slots[rank].allocate()
            handle.rank = rank
            self._active[rank].append(
                ActiveRequest(handle, rank, slot, generation, blocks, request.prompt_token_ids)
            )

    def _prefill_step(self) -> PrefillStep | None:
        chunks: list[tuple[PrefillChunk, ...]] = []
        for requests in self._active:
            budget = self._prefill_tokens
            of_rank: list[PrefillChunk] = []
            for request in requests:
                left = len(request.prompt_token_ids) - request.prefilled
                count = min(left, budget)
                if count > 0 and not request.finished:
                    of_rank.append(PrefillChunk(request, request.prefilled, count))
                    request.prefilled += count
                    request.pending_steps += 1
                    budget -= count
            chunks.append(tuple(of_rank))
        if not any(chunks):
            return None
        self._next_prefill += 1
        return PrefillStep(self._next_prefill - 1, tuple(chunks))

    def _decode_step(self) -> DecodeStep | None:
        rows = tuple(
            tuple(request for request in requests if request.decoding and not request.finished)
            for requests in self._active
        )
        if not any(rows):
            return None
        for of_rank in rows:
            for request in of_rank:
                request.pending_steps += 1
        self._next_step += 1
        return DecodeStep(self._next_step - 1, rows)

    def _take_decoded(self, request: ActiveRequest, tokens: Sequence[int], now_ns: int) -> None:
        handle = request.handle
        if not tokens:
            raise EngineError(
                f"a step left request {handle.request.request_id} alone: state slot {request.state_slot} of rank "
                f"{request.rank} no longer holds generation {request.generation}"
            )
        handle.steps += 1
        handle.proposed += self._speculative_tokens
        handle.accepted += len(tokens) - 1
        handle.discarded += len(tokens) - self._publish(request, tokens, now_ns)

    def _publish(self, request: ActiveRequest, tokens: Sequence[int], now_ns: int) -> int:
        """Publish up to the request's end; returns how many tokens were kept."""
        handle, wanted = request.handle, request.request
        kept = list(tokens[: wanted.max_tokens - len(handle.token_ids)])
        stopped = False
        if not wanted.ignore_eos and self._eos in kept:
            kept = kept[: kept.index(self._eos) + 1]
            stopped = True
        handle.publish(kept, now_ns)
        if stopped:
            handle.finish("stop")
        elif len(handle.token_ids) >= wanted.max_tokens:
            handle.finish("length")
        return len(kept)

    def _release(self) -> None:
        for rank, requests in enumerate(self._active):
            kept = []
            for request in requests:
                if request.finished and request.pending_steps == 0:
                    self._allocators[rank].release(request.blocks)
                    self._state_slots[rank].release(request.state_slot)
                else:
                    kept.append(request)
            self._active[rank] = kept


def reachable_headroom(speculative_tokens: int) -> int:
    """Positions that a request can reach beyond prompt + max_tokens.

    The step that ends a request may commit K tokens too many, and the step behind it, already in flight, goes K + 1
    positions further and looks up a draft one position beyond its own.
    """
    return 3 * speculative_tokens + 3
