"""Decides what runs next: continuous batching over data-parallel ranks, prefill and decode in separate steps."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from dsv4bench.cache.allocator import pages_for
from dsv4bench.cache.layout import CacheLayout
from dsv4bench.cache.prefix_index import Snapshot, prefix_keys
from dsv4bench.engine.reach import full_length, reachable_headroom
from dsv4bench.engine.requests import ActiveRequest, FinishReason, Request, RequestHandle
from dsv4bench.engine.seats import Seats
from dsv4bench.engine.steps import (
    DecodeOutput,
    DecodeStep,
    Outcome,
    PrefillChunk,
    PrefillOutput,
    PrefillStep,
    Step,
)
from dsv4bench.errors import EngineError, UsageError

__all__ = ["Scheduler", "reachable_headroom"]


@dataclass
class PublishedCounts:
    """Tokens published, and drafts of the steps that published them; over all requests.

    `prefix_hits` counts the starts behind a prefix that was cached, `cached_tokens` the positions in them.
    """

    tokens: int = 0
    accepted: int = 0
    proposed: int = 0
    prefix_hits: int = 0
    cached_tokens: int = 0


class Scheduler:
    """Places requests on ranks and forms steps. Called by the engine's thread alone, except for `check`.

    Requests are admitted in order of arrival, each to the rank with the fewest requests that has a state slot and the
    pages for its prompt and first step; with prefix reuse, first to the rank where most of its prompt is cached.
    Decoding requests grow before anybody is admitted: pages go to those who run. Where they run out, the latest
    arrival of the rank is preempted: it goes back to the front of the queue, and its next prefill also feeds what it
    has published. What was admitted is prefilled before the next decode step, and joins decode steps once its terminal
    prefill was processed. Pages and state slot are released when the request has ended or was preempted and no pending
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
        pages: Sequence[int] | None = None,
        prefix_snapshots: int = 0,
    ) -> None:
        """Schedule on `ranks` ranks, each with `pages` per cache group (default: nobody ever runs out).

        `prefill_tokens` is the most that a rank prefills in one step. `prefix_snapshots` is how many places in
        prefixes a rank keeps for reuse; 0 reuses nothing.
        """
        self._layout = layout
        self._pages = tuple(pages) if pages is not None else pages_for(layout, requests_per_rank)
        self._ranks = ranks
        self._requests_per_rank = requests_per_rank
        self._prefill_tokens = prefill_tokens
        self._speculative_tokens = speculative_tokens
        self._prefix_snapshots = prefix_snapshots
        self._seats = self._empty_seats()
        self._eos = eos_token_id
        self.counts = PublishedCounts()
        self._waiting: deque[RequestHandle] = deque()
        self._arrivals = 0
        self._next_step = 0
        self._next_prefill = 0

    @property
    def idle(self) -> bool:
        """Whether no request waits or holds anything."""
        return not self._waiting and not any(seats.holders for seats in self._seats)

    def check(self, request: Request) -> None:
        """Refuse a request that could not run even if it had a rank for itself. May be called by any thread.

        Raises:
            UsageError: it needs more positions than the layout has, or more pages than a rank has.
        """
        needed = self._layout.blocks_for(full_length(request, self._speculative_tokens))
        for group, count, pages in zip(self._layout.groups, needed, self._pages, strict=True):
            if count > pages:
                raise UsageError(
                    f"request {request.request_id}: {len(request.prompt_token_ids)} prompt tokens and "
                    f"{request.max_tokens} output tokens need {count} pages of group {group.group.name}; "
                    f"a rank has {pages}"
                )

    def add(self, handle: RequestHandle) -> None:
        """Queue a request.

        Raises:
            UsageError: see `check`.
        """
        self.check(handle.request)
        handle.arrival = self._arrivals
        self._arrivals += 1
        self._waiting.append(handle)

    def schedule(self) -> Step | None:
        """The next step, or None when nothing can run before a step in flight is back."""
        rows: list[tuple[ActiveRequest, ...]] = []
        roomy: list[Seats] = []
        preempted: list[ActiveRequest] = []
        for seats in self._seats:
            ready, victims = seats.reserve()
            rows.append(tuple(ready))
            preempted += victims
            if len(ready) == sum(request.decoding for request in seats.live):
                roomy.append(seats)
        self._requeue(preempted)
        # Whoever was preempted is first in the queue: it would take back at once what it just had to give.
        if not preempted:
            self._admit(roomy)
        return self._prefill_step() or self._decode_step(tuple(rows))

    def process(self, outcome: Outcome, now_ns: int) -> None:
        """Publish the tokens of a successful step and release what nobody refers to any more.

        Raises:
            EngineError: the step left a request alone that it should have moved on; it counts as failed, see `abandon`.
        """
        step, output = outcome.step, outcome.output
        if isinstance(step, DecodeStep):
            assert isinstance(output, DecodeOutput)
            self._check_moved_on(step, output)
            _let_go(step)
            for rank, requests in enumerate(step.requests):
                for row, request in enumerate(requests):
                    if request.live:
                        committed = int(output.accepted_counts[rank, row])
                        tokens = output.sampled_ids[rank, row, :committed].tolist()
                        self._take_decoded(request, tokens, now_ns)
        else:
            assert isinstance(output, PrefillOutput)
            _let_go(step)
            for rank, chunks in enumerate(step.chunks):
                for row, chunk in enumerate(chunks):
                    self._seats[rank].prefilled(chunk)
                    if chunk.terminal and chunk.request.live:
                        self._take_prefilled(chunk.request, int(output.sampled_ids[rank, row]), now_ns)
        self._release()

    def abandon(self, step: Step) -> None:
        """A step failed or was never run: its requests start again as after a preemption.

        How far the device got with them is not known, so that what steps behind this one bring is dropped too.
        """
        _let_go(step)
        lost = [request for request in _requests(step) if request.live]
        for request in lost:
            request.preempt()
        self._requeue(lost)
        self._release()

    def end_all(self, reason: FinishReason, error: BaseException | None = None) -> None:
        """End every request that has not ended; what it published stays."""
        for handle in self._unfinished():
            handle.finish(reason, error)
        self._waiting.clear()
        self._release()

    def restart(self) -> None:
        """Begin anew after the devices lost their state: whoever ran waits again, and nobody holds anything.

        Only when no step is pending. Ids of steps go on.
        """
        running = [request for seats in self._seats for request in seats.live]
        for request in running:
            request.preempt()
        self._requeue(running)
        self._seats = self._empty_seats()

    def cancel(self, request_id: str) -> None:
        """End a request, whatever it is doing; steps in flight drop its tokens.

        An id that was used again names its latest request that has not ended. Unknown ids are ignored.
        """
        named = [handle for handle in self._unfinished() if handle.request.request_id == request_id]
        if not named:
            return
        handle = max(named, key=lambda handle: handle.arrival)
        handle.finish("cancelled")
        if handle in self._waiting:
            self._waiting.remove(handle)
        self._release()

    def _empty_seats(self) -> list[Seats]:
        return [
            Seats(
                rank,
                self._layout,
                self._pages,
                self._requests_per_rank,
                self._speculative_tokens,
                self._prefix_snapshots,
            )
            for rank in range(self._ranks)
        ]

    def _unfinished(self) -> list[RequestHandle]:
        """Who waits or runs; one that was preempted waits."""
        running = [request.handle for seats in self._seats for request in seats.live]
        return [*self._waiting, *running]

    def _admit(self, ranks: list[Seats]) -> None:
        while self._waiting and (free := [seats for seats in ranks if not seats.full]):
            handle = self._waiting[0]
            keys = self._prefix_keys(handle)
            free.sort(key=lambda seats: (-seats.reusable(keys), len(seats.holders)))
            request = next(filter(None, (seats.seat(handle, keys) for seats in free)), None)
            if request is None:
                return
            self._waiting.popleft()
            self.counts.prefix_hits += request.prefix.reused > 0
            self.counts.cached_tokens += request.prefix.reused

    def _prefix_keys(self, handle: RequestHandle) -> tuple[bytes, ...]:
        """Keys of what the request would prefill; none without prefix reuse."""
        if not self._prefix_snapshots:
            return ()
        return prefix_keys(self._layout, [*handle.request.prompt_token_ids, *handle.token_ids])

    def _prefill_step(self) -> PrefillStep | None:
        chunks: list[tuple[PrefillChunk, ...]] = []
        for seats in self._seats:
            budget = self._prefill_tokens
            of_rank: list[PrefillChunk] = []
            for request in seats.live:
                chunk = _next_chunk(request, budget)
                count = chunk.count
                if count > 0:
                    of_rank.append(chunk)
                    request.prefilled += count
                    request.pending_steps += 1
                    budget -= count
            chunks.append(tuple(of_rank))
        if not any(chunks):
            return None
        self._next_prefill += 1
        return PrefillStep(self._next_prefill - 1, tuple(chunks))

    def _decode_step(self, rows: tuple[tuple[ActiveRequest, ...], ...]) -> DecodeStep | None:
        if not any(rows):
            return None
        for requests in rows:
            for request in requests:
                request.pending_steps += 1
        self._next_step += 1
        return DecodeStep(self._next_step - 1, rows)

    def _requeue(self, requests: Sequence[ActiveRequest]) -> None:
        """Who was preempted waits in front of all who never ran: they arrived later."""
        for request in requests:
            insort(self._waiting, request.handle, key=lambda handle: handle.arrival)

    def _check_moved_on(self, step: DecodeStep, output: DecodeOutput) -> None:
        for rank, requests in enumerate(step.requests):
            for row, request in enumerate(requests):
                if request.live and output.accepted_counts[rank, row] < 1:
                    self.abandon(step)
                    raise EngineError(
                        f"a step left request {request.request.request_id} alone: state slot {request.state_slot} of "
                        f"rank {rank} no longer holds generation {request.generation}"
                    )

    def _take_prefilled(self, request: ActiveRequest, token: int, now_ns: int) -> None:
        request.decoding = True
        request.handle.prefills += 1
        self._publish(request, [token], now_ns)

    def _take_decoded(self, request: ActiveRequest, tokens: Sequence[int], now_ns: int) -> None:
        handle = request.handle
        handle.steps += 1
        handle.proposed += self._speculative_tokens
        handle.accepted += len(tokens) - 1
        self.counts.proposed += self._speculative_tokens
        self.counts.accepted += len(tokens) - 1
        self._publish(request, tokens, now_ns)

    def _publish(self, request: ActiveRequest, tokens: Sequence[int], now_ns: int) -> None:
        """Publish up to the request's end, and count what is behind it."""
        handle, wanted = request.handle, request.request
        kept = list(tokens[: wanted.max_tokens - len(handle.token_ids)])
        stopped = False
        if not wanted.ignore_eos and self._eos in kept:
            kept = kept[: kept.index(self._eos) + 1]
            stopped = True
        # Whoever listens to the publication reads these counts.
        handle.discarded += len(tokens) - len(kept)
        self.counts.tokens += len(kept)
        handle.publish(kept, now_ns)
        if stopped:
            handle.finish("stop")
        elif len(handle.token_ids) >= wanted.max_tokens:
            handle.finish("length")

    def _release(self) -> None:
        for seats in self._seats:
            seats.release()


def _next_chunk(request: ActiveRequest, budget: int) -> PrefillChunk:
    """What the request prefills next, of at most `budget` tokens: up to where a snapshot is due, or its prompt's end."""
    start, boundaries = request.prefilled, request.prefix.boundaries
    stops = [place for place in boundaries if place > start]
    end = min(start + budget, len(request.prompt_token_ids), *stops)
    return PrefillChunk(request, start, end - start, Snapshot() if end in stops else None)


def _requests(step: Step) -> list[ActiveRequest]:
    if isinstance(step, DecodeStep):
        return [request for of_rank in step.requests for request in of_rank]
    return [chunk.request for of_rank in step.chunks for chunk in of_rank]


def _let_go(step: Step) -> None:
    """The step is over: its requests wait for one step fewer."""
    for request in _requests(step):
        request.pending_steps -= 1
