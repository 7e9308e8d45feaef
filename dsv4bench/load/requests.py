"""What the load asks for, and what is known of each request while it is answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from analyzers.rundir import ClientFacts, RequestRecord

Phase = Literal["warmup", "measured"]


@dataclass(frozen=True)
class Prompt:
    """A prompt as token ids, and its text where there is one."""

    token_ids: tuple[int, ...]
    text: str | None


@dataclass(frozen=True)
class LoadRequest:
    """One request of a batch; `arrival_ns` is when it is to be sent, from the batch's beginning (None: as soon as the
    concurrency allows).
    """

    request_id: str
    prompt: Prompt
    output_tokens: int
    arrival_ns: int | None = None


class Target(Protocol):
    """What requests are put to: the embedded engine or a server."""

    async def send(self, request: LoadRequest, planned_ns: int | None, phase: Phase) -> RequestRecord:
        """Send one request now, and return its record when it has ended, well or not.

        A request that fails is a record with its error. Raises CancelledError alone, after the request was given up.
        """
        ...


@dataclass(frozen=True)
class LoadProgress:
    """Counts since the batch began, for a display."""

    sent: int
    in_flight: int
    done: int
    failed: int
    tokens: int


@dataclass(frozen=True)
class LoadResult:
    """What became of a batch: one record a request, in the order of the plan, and how the client kept up."""

    records: list[RequestRecord]
    client: ClientFacts


ProgressObserver = Callable[[LoadProgress], None]
