"""The headline figures of a report: one row each, with the source it comes from."""

from __future__ import annotations

from analyzers.clients.requests import MtpFigures, RequestFigures
from analyzers.ranks.skew import RankSkew
from analyzers.report.model import Report
from analyzers.rundir import ServerFacts
from analyzers.statistics.summary import Summary
from analyzers.steps.pipeline import Pipeline
from analyzers.table.callables import is_prefill
from analyzers.text.figures import UNAVAILABLE, number, percent
from analyzers.text.tables import Column, Table
from analyzers.text.words import counted, some_of


def overview(report: Report) -> Table | None:
    """What a reader wants first; None when the recording has none of it."""
    rows = [*_run(report), *_client(report), *_steps(report), *_ranks(report), *_resources(report)]
    columns = [Column("figure"), Column("value"), Column("source")]
    return Table("Overview", columns, rows) if rows else None


def _run(report: Report) -> list[list[str]]:
    rows = []
    if report.run is not None:
        what = f"{report.run.profile}: {report.run.status}"
        if report.run.ranks or report.run.server is None:
            # Nobody says how many ranks another server has, nor how deep its pipeline is.
            depth = UNAVAILABLE if report.run.depth is None else str(report.run.depth)
            what += f", {counted(report.run.ranks, 'rank')}, depth {depth}"
        if report.run.restarts:
            what += f", {report.run.restarts} restarts"
        rows.append(["run", what, "run.json"])
        if report.run.server is not None:
            rows.append(["server", _server(report.run.server), "run.json"])
        if report.run.program_cache:
            cached = report.run.program_cache
            what = f"{cached.get('hits', 0)} hits, {cached.get('misses', 0)} misses"
            rows.append(["program cache", what, "run.json"])
    decode = _decode_pipeline(report)
    if decode is not None:
        source = "node.* records" if decode.scheduled.pairs else "serving trace"
        if not decode.scheduled.pairs and not decode.in_flight.pairs:
            source = "STRACE"
        rows.append(["pipeline", decode.statement, source])
    return rows


def _server(server: ServerFacts) -> str:
    """Which server was measured, and how long its start took where the run started it."""
    version = f" {server.version}" if server.version else ""
    what = f"{server.kind}{version} at {server.url}"
    if not server.started:
        return f"{what}, running already"
    return what if server.ready_s is None else f"{what}, ready after {server.ready_s:.1f} s"


def _drafts(report: Report) -> list[list[str]]:
    """The drafts that the server counted, where its answers say nothing of them."""
    server = report.run.server if report.run is not None else None
    told = any(figures.mtp is not None for figures in report.requests if figures.phase == "measured")
    if server is None or server.drafts is None or told:
        return []
    drafts = server.drafts
    rate = percent(drafts.accepted / drafts.proposed if drafts.proposed else None)
    source = "server's metrics" if drafts.source == "metrics" else drafts.source
    return [["MTP drafts accepted", f"{drafts.accepted} of {drafts.proposed} ({rate})", source]]


def _client(report: Report) -> list[list[str]]:
    measured = [figures for figures in report.requests if figures.phase == "measured"]
    rows = [row for figures in measured for row in _request_rows(figures, report)]
    return rows + _drafts(report) + _lives(report)


def _lives(report: Report) -> list[list[str]]:
    """How long requests waited, and how much of their time was not the engine's."""
    lives = report.request_lives
    if lives is None or lives.outside_share is None:
        return []
    outside = f"{percent(lives.outside_share, 2)} of E2E, {percent(lives.delivery_share_of_tpot, 2)} of tpot is delivery"
    return [
        ["queueing", _mean_and_median(lives.queueing), "serving trace"],
        ["outside of the engine", outside, "requests, serving trace"],
    ]


def _request_rows(figures: RequestFigures, report: Report) -> list[list[str]]:
    tokens = output_tokens(figures, report.run.expected_output_tokens if report.run is not None else None)
    if figures.failed:
        more = "an unknown number" if figures.failed_output_tokens is None else figures.failed_output_tokens
        tokens += f", {more} more of {figures.failed} failed requests"
    tpot = f"per-request mean {number(figures.tpot.mean)} ms, token-weighted {number(figures.tpot_token_weighted_ns)} ms"
    step = (
        f"mean {number(figures.step_time.mean)} ms a step, {number(figures.tokens_per_step, 1)} tokens a step"
    )
    rows = [
        ["output tokens", tokens, "requests"],
        ["tpot", tpot, "requests"],
        ["step_time", step, "requests"],
    ]
    if figures.prefix is not None:
        prefix = figures.prefix
        reused = (
            f"{prefix.cached_tokens} prompt tokens not prefilled, {prefix.hits} of {prefix.requests} requests"
        )
        rows.append(["prefix reuse", reused, "requests"])
    if figures.mtp is not None:
        rows += _mtp_rows(figures.mtp, figures)
    return rows


def output_tokens(figures: RequestFigures, expected: int | None = None) -> str:
    """The output tokens for people: of how many, and of which requests where not of all."""
    if figures.output_tokens is None:
        return UNAVAILABLE + _strangers(figures)
    told = str(figures.output_tokens) + (f" of {expected}" if expected is not None else "")
    if figures.tokens_unknown:
        answered = figures.requests - figures.failed
        told += f", of {answered - figures.tokens_unknown} of {counted(answered, 'request')}"
        told += _strangers(figures)
    return told


def _strangers(figures: RequestFigures) -> str:
    if not figures.fields_not_understood:
        return ""
    return f" (not understood: {some_of(figures.fields_not_understood)})"


def _mtp_rows(mtp: MtpFigures, figures: RequestFigures) -> list[list[str]]:
    rate = percent(mtp.acceptance_rate)
    accepted = (
        f"{mtp.accepted} of {mtp.proposed} ({rate}), acceptance length {number(mtp.acceptance_length, 1)}"
    )
    identity = f"{mtp.committed} = {mtp.steps} steps + {mtp.accepted} accepted"
    if mtp.discarded is not None and mtp.requests == figures.requests:
        # A request's first token comes from its prefill, and one more from each prefill after a preemption; its last
        # step may commit more than it asked for.
        prefill = f"{mtp.prefills} from prefill"
        identity += f"; emitted {figures.output_tokens} = {prefill} + {mtp.committed} committed - {mtp.discarded} discarded"
    return [["MTP drafts accepted", accepted, "requests"], ["MTP committed tokens", identity, "requests"]]


def _steps(report: Report) -> list[list[str]]:
    decode = [figures for figures in report.steps if not is_prefill(figures.callable)]
    rows = []
    for figures in decode[:1]:
        every = next((f for f in decode if f.scope == "all" and f.source == figures.source), figures)
        count = f"{every.latency.n} of {figures.callable}"
        if every is not figures:
            count += f", {figures.latency.n} of them steady"
        rows.append(["decode steps", count, "serving trace"])
        rows.append(
            [f"{figures.source}, {figures.scope}", _mean_and_median(figures.latency), "serving trace"]
        )
        if figures.completion.n:
            label = f"submit to node.complete, {figures.scope}"
            rows.append([label, _mean_and_median(figures.completion), "node.* records"])
    return rows


def _ranks(report: Report) -> list[list[str]]:
    skew = next((figures for figures in report.skew if not is_prefill(figures.callable)), None)
    if skew is None:
        return []
    rows = []
    if skew.critical_rank.root.n:
        mean = f"mean {number(skew.critical_rank.root.mean)} ms over {counted(skew.critical_rank.root.n, 'round')}"
        rows.append([f"critical rank, {skew.scope}", mean, "STRACE"])
    for label, summary in _skews(skew):
        if summary.n:
            spread = f"median {number(summary.p50)} ms, max {number(summary.max)} ms over {counted(len(skew.ranks), 'rank')}"
            rows.append([f"{label}, {skew.scope}", spread, "STRACE"])
    return rows


def _resources(report: Report) -> list[list[str]]:
    rows = []
    if report.resources:
        most = max(report.resources, key=lambda growth: growth.rss_growth)
        grown = percent(most.rss_growth, 2, signed=True)
        grown += f" ({most.process}) from round {most.first_steps} to {most.last_steps}"
        descriptors = max(growth.last_fds - growth.first_fds for growth in report.resources)
        rows.append(["memory growth, max", f"{grown}; file descriptors {descriptors:+d}", "resources.jsonl"])
    if report.mtp_accuracy is not None:
        accuracy = report.mtp_accuracy
        equal = accuracy.requests - accuracy.different_requests
        rows.append(["same tokens, MTP off", f"{equal} of {accuracy.requests} requests", "mtp_accuracy.json"])
    return rows


def _skews(skew: RankSkew) -> list[tuple[str, Summary]]:
    return [
        ("runner-start skew", skew.runner_start_skew),
        ("runner-end skew", skew.runner_end_skew),
        ("step-end skew", skew.step_end_skew),
    ]


def _mean_and_median(latency: Summary) -> str:
    return f"mean {number(latency.mean)} ms, median {number(latency.p50)} ms"


def _decode_pipeline(report: Report) -> Pipeline | None:
    return next((pipeline for pipeline in report.pipelines if not is_prefill(pipeline.callable)), None)
