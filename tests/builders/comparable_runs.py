"""Small run directories whose every time is known, to compare.

24 decode steps on 8 ranks, one in flight. A step takes, in ms: 1 remainder, 1 schedule, 2 prepare, 1 submit, 1 queue,
1 bind, the longest runner, 1 validate, 1 wait and 2 reclaim: 11 and the runner. Four requests are in every step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analyzers.machine import MachineFacts
from analyzers.rundir import RequestRecord, RunDirectory, RunTiming
from tests.builders import chrome, strace
from tests.builders.manifests import device_map, write_manifest
from tests.builders.requests import request, write_requests

US, MS = 1_000, 1_000_000
STEPS, RANKS, REQUESTS = 24, 8, 4
DECODE = "deepseek_v4_decode_mtp_fused"
RUNNER_MS = 20.0
OVERHEAD_MS = 11.0
TOKENS = (2, 1)
"""Tokens of the steps in turn."""

_START = 1_000_000_000_000
_ENGINE = 500


def write_run(
    root: Path,
    *,
    runner_ms: float = RUNNER_MS,
    rank_runner_ms: Mapping[int, float] | None = None,
    prepare_ms: float = 2.0,
    tokens: Sequence[int] = TOKENS,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    processor: str = "p",
    scheduled: bool = True,
    ranks_recorded: bool = True,
) -> Path:
    """Write the run `root`; `rank_runner_ms` are the ranks whose runner takes another time than `runner_ms`.

    `settings` override sections of the profile; without `scheduled` the scheduler has no spans, without
    `ranks_recorded` the ranks have no records.
    """
    run = RunDirectory(root)
    run.strace.mkdir(parents=True)
    runners = [round((rank_runner_ms or {}).get(rank, runner_ms) * MS) for rank in range(RANKS)]
    events: list[dict[str, Any]] = []
    logs: list[list[str]] = [[] for _ in range(RANKS)]
    published = [_START - MS]
    for step in range(STEPS):
        published.append(
            _write_step(
                events, logs, step, published[-1] + MS, runners, round(prepare_ms * MS), scheduled=scheduled
            )
        )
    chrome.write_trace(run.serving_trace, events)
    if ranks_recorded:
        for rank, lines in enumerate(logs):
            run.rank_log(rank).write_text("\n".join(lines) + "\n")
    write_requests(run.requests, *(_request(index, published, tokens) for index in range(REQUESTS)))
    profile: dict[str, Any] = {
        "name": "small",
        "model": {"layers": 2},
        "engine": {"ranks": RANKS, "depth": 1, "mtp": 1, "backend": "torch"},
        "load": {"requests": REQUESTS},
        "trace": {"strace": True},
    }
    for section, values in (settings or {}).items():
        profile[section] = {**profile[section], **values}
    write_manifest(
        run,
        profile=profile,
        host=MachineFacts(processor=processor, cores=2),
        device_map=device_map(range(RANKS), first_pid=600),
        timing=RunTiming(started_ns=_START),
    )
    return root


def _write_step(
    events: list[dict[str, Any]],
    logs: Sequence[list[str]],
    step: int,
    at: int,
    runners: Sequence[int],
    prepare: int,
    *,
    scheduled: bool,
) -> int:
    """Write one step that is scheduled at `at`; return when it is published."""

    def event(name: str, start: int, end: int, tid: int, category: str, **ids: int) -> None:
        times = start // US, (end - start) // US
        events.append(chrome.event(name, *times, pid=_ENGINE, tid=tid, category=category, **ids))

    submit = at + MS + prepare
    ids = {"step_id": step, "dispatch_id": step}
    root, runner = submit + 2 * MS, submit + 3 * MS
    completed = runner + max(runners) + MS
    waited = completed + MS
    if scheduled:
        event("scheduler.schedule", at, at + MS, 1, "scheduler", step_id=step)
    event("WorkerProcess.prepare_decode", at + MS, submit, 2, "worker", step_id=step)
    event(f"{DECODE}.worker_submit", submit, submit + MS, 3, "kernel", **ids)
    event(f"{DECODE}.worker_wait", submit + MS, waited, 4, "kernel", **ids)
    event("WorkerProcess.reclaim_decode", submit + MS, waited + MS, 4, "worker", step_id=step)
    event("scheduler.process_step_output", waited + MS, waited + 2 * MS, 1, "scheduler", step_id=step)
    for rank, (lines, duration) in enumerate(zip(logs, runners, strict=True)):
        end = runner + duration
        for depth, name, start, stop in (
            (1, "chip.run.bind", root, root + MS // 2),
            (1, "chip.run.runner_run", runner, end),
            (1, "chip.run.validate", end, end + MS),
            (0, "chip.run", root, end + MS),
        ):
            attributes = {"run_id": step, "dispatch_id": step, "run_epoch": step + 1} if depth == 0 else {}
            record = strace.record(
                name, start, stop - start, pid=600 + rank, inv=step + 1, hid="d1", **attributes
            )
            lines.append(strace.logged(record, at=stop))
    return waited + 2 * MS


def _request(index: int, published: Sequence[int], tokens: Sequence[int]) -> RequestRecord:
    """One token from prefill, then those of every step when it is published."""
    of_steps = [tokens[step % len(tokens)] for step in range(STEPS)]
    times = [published[0]]
    for count, time in zip(of_steps, published[1:], strict=True):
        times += [time] * count
    counts = {"accepted": sum(of_steps) - STEPS, "proposed": STEPS, "steps": STEPS, "discarded": 0}
    return request(f"request-{index}", times, rank=index, send_ns=published[0] - 50 * MS, **counts)
