"""What a client saw of one request, in whatever shape its record came."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

Phase = Literal["warmup", "measured"]
RequestIdentity = tuple[str, object]
"""An id as its kind and its value: 7 and 7.0 are one id, 7 and "7" are two."""

_LATEST_NS = 2**62


@dataclass(frozen=True)
class RequestTiming:
    """Times are ns of the client's clock; None is what the record does not say."""

    request_id: str = field(compare=False)
    """What people call it: `identity` is what counts."""
    phase: Phase
    send_ns: int | None = None
    chunks: tuple[tuple[int, int], ...] | None = None
    """(arrival, tokens) of every output event, in order; None when only the first and last times are known."""
    first_ns: int | None = None
    last_ns: int | None = None
    output_tokens: int | None = None
    first_chunk_tokens: int = 1
    rank: int | None = None
    accepted: int | None = None
    proposed: int | None = None
    steps: int | None = None
    discarded: int | None = None
    prefills: int | None = None
    cached_tokens: int | None = None
    retokenized: int | None = None
    """Output tokens by tokenizing the text again, where a record says so: to compare, for no figure."""
    error: str | None = None
    identity: RequestIdentity | None = None
    """What tells it from other requests of its file; None where the record has no id."""
    was_cut: bool = False
    """In flight when the time of the benchmark was up: neither done nor failed."""
    is_placed: bool = True
    """Whether its times lie on the clock of the other requests; else `send_ns` is 0, and only differences hold."""
    server_request_id: str | None = None
    """Its id in the server's answer, where that is another one."""
    planned_ns: int | None = None
    """When the load wanted it sent."""
    prompt_tokens: int | None = None
    """Of the prompt as the load made it."""
    server_prompt_tokens: int | None = None
    """As the server counts them."""
    not_understood: tuple[str, ...] = ()
    """Fields that may say what of tokens or times is missing, and that nobody here knows."""

    @property
    def is_whole(self) -> bool:
        """Whether it was answered to its end: only such a request has latencies."""
        return self.error is None and not self.was_cut


class BadRequestError(ValueError):
    """A record whose fields contradict each other."""


def count_of(value: Any) -> int:
    """`value` as a number of tokens.

    Raises:
        BadRequestError: it is none.
    """
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_number or not 0 <= value < 2**31:
        raise BadRequestError(f"{shown(value)} is no number of tokens")
    return int(value)


def check_order(times: Iterable[int | None]) -> None:
    """Check that the times that are known never decrease.

    Raises:
        BadRequestError: they do, or are beyond any clock.
    """
    known = [time for time in times if time is not None]
    if known != sorted(known):
        raise BadRequestError("its times run backwards")
    if known and (known[0] < -_LATEST_NS or known[-1] > _LATEST_NS):
        raise BadRequestError("its times are out of range")


def shown(value: Any) -> str:
    """A value of a record for people, not at any length."""
    return shown_name(repr(value) if isinstance(value, str | list | dict) else str(value))


def shown_name(name: str) -> str:
    """The name of a field for people, not at any length."""
    return name if len(name) <= 40 else f"{name[:37]}..."
