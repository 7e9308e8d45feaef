"""Requests: what a client asks for, and what the engine knows of each while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dsv4bench.cache.prefix_index import RequestPrefix

FinishReason = Literal["length", "stop", "cancelled", "error"]


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen: greedily at temperature 0, else drawn among the `top_k` likeliest (0: all) that make up
    `top_p` of the probability, by a generator keyed by (seed, position).
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0


GREEDY = Sampling()


@dataclass(frozen=True)
class Request:
    """One generation request; `max_tokens` counts output tokens.

    `injected_drafts` is a developer hook: entry p, where it is not negative, replaces the drafter's token for
    position p (prompt included); -2 replaces it by another token than the drafter's own, -1 leaves it.
    """

    request_id: str
    prompt_token_ids: Sequence[int]
    max_tokens: int
    ignore_eos: bool = True
    sampling: Sampling = GREEDY
    injected_drafts: Sequence[int] | None = None


class RequestHandle:
    """The client's side of a request: filled by the engine, read by anyone.

    `token_times_ns[i]` is when `token_ids[i]` was published (int64 ns, CLOCK_MONOTONIC). `steps`, `accepted` and
    `proposed` count the decode steps whose tokens were kept; `discarded` the tokens that the last of them committed
    beyond the request's end. `preemptions` counts how often the request lost its pages and had to start again from
    what it had published; each start publishes one token from its prefill, counted in `prefills`. At any time:
    prefills + steps + accepted = tokens + discarded. `cached_tokens` is how many positions its starts, all together, did
    not have to prefill. `rank` is that of the latest start; `arrival` is the scheduler's number of the request, in order
    of arrival.

    `listener` is called with the handle in the engine's thread whenever tokens were published, with the counts of the step
    that published them, and when the request has ended. It must return at once and raise nothing.
    """

    def __init__(
        self, request: Request, send_ns: int, listener: Callable[[RequestHandle], None] | None = None
    ) -> None:
        self.request = request
        self._listener = listener
        self.send_ns = send_ns
        self.arrival = 0
        self.rank: int | None = None
        self.token_ids: list[int] = []
        self.token_times_ns: list[int] = []
        self.prefills = 0
        self.preemptions = 0
        self.cached_tokens = 0
        self.steps = 0
        self.accepted = 0
        self.proposed = 0
        self.discarded = 0
        self.finish_reason: FinishReason | None = None
        self.error: BaseException | None = None
        self._finished = threading.Event()

    def publish(self, token_ids: Sequence[int], now_ns: int) -> None:
        """Add tokens that arrived together."""
        self.token_ids.extend(token_ids)
        self.token_times_ns.extend([now_ns] * len(token_ids))
        if self._listener is not None:
            self._listener(self)

    def finish(self, reason: FinishReason, error: BaseException | None = None) -> None:
        """End the request; the first end counts."""
        if self.finish_reason is None:
            self.error = error
            self.finish_reason = reason
            self._finished.set()
            if self._listener is not None:
                self._listener(self)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; False when `timeout` seconds passed first."""
        return self._finished.wait(timeout)


@dataclass(eq=False)
class ActiveRequest:
    """A request that holds device resources: a state slot with its generation, and pages in every cache group.

    `prompt_token_ids` is what prefill feeds: the prompt, and after a preemption also the tokens published before it.
    `blocks` is replaced, never changed in place, when pages are added; `capacity` is how many positions they hold. A
    `preempted` one has lost its place: it holds its pages only as long as pending steps refer to it. `prefix` says which
    of its pages are not its own; prefill begins behind them.
    """

    handle: RequestHandle
    rank: int
    state_slot: int
    generation: int
    blocks: tuple[NDArray[np.int32], ...]
    prompt_token_ids: Sequence[int]
    prefilled: int = 0
    decoding: bool = False
    pending_steps: int = 0
    capacity: int = 0
    preempted: bool = False
    prefix: RequestPrefix = field(default_factory=RequestPrefix)

    @property
    def request(self) -> Request:
        """What the client asked for."""
        return self.handle.request

    @property
    def finished(self) -> bool:
        """Whether its tokens are complete; pending steps may still hold its pages."""
        return self.handle.finish_reason is not None

    @property
    def live(self) -> bool:
        """Whether it still runs: what pending steps bring for one that does not is dropped."""
        return not self.preempted and not self.finished

    def preempt(self) -> None:
        """Take its place away; the request has to start again."""
        self.preempted = True
        self.handle.preemptions += 1
