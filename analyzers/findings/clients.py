"""What the clients saw, and what the processes held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from statistics import median

from analyzers.clients.requests import RequestFigures
from analyzers.clients.resources import GROWTH_LIMIT
from analyzers.measurement import Measured
from analyzers.recording.recording import Recording
from analyzers.report.model import Finding, Report, Severity
from analyzers.statistics.summary import summarize
from analyzers.steps.pipeline import PipelineResult
from analyzers.text.words import counted, milliseconds, some_of

COLD_START_RATIO = 3
"""How many times slower than the rest a first wave must be to be reported."""

COLD_STEPS_SHARE = 20
"""One in so many steps, the first ones, is compared with the rest."""

_REASONS_SHOWN = 3
_REASON_LENGTH = 300
"""Of the words of an error that are told, characters."""


def clients(measured: Measured, report: Report) -> Iterable[Finding]:
    """What is wrong with requests, warm-up, resources and MTP's tokens."""
    for figures in report.requests:
        timings = measured.recording.requests
        errors = [timing.error for timing in timings if timing.phase == figures.phase and timing.error]
        yield from _requests(figures, errors)
    yield from _cold_start(measured.recording)
    for pipeline in measured.pipelines:
        yield from _cold_steps(pipeline)
    yield from _fell_behind(report)
    yield from _prompt_tokens(measured.recording)
    yield from _tokens(report)
    yield from _resources(report)
    yield from _mtp_accuracy(report)


def _fell_behind(report: Report) -> Iterable[Finding]:
    """The load was not the one that was asked for."""
    client = report.run.client if report.run is not None else None
    if client is None or client.kept_up:
        return
    evidence = f"{client.reason}; most in flight {client.most_in_flight}"
    if client.cpu_share is not None:
        evidence += f", its thread took {client.cpu_share:.0%} of a processor"
    yield Finding(
        "client_fell_behind",
        "warning",
        "the client could not keep up with its own plan: its latencies are of another load",
        evidence,
        "give it a processor of its own, or a lower rate",
    )


def _prompt_tokens(recording: Recording) -> Iterable[Finding]:
    """Prompts that the server counts otherwise: its tokenizer is another one, or it adds tokens of its own."""
    pairs = [
        (timing, timing.prompt_tokens, timing.server_prompt_tokens)
        for timing in recording.requests
        if timing.phase == "measured" and timing.prompt_tokens and timing.server_prompt_tokens is not None
    ]
    differing = [entry for entry in pairs if entry[1] != entry[2]]
    if not differing:
        return
    timing, planned, counted_there = differing[0]
    yield Finding(
        "prompt_tokens",
        "warning",
        f"the server counts other prompt tokens than the load has in {len(differing)} of {counted(len(pairs), 'request')}",
        f"first: request {timing.request_id}, {planned} by the model's tokenizer, {counted_there} by the server",
        "its tokenizer is another one, or it adds tokens, as chat templates do: lengths are not those of the profile",
        figures={"requests": len(differing)},
    )


def _tokens(report: Report) -> Iterable[Finding]:
    """Requests of which the engine published other tokens than its client counts."""
    lives = report.request_lives
    if lives is None or not lives.token_mismatches:
        return
    title = f"client and engine count different output tokens in {counted(len(lives.token_mismatches), 'request')}"
    yield Finding(
        "tokens_contradict",
        "error",
        title,
        f"of {lives.joined} that are joined; first: request {lives.token_mismatches[0]}",
        "tokens were lost between engine and client, or one of them counts something else",
        figures={"requests": len(lives.token_mismatches)},
    )


def _requests(figures: RequestFigures, errors: list[str]) -> Iterable[Finding]:
    if figures.failed:
        severity: Severity = "error" if figures.failed == figures.requests else "warning"
        title = f"failed={figures.failed} of {figures.requests} {figures.phase} requests"
        yield Finding(
            "requests_failed",
            severity,
            title,
            f"a request that failed is in no latency{_reasons(errors)}",
            "read the error of each in requests.jsonl, or in the table of requests of report.html",
        )
    if figures.cut:
        title = f"{counted(figures.cut, f'{figures.phase} request')} in flight when the time was up (edge={figures.cut})"
        evidence = "neither done nor failed: in no latency and no rate, neither met nor missed in the goodput"
        yield Finding("edge_of_window", "info", title, evidence)
    yield from _unknown(figures)
    mtp = figures.mtp
    if mtp is not None and mtp.impossible:
        title = f"impossible MTP counts in {counted(len(mtp.impossible), 'request')}: no acceptance rate is made of them"
        evidence = f"first: request {mtp.impossible[0]} accepted more drafts than were proposed"
        yield Finding("mtp_impossible", "error", title, evidence, "check for counter resets")
    if mtp is not None and mtp.identity_broken:
        title = (
            f"1 + steps + accepted differs from the tokens of {counted(len(mtp.identity_broken), 'request')}"
        )
        yield Finding("mtp_identity", "warning", title, f"first: request {mtp.identity_broken[0]}")


def _reasons(errors: list[str]) -> str:
    """The errors that most requests failed with, the most frequent first, and how many others there are."""
    counts = Counter(errors).most_common()
    told = [f"{count} with {_shortened(error)}" for error, count in counts[:_REASONS_SHOWN]]
    if len(counts) > _REASONS_SHOWN:
        rest = sum(count for _, count in counts[_REASONS_SHOWN:])
        told.append(f"{rest} with {counted(len(counts) - _REASONS_SHOWN, 'other error')}")
    return "".join(f"; {reason}" for reason in told)


def _shortened(error: str) -> str:
    text = " ".join(error.split())
    return text if len(text) <= _REASON_LENGTH else f"{text[:_REASON_LENGTH]}..."


def _unknown(figures: RequestFigures) -> Iterable[Finding]:
    """What records do not tell, or tell in fields that nobody here knows."""
    if not figures.tokens_unknown and not figures.fields_not_understood:
        return
    answered = figures.requests - figures.failed
    if figures.tokens_unknown:
        title = (
            f"the output tokens of {figures.tokens_unknown} of {counted(answered, f'{figures.phase} request')} "
            "cannot be told: every rate of them is unavailable"
        )
    else:
        title = f"some times of the {figures.phase} requests cannot be told"
    strangers = figures.fields_not_understood
    evidence = f"fields not understood: {some_of(strangers)}" if strangers else "their records do not say"
    advice = "write output_tokens, chunks or tokens_at, and times with their unit (docs/formats.md)"
    yield Finding("request_fields", "warning", title, evidence, advice)


def _cold_start(recording: Recording) -> Iterable[Finding]:
    """Requests sent before any answered, in a file that does not set warm-up apart, and much slower than the rest."""
    if recording.requests_have_phases:
        return
    ttfts = [
        (timing.send_ns, timing.first_ns)
        for timing in recording.requests
        if timing.send_ns is not None and timing.first_ns is not None and timing.is_placed
    ]
    first_answer = min((first for _, first in ttfts), default=0)
    wave = summarize([first - send for send, first in ttfts if send <= first_answer]).p50
    rest = summarize([first - send for send, first in ttfts if send > first_answer]).p50
    if wave is None or not rest or wave < COLD_START_RATIO * rest:
        return
    title = f"first wave is {wave / rest:.0f}x the median: cold start inside the sample?"
    evidence = f"median TTFT {milliseconds(wave)} before the first answer, {milliseconds(rest)} after it"
    yield Finding("cold_start", "warning", title, evidence, "mark warm-up requests with a phase")


def _cold_steps(pipeline: PipelineResult) -> Iterable[Finding]:
    """The first of the steady steps much slower than the rest: they belong to the warm-up."""
    latencies = pipeline.steady_steps.submit_to_completion_ns.tolist()
    first = len(latencies) // COLD_STEPS_SHARE
    if not first:
        return
    cold, rest = median(latencies[:first]), median(latencies[first:])
    # A step that is as slow later on has another reason.
    if rest > 0 and cold >= COLD_START_RATIO * rest and cold > max(latencies[first:]):
        take = "the first steady step takes" if first == 1 else f"the first {first} steady steps take"
        title = f"{pipeline.figures.callable}: {take} {cold / rest:.0f}x the median"
        yield Finding(
            "cold_start",
            "warning",
            title + ": cold start inside the sample?",
            f"median submit-to-completion {milliseconds(cold)}, then {milliseconds(rest)}",
            "warm up for longer, or leave them out with --steps",
            figures={"steps": first, "cold_ns": cold, "rest_ns": rest},
            spans=[pipeline.steady_steps[0].submit.reference()],
        )


def _resources(report: Report) -> Iterable[Finding]:
    for growth in report.resources:
        during = f"from round {growth.first_steps} to round {growth.last_steps}"
        if growth.rss_growth > GROWTH_LIMIT:
            title = f"{growth.process}: resident memory grew by {100 * growth.rss_growth:.1f} % {during}"
            evidence = f"{growth.first_rss_bytes / 2**20:.1f} to {growth.last_rss_bytes / 2**20:.1f} MiB"
            yield Finding("resource_growth", "warning", title, evidence, "see resources.jsonl for its course")
        for what, first, last in (
            ("open file descriptor", growth.first_fds, growth.last_fds),
            ("shared-memory region", growth.first_shared_regions, growth.last_shared_regions),
        ):
            if last > first:
                title = f"{growth.process}: {counted(last - first, f'more {what}')} {during}"
                advice = "see resources.jsonl for its course, and look for what is opened at every step"
                yield Finding("resource_growth", "warning", title, f"{first} to {last}", advice)


def _mtp_accuracy(report: Report) -> Iterable[Finding]:
    accuracy = report.mtp_accuracy
    if accuracy is None:
        return
    sizes = f"{counted(accuracy.requests, 'request')}, {counted(accuracy.tokens, 'token')}"
    compared = f"{sizes}, engine.mtp = {accuracy.mtp} and 0"
    difference = accuracy.first_difference
    if difference is None:
        yield Finding("mtp_accuracy", "info", "MTP on and off generate the same tokens", compared)
        return
    first, second = (
        "the end" if token is None else f"token {token}"
        for token in (difference.with_mtp, difference.without_mtp)
    )
    title = (
        f"MTP changes the tokens of {accuracy.different_requests} of {counted(accuracy.requests, 'request')}"
    )
    evidence = f"first: {difference.request_id}, output position {difference.position}: {first} with MTP, {second} without"
    yield Finding(
        "mtp_accuracy", "error", title, evidence, "compare requests.jsonl with a run at engine.mtp=0"
    )
