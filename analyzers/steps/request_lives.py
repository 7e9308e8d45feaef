"""One request's life across its client, the scheduler and the steps that carried it.

The figures: docs/metrics.md, Requests through the engine.

The engine records a request once, when it has ended (`request.finished`); the client's record names the same id, or the
one in the server's answer. A server that records the arrival of requests alone (`request.queued`) gives the time before it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec
import numpy as np

from analyzers.clients.requests import tpot_parts
from analyzers.readers.request_timing import RequestTiming
from analyzers.rundir import Manifest
from analyzers.statistics.summary import Summary, summarize
from analyzers.table.spans import Clock, SpanTable

FINISHED = "request.finished"
_QUEUED = "request.queued"
_ROUNDING_NS = 1000
"""A serving trace counts whole microseconds."""


class RequestLife(msgspec.Struct, frozen=True):
    """One joined request; times are ns of the host's clock, None where nobody says."""

    request_id: str
    send_ns: int
    added_ns: int
    """When the engine got it."""
    admitted_ns: int | None
    """When the scheduler first gave it a place."""
    first_token_ns: int | None
    """When its first token was published."""
    last_token_ns: int | None
    first_arrival_ns: int
    """When the first output reached the client."""
    last_arrival_ns: int
    planned_ns: int | None = None
    rank: int | None = None
    first_step: int | None = None
    """Id of the first decode step whose tokens were kept."""
    last_step: int | None = None
    steps: int | None = None
    engine_tokens: int | None = None
    client_tokens: int | None = None

    @property
    def parts(self) -> dict[str, int | None]:
        """Its E2E in order, part by part, in ns; the parts that are known add up."""
        return {
            "before": self.added_ns - self.send_ns,
            "queueing": _between(self.added_ns, self.admitted_ns),
            "prefill": _between(self.admitted_ns, self.first_token_ns),
            "decode": _between(self.first_token_ns, self.last_token_ns),
            "delivery": _between(self.last_token_ns, self.last_arrival_ns),
        }


class RequestLives(msgspec.Struct, frozen=True):
    """The measured requests whose client and engine are joined; times in ns."""

    requests: int
    """That were answered whole."""
    joined: int
    reason: str | None = None
    """Why not all of them are joined; None where they are."""
    send_lag: Summary = Summary(n=0)
    """Planned to real sending."""
    before: Summary = Summary(n=0)
    """From sending until the engine had it: connection, parsing, tokens of the prompt."""
    queueing: Summary = Summary(n=0)
    prefill: Summary = Summary(n=0)
    """From its place until its first token was published."""
    decode: Summary = Summary(n=0)
    delivery_first: Summary = Summary(n=0)
    """From the publication of the first token to its arrival."""
    delivery_last: Summary = Summary(n=0)
    steps: Summary = Summary(n=0)
    """Decode steps that carried a request and whose tokens were kept."""
    outside_share: float | None = None
    """The part of all E2E that lies outside the engine."""
    client_tpot_ns: float | None = None
    """Per-request mean over those of which the engine's is known too."""
    engine_tpot_ns: float | None = None
    """The same of the times at which tokens were published."""
    delivery_share_of_tpot: float | None = None
    """(client - engine) / client."""
    token_mismatches: list[str] = []
    """Requests of which engine and client count different output tokens."""


@dataclass(frozen=True)
class JoinedRequests:
    """The lives one by one, in order of sending, and what they come to."""

    lives: list[RequestLife]
    figures: RequestLives | None
    """None without requests, or where the recording has no serving trace."""


def join_requests(
    requests: Sequence[RequestTiming], spans: SpanTable, manifest: Manifest | None
) -> JoinedRequests:
    """Join the measured requests of one run to what its engine recorded of them."""
    whole = [timing for timing in requests if timing.phase == "measured" and timing.is_whole]
    records = _records(spans, FINISHED)
    queued = _records(spans, _QUEUED)
    if not whole or not (records or queued):
        return JoinedRequests([], None)
    reason = _other_clock(manifest)
    lives: list[RequestLife] = []
    if reason is None:
        lives = [life for timing in whole if (life := _life(timing, records, queued)) is not None]
        backwards = next((life.request_id for life in lives if not _in_order(life)), None)
        if backwards is not None:
            lives, reason = [], f"the clocks differ: the engine had request {backwards} before it was sent"
    if reason is None and len(lives) < len(whole):
        reason = f"the serving trace says nothing of {len(whole) - len(lives)} of them"
    lives.sort(key=lambda life: life.send_ns)
    return JoinedRequests(lives, _figures(whole, lives, reason))


def _records(spans: SpanTable, name: str) -> dict[str, list[dict[str, Any]]]:
    """What the engine recorded under `name`, by request id, with the time of the record as `ts_ns`."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in np.flatnonzero(spans.named(name) & (spans.clock == Clock.HOST)).tolist():
        arguments = spans.args(row)
        if "request_id" in arguments:
            entry = {**arguments, "ts_ns": int(spans.start_ns[row])}
            found.setdefault(str(arguments["request_id"]), []).append(entry)
    return found


def _other_clock(manifest: Manifest | None) -> str | None:
    """Why the client's clock may not be the server's; None where they are one."""
    if manifest is None:
        return "nothing says that client and server share a clock: no run.json"
    server = manifest.server
    if server is None or server.started or _is_loopback(server.url):
        return None
    return f"{server.url} is another host, with a clock of its own"


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _life(
    timing: RequestTiming,
    records: Mapping[str, list[dict[str, Any]]],
    queued: Mapping[str, list[dict[str, Any]]],
) -> RequestLife | None:
    if timing.send_ns is None or timing.first_ns is None or timing.last_ns is None:
        return None
    names = [name for name in (timing.server_request_id, timing.request_id) if name is not None]
    entry = _only(records, names, timing) or _only(queued, names, timing)
    if entry is None:
        return None
    added = _time(entry, "added_ns")
    return RequestLife(
        request_id=timing.request_id,
        send_ns=timing.send_ns,
        added_ns=entry["ts_ns"] if added is None else added,
        admitted_ns=_time(entry, "admitted_ns"),
        first_token_ns=_time(entry, "first_token_ns"),
        last_token_ns=_time(entry, "last_token_ns"),
        first_arrival_ns=timing.first_ns,
        last_arrival_ns=timing.last_ns,
        planned_ns=timing.planned_ns,
        rank=timing.rank if timing.rank is not None else _time(entry, "rank"),
        first_step=_time(entry, "first_step"),
        last_step=_time(entry, "last_step"),
        steps=_time(entry, "steps"),
        engine_tokens=_time(entry, "output_tokens"),
        client_tokens=timing.output_tokens,
    )


def _only(
    records: Mapping[str, list[dict[str, Any]]], names: Iterable[str], timing: RequestTiming
) -> dict[str, Any] | None:
    """The one record of the request; an id that was used several times is told by the time."""
    for name in names:
        entries = records.get(name, [])
        if len(entries) > 1:
            entries = [
                entry
                for entry in entries
                if timing.send_ns is not None
                and timing.last_ns is not None
                and timing.send_ns - _ROUNDING_NS
                <= (_time(entry, "added_ns") or entry["ts_ns"])
                <= timing.last_ns
            ]
        if len(entries) == 1:
            return entries[0]
    return None


def _time(entry: Mapping[str, Any], key: str) -> int | None:
    value = entry.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _in_order(life: RequestLife) -> bool:
    """Whether the engine had it after it was sent, and published what arrived before that."""
    times = [
        life.send_ns - _ROUNDING_NS,
        life.added_ns,
        life.admitted_ns,
        life.first_token_ns,
        life.last_token_ns,
    ]
    known = [time for time in times if time is not None]
    if known != sorted(known):
        return False
    pairs = [(life.first_token_ns, life.first_arrival_ns), (life.last_token_ns, life.last_arrival_ns)]
    return all(published is None or published <= arrived + _ROUNDING_NS for published, arrived in pairs)


def _figures(
    whole: Sequence[RequestTiming], lives: Sequence[RequestLife], reason: str | None
) -> RequestLives:
    parts = [life.parts for life in lives]
    inside = [
        (life.last_token_ns - life.added_ns, life.last_arrival_ns - life.send_ns)
        for life in lives
        if life.last_token_ns is not None
    ]
    e2e = sum(total for _, total in inside)
    client, engine = _tpots(whole, lives)
    return RequestLives(
        requests=len(whole),
        joined=len(lives),
        reason=reason,
        send_lag=summarize([life.send_ns - life.planned_ns for life in lives if life.planned_ns is not None]),
        before=_summary(part["before"] for part in parts),
        queueing=_summary(part["queueing"] for part in parts),
        prefill=_summary(part["prefill"] for part in parts),
        decode=_summary(part["decode"] for part in parts),
        delivery_first=_summary(_between(life.first_token_ns, life.first_arrival_ns) for life in lives),
        delivery_last=_summary(part["delivery"] for part in parts),
        steps=_summary(life.steps for life in lives),
        outside_share=(e2e - sum(part for part, _ in inside)) / e2e if e2e else None,
        client_tpot_ns=client,
        engine_tpot_ns=engine,
        delivery_share_of_tpot=(client - engine) / client if client and engine is not None else None,
        token_mismatches=[
            life.request_id
            for life in lives
            if None not in (life.engine_tokens, life.client_tokens)
            and life.engine_tokens != life.client_tokens
        ],
    )


def _tpots(whole: Sequence[RequestTiming], lives: Sequence[RequestLife]) -> tuple[float | None, float | None]:
    """The mean TPOT at the client and of the publications, over the requests that have both; a prefill publishes one."""
    by_id = {life.request_id: life for life in lives}
    pairs = []
    for timing in whole:
        life, parts = by_id.get(timing.request_id), tpot_parts(timing)
        if life is None or parts is None or life.first_token_ns is None or life.last_token_ns is None:
            continue
        if life.engine_tokens is not None and life.engine_tokens > 1:
            published = (life.last_token_ns - life.first_token_ns) / (life.engine_tokens - 1)
            pairs.append((parts[0] / parts[1], published))
    if not pairs:
        return None, None
    return sum(client for client, _ in pairs) / len(pairs), sum(engine for _, engine in pairs) / len(pairs)


def _summary(values: Iterable[int | None]) -> Summary:
    return summarize([value for value in values if value is not None])


def _between(first: int | None, last: int | None) -> int | None:
    return last - first if first is not None and last is not None else None
