"""A whole run directory with times chosen by hand comes back exactly.

143 decode steps 60 ms apart on 8 ranks, two in flight. Step i is dispatch i + 2 (dispatch 1 prefills the prompts).
Irregular on purpose: one late start (step 40, rank 3), two long tails (step 50, rank 5; step 90, rank 1), one lost
root record (step 70, rank 6), a wait that comes back out of order (step 101), one that starts before its submit ends
(step 57), a second prefill during steps 9 and 10, and a request that finishes before steps 141 and 142 do.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from analyzers.analysis import analyze, judge
from analyzers.ranks.skew import RankSkew
from analyzers.report.model import Report
from analyzers.report.tables import report_tables
from analyzers.report.terminal import render_terminal
from analyzers.rundir import RequestRecord, RunDirectory, RunTiming
from tests.builders import chrome, strace
from tests.builders.manifests import device_map, write_manifest
from tests.builders.requests import request, write_requests

US, MS = 1_000, 1_000_000
START = 1_000_000_000_000
PERIOD = 60 * MS
STEPS, RANKS = 143, 8
ENGINE, FIRST_RANK_PID = 500, 600
DECODE, PREFILL = "deepseek_v4_decode_mtp_fused", "deepseek_v4_prefill"
DECODE_HASH, PREFILL_HASH = "d1ec0de", "f111"


def submitted(step: int) -> int:
    return START + step * PERIOD


class Writer:
    """Collects the serving events and the ranks' records."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.records: list[list[str]] = [[] for _ in range(RANKS)]
        self.node_records: list[str] = []

    def event(self, name: str, start: int, end: int, tid: int, category: str, **args: int) -> None:
        self.events.append(
            chrome.event(
                name, start // US, (end - start) // US, pid=ENGINE, tid=tid, category=category, **args
            )
        )

    def record(
        self, rank: int, inv: int, hid: str, depth: int, name: str, start: int, end: int, ids: str = ""
    ) -> None:
        line = strace.record(
            name, start, end - start, pid=FIRST_RANK_PID + rank, inv=inv, hid=hid, depth=depth
        )
        self.records[rank].append(strace.logged(f"{line} {ids}", at=end))


def write_step(out: Writer, step: int) -> None:
    at, ids = submitted(step), {"step_id": step, "slot": step % 2, "dispatch_id": step + 2}
    out.event("WorkerProcess.prepare_decode", at - 15 * MS, at - 5 * MS, 1, "worker", step_id=step)
    out.event("WorkerProcess.dispatch_decode", at - MS, at + 3 * MS, 2, "worker", step_id=step)
    out.event(f"{DECODE}.worker_submit", at, at + 2 * MS, 2, "kernel", **ids)
    wait_start, wait_end, tid = at + 70 * MS, at + 100 * MS, 3
    if step == 57:
        wait_start = at + MS
    if step == 101:
        wait_start, wait_end, tid = at + 10 * MS, at + 30 * MS, 4
    out.event(f"{DECODE}.worker_wait", wait_start, wait_end, tid, "kernel", **ids)
    out.event("WorkerProcess.reclaim_decode", wait_start, wait_end + MS, tid, "worker", step_id=step)
    for rank in range(RANKS):
        write_rank_run(out, step, rank)
    of_run: dict[str, Any] = {"run_id": step + 2, "dispatch_id": step + 2, "role": "facade"}
    node = strace.record("node.submit", at, US, pid=ENGINE, tid=2, inv=step, **of_run)
    out.node_records.append(strace.logged(node, at=at))


def write_rank_run(out: Writer, step: int, rank: int) -> None:
    at, inv = submitted(step), step + 2
    root = at + 3 * MS + rank * 10 * US
    start = at + 20 * MS + rank * 10 * US + (6 * MS if (step, rank) == (40, 3) else 0)
    tail = {(50, 5): 7_420 * US, (90, 1): 5_500 * US}.get((step, rank), 0)
    end = at + 60 * MS + rank * 5 * US + tail
    validate = end + (52 * US if (step, rank) == (50, 5) else 10 * US)
    validated = validate + (227 * US if (step, rank) == (90, 1) else 150 * US)
    children = [
        ("pre_bind", root, root + 20 * US),
        ("bind", root + 100 * US, root + 200 * US),
        ("post_bind", root + 200 * US, root + 250 * US),
        ("runner_run", start, end),
        ("validate", validate, validated),
        ("claim_release", validated, validated + 30 * US),
    ]
    for name, child_start, child_end in children:
        out.record(rank, inv, DECODE_HASH, 1, f"chip.run.{name}", child_start, child_end)
    ids = f"run_id={step + 2} dispatch_id={step + 2} slot_id={step % 2} generation={step // 2} run_epoch={step + 2}"
    out.record(rank, inv, DECODE_HASH, 0, "chip.run", root, validated + 50 * US, ids)
    if (step, rank) == (70, 6):
        # Torn by another writer in the middle of its ts.
        out.records[rank][-1] = out.records[rank][-1].split(" ts=")[0] + " ts=10"


def write_prefill(out: Writer, dispatch: int, start: int, end: int) -> None:
    out.event(PREFILL, start, end, 2, "kernel")
    out.event(f"{PREFILL}.worker_run", start, end, 2, "kernel", dispatch_id=dispatch)
    for rank in range(RANKS):
        out.record(rank, dispatch, PREFILL_HASH, 1, "chip.run.runner_run", start + MS, end - MS)
        out.record(
            rank, dispatch, PREFILL_HASH, 0, "chip.run", start + MS, end - MS, f"dispatch_id={dispatch}"
        )


def answered(index: int, last_step: int) -> RequestRecord:
    times = [START - MS]
    for step in range(last_step + 1):
        times += [submitted(step) + 101 * MS] * (2 if step % 2 == 0 else 1)
    accepted = last_step // 2 + 1
    counts = {"accepted": accepted, "proposed": last_step + 1, "steps": last_step + 1, "discarded": 0}
    return request(f"request-{index}", times, rank=index % RANKS, send_ns=START - 200 * MS, **counts)


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = RunDirectory(tmp_path_factory.mktemp("generated"))
    out = Writer()
    write_prefill(out, 1, START - 150 * MS, START - 20 * MS)
    for step in range(STEPS):
        write_step(out, step)
    write_prefill(out, 1000, submitted(10) + 30 * MS, submitted(10) + 35 * MS)
    # Reversed: the order of a file is not the order of time.
    chrome.write_trace(run.serving_trace, out.events[::-1])
    for rank, records in enumerate(out.records):
        strace.write_log(run.rank_log(rank), *records)
    ranks_together = [line for lines in zip(*out.records, strict=True) for line in lines]
    strace.write_log(run.server_log, "engine starting", *ranks_together, *out.node_records)
    requests = [answered(0, last_step=140), *(answered(index, last_step=142) for index in range(1, 32))]
    warm_up = msgspec.structs.replace(answered(99, last_step=3), phase="warmup")
    write_requests(run.requests, warm_up, *requests)
    write_manifest(
        run,
        profile={"name": "generated", "engine": {"depth": 2}},
        device_map=device_map(range(RANKS), first_pid=FIRST_RANK_PID),
        timing=RunTiming(started_ns=START),
    )
    return run.root


@pytest.fixture(scope="module")
def report(run_directory: Path) -> Report:
    return analyze([run_directory])


def steady_decode(report: Report) -> RankSkew:
    return next(skew for skew in report.skew if (skew.callable, skew.scope) == (DECODE, "steady"))


def all_decode(report: Report) -> RankSkew:
    return next(skew for skew in report.skew if (skew.callable, skew.scope) == (DECODE, "all"))


def test_every_record_counts_once(report: Report) -> None:
    by_name = {Path(entry.path).name: entry for entry in report.inputs}
    events = STEPS * 5 + 2 * 2
    assert (by_name["trace.json"].records, by_name["trace.json"].lost) == (events, 0)
    per_rank = STEPS * 7 + 2 * 2
    assert [by_name[f"rank-{rank}.log"].records for rank in range(RANKS)] == [per_rank] * RANKS
    assert by_name["rank-6.log"].lost == 1
    # Of the server log only the scheduler's records are new; the torn record is the one of rank 6's own log.
    server = by_name["server.log"]
    assert (server.records, server.parsed, server.issues) == (STEPS, STEPS, [])
    assert report.lost == 1
    assert report.spans == events + per_rank * RANKS - 1 + STEPS
    assert report.ranks.ranks == list(range(RANKS))
    assert report.ranks.bases == ["manifest"]


def test_the_lost_record_decides_the_exit_code(report: Report) -> None:
    assert judge(report).exit_code == 4
    assert judge(report, max_loss=1).exit_code == 0
    assert judge(report, max_loss=1, strict=True).exit_code == 4


def test_lifecycles(report: Report) -> None:
    assert report.lifecycle.pairs == 142
    assert report.lifecycle.edges == []
    [fault] = report.lifecycle.faults
    assert (fault.kind, fault.spans[0].dispatch_id) == ("wait_before_submit_end", 59)
    assert str(MS) in fault.detail


def test_step_latency_by_identity(report: Report) -> None:
    figures = {(entry.callable, entry.scope): entry for entry in report.steps}
    every = figures[DECODE, "all"]
    assert every.source == "submit_to_completion"
    assert every.paired_by == {"dispatch_id": 142}
    assert every.latency.n == 142
    # Paired by order, step 101 would take over its neighbour's wait.
    assert (every.latency.min, every.latency.p50, every.latency.max) == (30 * MS, 100 * MS, 100 * MS)
    assert every.latency.mean == (141 * 100 * MS + 30 * MS) / 142
    steady = figures[DECODE, "steady"]
    assert (steady.latency.n, steady.latency.mean) == (137, (136 * 100 * MS + 30 * MS) / 137)
    assert steady.submit.max == 2 * MS
    blocking = figures[PREFILL, "all"]
    assert blocking.source == "blocking_kernel_span"
    assert (blocking.latency.n, blocking.latency.min, blocking.latency.max) == (2, 5 * MS, 130 * MS)


def test_pipeline(report: Report) -> None:
    [pipeline] = report.pipelines
    # 142 neighbouring submits, without the two pairs of step 57; step 102 is submitted after 101 came back.
    assert (pipeline.in_flight.overlapping, pipeline.in_flight.pairs) == (139, 140)
    assert (pipeline.state, pipeline.most_in_flight, pipeline.declared_depth) == ("in flight", 2, 2)
    assert pipeline.statement.startswith("two in flight")
    assert (pipeline.prepare.overlapping, pipeline.prepare.pairs) == (140, 140)
    # Only the long tails reach into the next bind; the second prefill ran between rounds 10 and 11.
    assert (pipeline.bind.overlapping, pipeline.bind.pairs) == (2, 141)
    assert (pipeline.cadence.min, pipeline.cadence.max) == (PERIOD, PERIOD)
    left_out = {entry.reason: entry.count for entry in pipeline.steady.left_out}
    assert left_out == {"first decode step": 1, "batch not full": 2, "prefill in flight": 2}
    assert (pipeline.steady.steps, pipeline.steady.batch_known) == (137, True)


def test_rounds_are_matched_by_identity_and_the_lost_one_is_incomplete(report: Report) -> None:
    skew = all_decode(report)
    assert skew.matched_by == "dispatch_id"
    assert (skew.rounds, skew.roots) == (143, 143 * 8 - 1)
    [incomplete] = skew.incomplete
    assert (incomplete.round, incomplete.key, incomplete.missing_ranks) == (70, [72], [6])
    prefill = next(entry for entry in report.skew if entry.callable == PREFILL)
    assert (prefill.rounds, prefill.roots) == (2, 16)


def test_skews(report: Report) -> None:
    skew = steady_decode(report)
    assert skew.rounds == 137
    start = skew.runner_start_skew
    usual = 70 * US
    assert (start.n, start.p50, start.p95, start.p99, start.max) == (136, usual, usual, usual, 6_030 * US)
    assert start.mean == (135 * 70 * US + 6_030 * US) / 136
    end = skew.runner_end_skew
    assert end.mean == (134 * 35 * US + 7_445 * US + 5_505 * US) / 136
    assert (end.min, end.max) == (35 * US, 7_445 * US)
    assert skew.step_end_skew.mean == (134 * 35 * US + 7_487 * US + 5_582 * US) / 136
    assert (skew.rounds_over_late_start_skew, skew.rounds_over_late_end_skew) == (1, 2)


def test_late_start_and_long_tails(report: Report) -> None:
    skew = steady_decode(report)
    [late] = skew.late_starts
    assert (late.round, late.key, late.rank, late.after_median_ns) == (40, [42], 3, 5_985 * US)
    assert [(tail.round, tail.rank, tail.after_median_ns) for tail in skew.long_tails] == [
        (50, 5, 7_427.5 * US),
        (90, 1, 5_482.5 * US),
    ]


def test_phases_and_gaps(report: Report) -> None:
    skew = steady_decode(report)
    runs = 137 * 8 - 1
    gap = skew.runner_to_validate_gap
    assert (gap.n, gap.p50, gap.max) == (runs, 10 * US, 52 * US)
    assert gap.mean == ((runs - 1) * 10 * US + 52 * US) / runs
    assert (skew.validate.p95, skew.validate.max) == (150 * US, 227 * US)
    assert (skew.bind.min, skew.bind.max) == (100 * US, 100 * US)
    assert skew.host_excess.n == 0
    # Every run but the one before the lost one, whose idle time nobody knows.
    assert skew.device_bubble.n == runs - 1
    # From a long tail to the next start is the shortest bubble, before the late start the longest.
    assert skew.device_bubble.min == 20 * MS + 25 * US - 7_420 * US
    assert skew.device_bubble.max == 20 * MS + 15 * US + 6 * MS


def test_critical_rank(report: Report) -> None:
    critical = steady_decode(report).critical_rank
    assert critical.counts == {0: 134, 1: 1, 5: 1}
    usual = 57 * MS + 210 * US
    step_50 = usual - 25 * US + 7_420 * US + 42 * US
    step_90 = usual - 5 * US + 5_500 * US + 77 * US
    assert critical.root.mean == (134 * usual + step_50 + step_90) / 136
    means = [summary.mean for summary in critical.phases.values()]
    assert sum(mean for mean in means if mean is not None) == pytest.approx(critical.root.mean)
    assert critical.phases["pre_bind"].mean == 20 * US


def test_every_rank_by_itself(report: Report) -> None:
    by_rank = {times.rank: times for times in steady_decode(report).by_rank}
    assert list(by_rank) == list(range(RANKS))
    # From 20 ms + 10 us a rank to 60 ms + 5 us a rank after the submit; rank 5 has a long tail, rank 6 a lost root.
    assert by_rank[7].runner_run.mean == 40 * MS - 35 * US
    assert by_rank[5].runner_run.mean == (137 * (40 * MS - 25 * US) + 7_420 * US) / 137
    assert [by_rank[rank].root.n for rank in (5, 6)] == [137, 136]


def test_who_is_last(report: Report) -> None:
    skew = steady_decode(report)
    assert skew.last_to_start.counts == {**dict.fromkeys(range(RANKS), 0), 3: 1, 7: 135}
    assert skew.last_to_end.counts == {**dict.fromkeys(range(RANKS), 0), 1: 1, 5: 1, 7: 134}
    # Persistently last, but by 35 us: evidence, not a warning.
    stragglers = [finding for finding in report.findings if finding.code == "straggler"]
    assert {(finding.severity, "rank 7" in finding.title) for finding in stragglers} == {("info", True)}


def test_requests(report: Report) -> None:
    figures = next(entry for entry in report.requests if entry.phase == "measured")
    assert (figures.requests, figures.failed, figures.output_tokens) == (32, 0, 31 * 216 + 213)
    assert (figures.ttft.min, figures.ttft.max) == (199 * MS, 199 * MS)
    assert figures.e2e.max == 8_821 * MS
    assert figures.tpot.mean == pytest.approx((31 * 8_622 / 215 + 8_502 / 212) / 32 * MS)
    assert figures.tpot_token_weighted_ns == (31 * 8_622 + 8_502) * MS / (31 * 215 + 212)
    assert figures.tokens_per_step == (31 * 215 + 212) / (31 * 143 + 141)
    assert figures.elapsed_ns == 8_821 * MS
    assert figures.throughput_per_s == pytest.approx((31 * 216 + 213) / 8.821)
    # Lengths differ: an effective TPOT would mix them.
    assert figures.effective_tpot_ns is None
    assert figures.full_batch_window_ns == (START - MS, submitted(140) + 101 * MS)
    assert figures.full_batch_throughput_per_s == pytest.approx(32 * 212 / 8.502)
    mtp = figures.mtp
    assert mtp is not None
    assert (mtp.steps, mtp.accepted, mtp.proposed) == (31 * 143 + 141, 31 * 72 + 71, 31 * 143 + 141)
    assert mtp.committed == mtp.steps + mtp.accepted
    assert mtp.acceptance_length == 1 + mtp.accepted / mtp.steps
    assert mtp.impossible == mtp.identity_broken == []


def test_warm_up_stands_apart(report: Report) -> None:
    warm_up = next(entry for entry in report.requests if entry.phase == "warmup")
    assert (warm_up.requests, warm_up.output_tokens) == (1, 1 + 4 + 2)


@pytest.mark.parametrize("width", [80, 120])
def test_the_whole_report_fits_a_terminal(report: Report, width: int) -> None:
    output = io.StringIO()
    render_terminal(report, report_tables(report), Console(file=output, width=width, force_terminal=True))
    text = re.sub(r"\x1b\[[0-9;]*m", "", output.getvalue())
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for table in report_tables(report):
        drawn = text.split(f"{table.title}\n", 1)[1].split("\n\n", 1)[0]
        for column in table.columns:
            assert all(word in drawn for word in column.heading.split()), (table.title, column.heading)
    # What a number says is never cut or folded: 0.070 0.070 0.070 0.070 6.030 ms.
    assert re.search(r"runner-start skew +136 +0\.114 +0\.070 +0\.070 +0\.070 +6\.030", text)
    assert re.search(r"tpot, per request +32 +40\.102 ", text)


def test_any_one_file_alone_is_readable(run_directory: Path) -> None:
    run = RunDirectory(run_directory)
    serving = analyze([run.serving_trace])
    assert serving.lifecycle.pairs == 142
    assert serving.skew == []
    rank_log = analyze([run.rank_log(3)])
    assert sum(entry.rounds for entry in rank_log.skew) == 145
    assert (rank_log.ranks.ranks, rank_log.ranks.bases) == ([3], ["file name"])
    requests = analyze([run.requests])
    assert requests.spans == 0
    assert judge(requests).exit_code == 0
    assert judge(analyze([run.manifest])).exit_code == 3


def test_the_server_log_replaces_missing_rank_logs(run_directory: Path) -> None:
    server = analyze([RunDirectory(run_directory).server_log])
    assert server.lost == 1
    [decode] = [entry for entry in server.skew if entry.callable == f"hid {DECODE_HASH}"]
    assert decode.runner_start_skew.max == 6_030 * US
    assert decode.roots == 143 * 8 - 1
    # Nothing in this log names the ranks but the order of their pids.
    assert server.ranks.bases == ["pid order"]


def test_rank_logs_and_trace_given_apart_are_the_same_recording(run_directory: Path) -> None:
    run = RunDirectory(run_directory)
    report = analyze([run.serving_trace, *(run.rank_log(rank) for rank in range(RANKS))])
    skew = all_decode(report)
    assert skew.runner_end_skew.max == 7_445 * US
    [pipeline] = report.pipelines
    assert pipeline.prepare.pairs == 140
