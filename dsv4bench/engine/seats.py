"""What one rank has to give to requests, state slots and cache pages, and who holds it."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

from dsv4bench.cache.allocator import BlockAllocator, Blocks
from dsv4bench.cache.layout import CacheLayout
from dsv4bench.cache.prefix_index import PrefixIndex
from dsv4bench.engine.reach import first_length, full_length, next_length
from dsv4bench.engine.requests import ActiveRequest, RequestHandle
from dsv4bench.engine.state_slots import StateSlots
from dsv4bench.engine.steps import PrefillChunk
from dsv4bench.errors import EngineError


class Seats:
    """The state slots and pages of one rank.

    `holders` are all requests that hold some, in order of arrival: the live ones, and those that ended or were
    preempted while pending steps still refer to them. What the latter hold comes back with their last pending step.
    Prefix pages that nobody holds are given up before anybody goes without pages.
    """

    def __init__(
        self,
        rank: int,
        layout: CacheLayout,
        pages: Sequence[int],
        count: int,
        speculative_tokens: int,
        prefix_snapshots: int = 0,
    ) -> None:
        self.rank = rank
        self.holders: list[ActiveRequest] = []
        self._allocator = BlockAllocator(layout, pages)
        self._prefixes = PrefixIndex(layout, self._allocator, prefix_snapshots)
        self._state_slots = StateSlots(count)
        self._speculative_tokens = speculative_tokens
        # A state page covers few positions: page by page, a request would grow, and its block tables change, every
        # other step. It grows by the coarsest page instead, where the pool allows it.
        self._stride = max(group.tokens_per_page for group in layout.groups)

    @property
    def live(self) -> list[ActiveRequest]:
        """The requests that run, in order of arrival."""
        return [request for request in self.holders if request.live]

    @property
    def returning(self) -> bool:
        """Whether pages will come back on their own."""
        return any(not request.live for request in self.holders)

    @property
    def full(self) -> bool:
        """Whether no state slot is free."""
        return not self._state_slots.available

    def reusable(self, prefix_keys: Sequence[bytes]) -> int:
        """Positions that a request whose prompt has these keys need not prefill here."""
        return self._prefixes.reusable(prefix_keys)

    def seat(self, handle: RequestHandle, prefix_keys: Sequence[bytes] = ()) -> ActiveRequest | None:
        """Give a request a state slot and pages for its first decode step, if possible.

        Prefill feeds it its prompt and what it published before a preemption, but for the prefix that is found by
        `prefix_keys`.
        """
        if self.full:
            return None
        prefix, shared = self._prefixes.begin(prefix_keys)
        blocks = self._pages(shared, handle, first_length(handle, self._speculative_tokens))
        if blocks is None:
            self._prefixes.end(prefix)
            return None
        state_slot, generation = self._state_slots.allocate()
        tokens = [*handle.request.prompt_token_ids, *handle.token_ids]
        request = ActiveRequest(handle, self.rank, state_slot, generation, blocks, tokens, prefix.reused)
        request.prefix = prefix
        handle.cached_tokens += prefix.reused
        request.capacity = self._allocator.capacity(blocks)
        insort(self.holders, request, key=lambda holder: holder.handle.arrival)
        handle.rank = self.rank
        return request

    def reserve(self) -> tuple[list[ActiveRequest], list[ActiveRequest]]:
        """Get decoding requests the pages of one more step: (those that have them, those preempted to that end).

        Oldest first. A request that cannot grow sits the step out while pages are coming back on their own;
        otherwise the latest arrival is preempted, which may be itself. So the oldest of the rank always gets on.

        Raises:
            EngineError: a request that is alone cannot grow: it should not have been accepted.
        """
        ready: list[ActiveRequest] = []
        preempted: list[ActiveRequest] = []
        for request in self.live:
            if not request.decoding:
                continue
            while request.live and not (grown := self._grow(request)) and not self.returning:
                preempted.append(self._preempt_latest())
            if request.live and grown:
                ready.append(request)
        return ready, preempted

    def prefilled(self, chunk: PrefillChunk) -> None:
        """A chunk has run: others may share the pages that it completed."""
        request = chunk.request
        self._prefixes.add(request.prefix, request.blocks, chunk.start, chunk.end, chunk.snapshot)

    def release(self) -> None:
        """Take back what requests held that run no longer, once no pending step refers to them."""
        kept = []
        for request in self.holders:
            if request.live or request.pending_steps:
                kept.append(request)
            else:
                self._allocator.release(self._prefixes.private(request.prefix, request.blocks))
                self._prefixes.end(request.prefix)
                self._state_slots.release(request.state_slot)
        self.holders = kept

    def _grow(self, request: ActiveRequest) -> bool:
        length = next_length(request, self._speculative_tokens)
        if length > request.capacity:
            blocks = self._pages(request.blocks, request.handle, length)
            if blocks is None:
                return False
            request.blocks = blocks
            request.capacity = self._allocator.capacity(blocks)
        return True

    def _pages(self, blocks: Blocks, handle: RequestHandle, length: int) -> Blocks | None:
        """Pages for `length` positions or, better, for a whole stride of them; never more than the request can use."""
        most = full_length(handle.request, self._speculative_tokens)
        rounded = min(-(-length // self._stride) * self._stride, most)
        for wanted in (max(rounded, length), length):
            pages = self._allocator.extend(blocks, wanted)
            if pages is not None:
                return pages
        if self._prefixes.reclaim(self._allocator.shortage(blocks, length)):
            return self._allocator.extend(blocks, length)
        return None

    def _preempt_latest(self) -> ActiveRequest:
        live = self.live
        if len(live) == 1:
            raise EngineError(
                f"request {live[0].request.request_id} is alone on rank {self.rank} and gets no more pages there"
            )
        victim = live[-1]
        victim.preempt()
        self.release()
        return victim
