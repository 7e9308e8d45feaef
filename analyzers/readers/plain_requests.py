"""Request records of other clients: a flat JSON object a request, whose times bear their unit in their name.

What a record does not say is None, never 0 and never guessed; fields that may say it under a name that is not known here
are named.
"""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from typing import Any, NamedTuple

from analyzers.readers.request_timing import (
    BadRequestError,
    RequestIdentity,
    RequestTiming,
    check_order,
    count_of,
    shown,
    shown_name,
)

_UNITS_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_SEND = ("submit", "send")
_FIRST, _LAST = ("first_token",), ("end",)
_TTFT, _E2E = ("ttft",), ("e2e",)
_TIME_STEMS = (*_SEND, *_FIRST, *_LAST, *_TTFT, *_E2E)
_PAIRS = "tokens_at"
_PAIRS_NS = {_PAIRS: _UNITS_NS["ms"]} | {f"{_PAIRS}_{unit}": scale for unit, scale in _UNITS_NS.items()}
_UNDERSTOOD = frozenset(
    {"id", "request_id", "phase", "rank", "error", "success", "chunks", "output_tokens", "output_token_ids"}
    | {"retokenized_tokens", "prompt", "prompt_tokens", "prompt_token_ids", "text", "finish_reason"}
    | {f"{stem}_{unit}" for stem in _TIME_STEMS for unit in _UNITS_NS}
    | _PAIRS_NS.keys()
)
_TELLING_STEMS = (*_SEND, *_FIRST, *_TTFT)
_TELLING = frozenset(
    {"chunks", "token_times_ns", "end_ms", *_PAIRS_NS}
    | {f"{stem}_{unit}" for stem in _TELLING_STEMS for unit in _UNITS_NS}
)
_ROUNDING_NS = 1_000_000
"""By how much times of one record, each rounded to a ms, may contradict each other."""

Chunks = tuple[tuple[int, int], ...]


def is_plain_request(record: dict[str, Any]) -> bool:
    """Whether an object looks like a request record: it has a time of one, or says how an id ended."""
    keys = record.keys()
    is_outcome = bool(keys & {"error", "success"}) and bool(keys & {"id", "request_id"})
    return is_outcome or not _TELLING.isdisjoint(keys)


def plain_timing(record: dict[str, Any], number: int, *, was_cut: bool = False) -> RequestTiming:
    """What the `number`th record says; `was_cut` is a request that was in flight at the end.

    Raises:
        BadRequestError: its fields contradict each other, or hold no times and counts.
    """
    arrivals = _arrivals(record)
    tokens, retokenized = _output_tokens(record, arrivals), record.get("retokenized_tokens")
    # A chunk without tokens (the role that opens a chat, a word cut in two) is no output event.
    chunks = tuple(chunk for chunk in arrivals if chunk[1] > 0) if arrivals is not None else None
    first, last = _time(record, _FIRST), _time(record, _LAST)
    if chunks is not None and isinstance(record.get("output_token_ids"), list):
        counted = sum(count for _, count in chunks)
        if counted != tokens:
            # The chunks were counted by their text: their times hold, their counts do not.
            retokenized, chunks = counted, None
            first, last = (arrivals[0][0], arrivals[-1][0]) if arrivals else (first, last)
    if chunks:
        first, last = chunks[0][0], chunks[-1][0]
    times = _times(record, first, last)
    _check_course(times)
    error = _error(record)
    is_told = None not in (tokens, times.first, times.last) or error is not None
    return RequestTiming(
        request_id=str(number if (value := _id(record)) is None else value),
        phase="warmup" if record.get("phase") == "warmup" else "measured",
        send_ns=times.send,
        chunks=chunks,
        first_ns=times.first,
        last_ns=times.last,
        output_tokens=tokens,
        first_chunk_tokens=chunks[0][1] if chunks else 1,
        retokenized=None if retokenized is None else count_of(retokenized),
        error=error,
        identity=identity_of(record),
        was_cut=was_cut,
        is_placed=times.are_placed,
        not_understood=() if is_told else _not_understood(record),
    )


def identity_of(record: dict[str, Any]) -> RequestIdentity | None:
    """The id of a record; None where it has none."""
    value = _id(record)
    if value is None:
        return None
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return "number", value
    return type(value).__name__, value if isinstance(value, str) else repr(value)


def _id(record: dict[str, Any]) -> Any:
    value = record.get("request_id")
    return record.get("id") if value is None else value


def _not_understood(record: dict[str, Any]) -> tuple[str, ...]:
    return tuple(sorted(shown_name(name) for name in record if name not in _UNDERSTOOD))


class _Times(NamedTuple):
    send: int | None
    first: int | None
    last: int | None
    are_placed: bool


def _check_course(times: _Times) -> None:
    """Check that a request is sent, answered first and ended, in this order."""
    named = (("the sending", times.send), ("the first token", times.first), ("the end", times.last))
    known = [(name, time) for name, time in named if time is not None]
    for (earlier, before), (later, after) in pairwise(known):
        if after < before:
            told = f"{later} at {after / 1e6:g} ms lies before {earlier} at {before / 1e6:g} ms"
            raise BadRequestError(f"its times run backwards: {told}")
    check_order(time for _, time in known)


def _times(record: dict[str, Any], first: int | None, last: int | None) -> _Times:
    """When the request was sent, answered first, and ended, of which `first` and `last` are times of a clock.

    Latencies count from the sending. Without its time they hold, but lie nowhere on the clock of the other requests.
    """
    send, ttft, latency = _time(record, _SEND), _time(record, _TTFT), _time(record, _E2E)
    if send is None and first is not None and ttft is not None:
        send = first - ttft
    if send is None and last is not None and latency is not None:
        send = last - latency
    are_placed = send is not None or first is not None or last is not None
    if not are_placed and (ttft is not None or latency is not None):
        send = 0
    if send is not None:
        first = send + ttft if first is None and ttft is not None else first
        last = send + latency if last is None and latency is not None else last
    return _Times(send, first, last, are_placed or send is None)


def _arrivals(record: dict[str, Any]) -> Chunks | None:
    """(arrival, tokens) of every event of a record that lists them; None where it does not."""
    if isinstance(record.get("chunks"), list):
        arrivals = tuple(map(_chunk, record["chunks"]))
        check_order([time for time, _ in arrivals])
        return arrivals
    names = [name for name in _PAIRS_NS if record.get(name) is not None]
    if not names:
        return None
    if len(names) > 1:
        raise BadRequestError(f"{' and '.join(names)} tell the same")
    arrivals = _increments(record[names[0]], names[0], _PAIRS_NS[names[0]])
    _check_within(record, arrivals, names[0])
    return arrivals


def _increments(pairs: Any, name: str, scale: int) -> Chunks:
    """Arrivals out of pairs of a time and the tokens until then."""
    if not isinstance(pairs, list) or not pairs:
        raise BadRequestError(f"{name} is no list of [time, tokens so far]")
    arrivals: list[tuple[int, int]] = []
    before = 0
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2:
            raise BadRequestError(f"{shown(pair)} in {name} is no [time, tokens so far]")
        so_far = count_of(pair[1])
        if so_far < before:
            raise BadRequestError(f"the tokens so far in {name} go back from {before} to {so_far}")
        arrivals.append((_ns(pair[0], scale), so_far - before))
        before = so_far
    check_order([time for time, _ in arrivals])
    return tuple(arrivals)


def _check_within(record: dict[str, Any], arrivals: Chunks, name: str) -> None:
    """Check pairs, whose unit and meaning only their name tells, against what else the record says."""
    first, last = _time(record, _FIRST), _time(record, _LAST)
    times = [time for time, tokens in arrivals if tokens]
    if not times:
        return
    if (first is not None and times[0] < first - _ROUNDING_NS) or (
        last is not None and times[-1] > last + _ROUNDING_NS
    ):
        raise BadRequestError(f"the times in {name} lie outside of first_token and end")
    given = record.get("output_tokens")
    counted = sum(tokens for _, tokens in arrivals)
    if given is not None and count_of(given) != counted:
        raise BadRequestError(f"{counted} tokens in {name} but output_tokens is {shown(given)}")


def _chunk(item: Any) -> tuple[int, int]:
    time = _time(item, ("t",)) if isinstance(item, dict) else None
    if time is None:
        raise BadRequestError(f"{shown(item)} is no output event")
    return time, count_of(item.get("tokens"))


def _error(record: dict[str, Any]) -> str | None:
    """Why the request failed; None where it did not, which some clients write as an empty text."""
    if record.get("error"):
        return str(record["error"])
    return "not successful" if record.get("success") is False else None


def _output_tokens(record: dict[str, Any], arrivals: Chunks | None) -> int | None:
    """Token ids count, else the tokens of the chunks, else the number given; text is never re-tokenized."""
    if isinstance(record.get("output_token_ids"), list):
        return len(record["output_token_ids"])
    if arrivals is not None:
        return sum(tokens for _, tokens in arrivals)
    return count_of(record["output_tokens"]) if record.get("output_tokens") is not None else None


def _time(record: dict[str, Any], stems: tuple[str, ...]) -> int | None:
    """The time that the record has under one of `stems` and its unit, in ns; None where it has none."""
    found = {
        name: _ns(record[name], scale)
        for stem in stems
        for unit, scale in _UNITS_NS.items()
        if record.get(name := f"{stem}_{unit}") is not None
    }
    if len(set(found.values())) > 1:
        raise BadRequestError(f"{' and '.join(found)} are different times")
    return next(iter(found.values()), None)


def _ns(value: Any, scale: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise BadRequestError(f"{shown(value)} is no time")
    number = Decimal(value)
    if not number.is_finite() or number.adjusted() > 18:
        raise BadRequestError(f"{shown(value)} is no time")
    return int((number * scale).to_integral_value())
