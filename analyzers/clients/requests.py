"""What the clients saw: latencies, rates and MTP counts of requests (docs/metrics.md, Requests)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import msgspec
import numpy as np

from analyzers.clients.goodput import Goodput, SloMetric, Slos, measure_goodput
from analyzers.readers.request_timing import RequestTiming
from analyzers.statistics.summary import Summary, summarize
from analyzers.table.intervals import Interval
from analyzers.table.spans import Int64s

_SECOND_NS = 1_000_000_000


class MtpFigures(msgspec.Struct, frozen=True):
    """Speculative decoding counts over requests; rates are None where the counts are impossible or 0."""

    requests: int
    steps: int
    proposed: int
    accepted: int
    committed: int
    """steps + accepted."""
    prefills: int
    """Each publishes one token; a preempted request has more than one."""
    discarded: int | None
    """Tokens committed beyond the requests' ends; None when a request does not say."""
    acceptance_rate: float | None
    """accepted / proposed."""
    acceptance_length: float | None
    """1 + accepted / steps: the bonus token counts."""
    impossible: list[str]
    """Requests whose counts cannot be: accepted more than proposed."""
    identity_broken: list[str]
    """Requests for which prefills + steps + accepted is not output tokens + discarded tokens."""


class PrefixFigures(msgspec.Struct, frozen=True):
    """Prefix reuse over requests: how many began behind a cached prefix, and the positions not prefilled so."""

    requests: int
    hits: int
    cached_tokens: int


class RequestFigures(msgspec.Struct, frozen=True):
    """Figures of the requests of one phase; times in ns at the client, rates in tokens a second."""

    phase: Literal["measured", "warmup"]
    requests: int
    """Those that ended, well or not."""
    failed: int
    output_tokens: int | None
    """Of the requests whose tokens are known; None where those of none are."""
    failed_output_tokens: int | None
    """Delivered to requests that failed: in no other figure; None where one of them does not tell."""
    ttft: Summary
    e2e: Summary
    tpot: Summary
    """(last - first) / (n - tokens in the first chunk) of each request; its mean is the per-request mean."""
    tpot_token_weighted_ns: float | None
    tpot_undefined: int
    """Requests with fewer than two tokens, or all of them in one chunk: left out, never 0."""
    tpot_incl_first: Summary
    """E2E / n."""
    step_time: Summary
    """Gap between the output events of a request."""
    tokens_per_step: float | None
    """Mean tokens of the output events after a request's first."""
    elapsed_ns: int | None
    """First send to last token."""
    throughput_per_s: float | None
    peak_per_s: float | None
    effective_tpot_ns: float | None
    """elapsed / output tokens per request, prefill included; only for equal lengths."""
    full_batch_window_ns: tuple[int, int] | None
    full_batch_throughput_per_s: float | None
    mtp: MtpFigures | None
    prefix: PrefixFigures | None = None
    """None where the engine reuses no prefixes."""
    mismatch_pct: float | None = None
    """How far token counts by tokenizing the text again are off the engine's, in % of them: in no other figure."""
    goodput: Goodput | None = None
    """None where no objective was asked for."""
    cut: int = 0
    """Requests in flight when the time was up, neither done nor failed: in no other figure."""
    tokens_unknown: int = 0
    """Requests that did not fail and whose output tokens their records do not tell."""
    fields_not_understood: list[str] = []
    """Fields of records that lack tokens or times, and may hold them under a name that is not known here."""
    peak_unavailable: str | None = None
    """Why there is no peak; None where there is one."""


def measure_requests(timings: Sequence[RequestTiming], slos: Slos | None = None) -> list[RequestFigures]:
    """Figures of the measured requests, then of the warm-up ones; [] without requests."""
    figures = []
    phases: tuple[Literal["measured", "warmup"], ...] = ("measured", "warmup")
    for phase in phases:
        chosen = [timing for timing in timings if timing.phase == phase]
        if chosen:
            ended = [timing for timing in chosen if not timing.was_cut]
            measured = _measure(phase, ended, slos)
            figures.append(msgspec.structs.replace(measured, cut=len(chosen) - len(ended)))
    return figures


def full_batch_window(timings: Sequence[RequestTiming]) -> Interval | None:
    """Last request's first token to first request's last token; None when the batch was never whole."""
    timed = [timing for timing in timings if timing.is_whole]
    if not share_a_clock(timed):
        return None
    firsts = [timing.first_ns for timing in timed if timing.first_ns is not None]
    lasts = [timing.last_ns for timing in timed if timing.last_ns is not None]
    if not timed or len(firsts) != len(timed) or len(lasts) != len(timed):
        return None
    window = Interval(max(firsts), min(lasts))
    return window if window.duration_ns > 0 else None


def share_a_clock(timings: Sequence[RequestTiming]) -> bool:
    """Whether times of several requests may be set against each other."""
    return len(timings) < 2 or all(timing.is_placed for timing in timings)


def _measure(
    phase: Literal["measured", "warmup"], timings: Sequence[RequestTiming], slos: Slos | None
) -> RequestFigures:
    good = [timing for timing in timings if timing.is_whole]
    counts = [timing.output_tokens for timing in good if timing.output_tokens is not None]
    tpots = [(timing, tpot) for timing in good if (tpot := tpot_parts(timing)) is not None]
    events = _arrivals(good)
    gaps = [gap for timing in good for gap in step_gaps(timing)]
    later = [tokens for timing in good for _, tokens in (timing.chunks or ())[1:]]
    output_tokens = sum(counts) if counts or not good else None
    elapsed = _elapsed(good)
    # A rate of the tokens of some of the requests would be one of nothing.
    throughput = sum(counts) * _SECOND_NS / elapsed if elapsed and len(counts) == len(good) else None
    peak = _peak(good, events, elapsed, throughput)
    window = full_batch_window(timings)
    weights = sum(tokens for _, (_, tokens) in tpots)
    return RequestFigures(
        phase=phase,
        requests=len(timings),
        failed=len(timings) - len(good),
        output_tokens=output_tokens,
        failed_output_tokens=_failed_tokens([timing for timing in timings if timing.error is not None]),
        ttft=summarize([a for timing in good if (a := _since_send(timing, timing.first_ns)) is not None]),
        e2e=summarize([a for timing in good if (a := _since_send(timing, timing.last_ns)) is not None]),
        tpot=summarize([duration / tokens for _, (duration, tokens) in tpots]),
        tpot_token_weighted_ns=sum(duration for _, (duration, _) in tpots) / weights if weights else None,
        tpot_undefined=len(good) - len(tpots),
        tpot_incl_first=summarize(
            [
                latency / timing.output_tokens
                for timing in good
                if timing.output_tokens and (latency := _since_send(timing, timing.last_ns)) is not None
            ]
        ),
        step_time=summarize(gaps),
        tokens_per_step=sum(later) / len(later) if later else None,
        elapsed_ns=elapsed,
        throughput_per_s=throughput or None,
        peak_per_s=peak if not isinstance(peak, str) else None,
        effective_tpot_ns=_effective_tpot(good, elapsed),
        full_batch_window_ns=(window.start_ns, window.end_ns) if window is not None else None,
        full_batch_throughput_per_s=_rate_inside(events, window)
        if window is not None and events is not None
        else None,
        mtp=_mtp(good),
        prefix=_prefix(good),
        mismatch_pct=_mismatch(good),
        goodput=measure_goodput([_latencies(timing) for timing in timings], slos, elapsed) if slos else None,
        tokens_unknown=len(good) - len(counts),
        fields_not_understood=sorted({name for timing in good for name in timing.not_understood}),
        peak_unavailable=peak if isinstance(peak, str) else None,
    )


def _latencies(timing: RequestTiming) -> dict[SloMetric, float | None] | None:
    """What objectives are compared with; None for a failed request."""
    if not timing.is_whole:
        return None
    parts = tpot_parts(timing)
    return {
        "ttft": _since_send(timing, timing.first_ns),
        "tpot": None if parts is None else parts[0] / parts[1],
        "e2e": _since_send(timing, timing.last_ns),
    }


def _mismatch(timings: Sequence[RequestTiming]) -> float | None:
    compared = [
        (timing.retokenized, timing.output_tokens)
        for timing in timings
        if timing.retokenized is not None and timing.output_tokens
    ]
    tokens = sum(count for _, count in compared)
    return 100 * sum(abs(again - count) for again, count in compared) / tokens if tokens else None


def _since_send(timing: RequestTiming, time: int | None) -> int | None:
    return time - timing.send_ns if time is not None and timing.send_ns is not None else None


def step_gaps(timing: RequestTiming) -> list[int]:
    """The times between the output events of a request: the values of `step_time`."""
    return [after - before for (before, _), (after, _) in pairwise(timing.chunks or ())]


def tpot_parts(timing: RequestTiming) -> tuple[int, int] | None:
    """(last - first, tokens after the first chunk); None where TPOT is undefined."""
    if timing.first_ns is None or timing.last_ns is None or timing.output_tokens is None:
        return None
    tokens = timing.output_tokens - timing.first_chunk_tokens
    return (timing.last_ns - timing.first_ns, tokens) if tokens > 0 else None


def _elapsed(timings: Sequence[RequestTiming]) -> int | None:
    sends = [timing.send_ns for timing in timings if timing.send_ns is not None]
    lasts = [timing.last_ns for timing in timings if timing.last_ns is not None]
    # The first to be sent, or the last to end, may be one whose time is not known.
    is_open = any(timing.last_ns is None and timing.output_tokens != 0 for timing in timings)
    if len(sends) < len(timings) or is_open or not lasts or not share_a_clock(timings):
        return None
    return max(lasts) - min(sends)


def _failed_tokens(failed: Sequence[RequestTiming]) -> int | None:
    """Output tokens of requests that failed; one that got output without a count makes their number unknown."""
    if any(timing.output_tokens is None and timing.first_ns is not None for timing in failed):
        return None
    return sum(timing.output_tokens or 0 for timing in failed)


def _arrivals(timings: Sequence[RequestTiming]) -> tuple[Int64s, Int64s] | None:
    """(time in ns, tokens) of all output events in order of time; None where some tokens' arrivals are not known.

    Without those a rate in a part of the time would miss them.
    """
    if any(timing.chunks is None and timing.output_tokens != 0 for timing in timings):
        return None
    events = [event for timing in timings for event in timing.chunks or ()]
    if not events or not share_a_clock(timings):
        return None
    times, tokens = np.array(events, dtype=np.int64).T
    order = np.argsort(times, kind="stable")
    return times[order], tokens[order]


def _peak(
    timings: Sequence[RequestTiming],
    events: tuple[Int64s, Int64s] | None,
    elapsed_ns: int | None,
    mean_per_s: float | None,
) -> float | str:
    """The most tokens in any half-open window of one second that begins at an arrival; or why there is no such rate."""
    if not timings:
        return "no request was answered"
    if events is None:
        return "when each of the tokens arrived is not known"
    times, tokens = events
    span = elapsed_ns if elapsed_ns is not None else int(times[-1] - times[0])
    if span < _SECOND_NS:
        return f"the requests took {span / 1e6:g} ms, less than a second"
    totals = np.concatenate([[0], np.cumsum(tokens)])
    # Of equal times the first: its window holds the others.
    first = np.searchsorted(times, times, side="left")
    most = int((totals[np.searchsorted(times, times + _SECOND_NS, side="left")] - totals[first]).max())
    if mean_per_s is not None and most < mean_per_s:
        # Both ends of the elapsed time count, only one of a window: over few seconds that can be more.
        return f"no second holds more than {most} tokens, fewer than the mean: too short to tell"
    return float(most)


def _rate_inside(events: tuple[Int64s, Int64s], window: Interval) -> float | None:
    times, counts = events
    tokens = int(counts[(window.start_ns < times) & (times <= window.end_ns)].sum())
    return tokens * _SECOND_NS / window.duration_ns if tokens else None


def _effective_tpot(timings: Sequence[RequestTiming], elapsed_ns: int | None) -> float | None:
    lengths = {timing.output_tokens for timing in timings}
    if elapsed_ns is None or len(lengths) != 1:
        return None
    length = lengths.pop()
    return elapsed_ns / length if length else None


def _prefills(timing: RequestTiming) -> int:
    """Prefills that published a token: one, where a record does not say."""
    return 1 if timing.prefills is None else timing.prefills


def _prefix(timings: Sequence[RequestTiming]) -> PrefixFigures | None:
    cached = [timing.cached_tokens for timing in timings if timing.cached_tokens is not None]
    return PrefixFigures(len(cached), sum(tokens > 0 for tokens in cached), sum(cached)) if cached else None


def _mtp(timings: Sequence[RequestTiming]) -> MtpFigures | None:
    counted = [
        (timing, timing.steps, timing.proposed, timing.accepted)
        for timing in timings
        if timing.steps is not None and timing.proposed is not None and timing.accepted is not None
    ]
    steps = sum(item[1] for item in counted)
    proposed = sum(item[2] for item in counted)
    accepted = sum(item[3] for item in counted)
    discarded = [timing.discarded for timing, *_ in counted]
    if not counted or (proposed == 0 and accepted == 0):
        return None
    impossible = [
        timing.request_id
        for timing, count, offered, taken in counted
        if taken > offered or min(count, taken) < 0
    ]
    return MtpFigures(
        requests=len(counted),
        steps=steps,
        proposed=proposed,
        accepted=accepted,
        committed=steps + accepted,
        prefills=sum(_prefills(timing) for timing, *_ in counted),
        discarded=None if None in discarded else sum(filter(None, discarded)),
        acceptance_rate=accepted / proposed if proposed and not impossible else None,
        acceptance_length=1 + accepted / steps if steps and not impossible else None,
        impossible=impossible,
        identity_broken=[
            timing.request_id
            for timing, count, _, taken in counted
            if timing.output_tokens is not None
            and timing.discarded is not None
            and _prefills(timing) + count + taken != timing.output_tokens + timing.discarded
        ],
    )
