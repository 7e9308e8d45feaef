"""What charts draw: figures over time and their distributions, in columns of bounded length.

However long a recording is, there are at most `MAX_CALLABLES` callables, `MAX_POINTS` points a series, `MAX_CELLS`
cells a grid and `MAX_REQUESTS` requests. Each says how many steps one of its points stands for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec
import numpy as np

from analyzers.charts.step_windows import StepWindow, draw_step_windows
from analyzers.clients.requests import step_gaps, tpot_parts
from analyzers.measurement import Measured
from analyzers.ranks.rounds import RankRun
from analyzers.ranks.rounds import Round as RankRound
from analyzers.ranks.runner_times import EDGES, Edge, RunnerTimes
from analyzers.ranks.skew import RankSkew
from analyzers.readers.request_timing import RequestTiming
from analyzers.statistics.summary import Summary, summarize
from analyzers.steps.blocking import blocking_runs, durations_of
from analyzers.steps.lifecycle import Lifecycle
from analyzers.steps.pipeline import PipelineResult
from analyzers.steps.request_lives import RequestLife
from analyzers.steps.steps import Steps
from analyzers.table.spans import ABSENT, Int64s, SpanTable

MAX_CALLABLES = 4
MAX_POINTS = 256
MAX_CELLS = 8192
MAX_REQUESTS = 256


class StepLatency(msgspec.Struct, frozen=True):
    """The latency of the steps of one callable, in order of submission; a point is a run of neighbouring steps."""

    callable: str
    figure: Literal["submit_to_completion", "critical rank root"]
    steps: int
    steps_per_point: int
    first_step: list[int]
    """Index of each point's first step."""
    min_ns: list[float]
    median_ns: list[float]
    max_ns: list[float]


class LatenessGrid(msgspec.Struct, frozen=True):
    """How long after its round's median each rank's runner_run started or ended; a column is a run of rounds."""

    callable: str
    edge: Edge
    late_ns: int
    ranks: list[int]
    rounds: int
    rounds_per_column: int
    first_round: list[int]
    """Index of each column's first round."""
    after_median_ns: list[list[float | None]]
    """A list a rank: the latest of the column's complete rounds; negative before the median, null without one."""


class Distribution(msgspec.Struct, frozen=True):
    """The values of one figure."""

    figure: Literal["submit_to_completion", "blocking_kernel_span", "tpot", "step_time", "runner_run"]
    of: str
    source: Literal["serving trace", "requests", "STRACE"]
    summary: Summary
    values_ns: list[float]
    """Ascending: every value, or `MAX_POINTS` evenly spaced order statistics, the least and the greatest included."""


class RequestColumns(msgspec.Struct, frozen=True):
    """The measured requests in order of sending; beyond `MAX_REQUESTS` only those with the longest E2E."""

    requests: int
    id: list[str]
    rank: list[int | None]
    output_tokens: list[int | None]
    ttft_ns: list[int | None]
    e2e_ns: list[int | None]
    tpot_ns: list[float | None]
    accepted: list[int | None]
    proposed: list[int | None]
    error: list[str | None]


class ChartSeries(msgspec.Struct, frozen=True):
    """Everything that charts draw."""

    step_latency: list[StepLatency]
    lateness: list[LatenessGrid]
    timelines: list[StepWindow]
    distributions: list[Distribution]
    requests: RequestColumns | None
    request_lives: list[RequestLife]
    """Joined requests in order of sending; beyond `MAX_REQUESTS` those with the longest E2E."""


def measure_series(measured: Measured) -> ChartSeries:
    """The series of a recording."""
    requests = [
        timing for timing in measured.recording.requests if timing.phase == "measured" and not timing.was_cut
    ]
    chosen = measured.pipelines[:MAX_CALLABLES]
    rounds = {result.figures.callable: measured.matching.of(result.figures.callable) for result in chosen}
    lifecycle, late_ns = measured.lifecycle, measured.options.late_ns
    grids = [
        grid
        for result in chosen
        for edge in EDGES
        if (grid := _lateness(result.figures.callable, rounds[result.figures.callable], edge, late_ns))
    ]
    return ChartSeries(
        step_latency=[
            series
            for result in chosen
            if (series := _step_latency(result, lifecycle, rounds[result.figures.callable])) is not None
        ],
        lateness=_without_withheld(grids, measured.skew),
        timelines=draw_step_windows(measured),
        distributions=[
            *_step_distributions(chosen, lifecycle, rounds),
            *_blocking_distributions(measured.recording.spans),
            *_request_distributions(requests),
        ],
        requests=_requests(requests),
        request_lives=_lives(measured.joined_requests.lives),
    )


def _per_point(count: int, most: int) -> int:
    return max(1, math.ceil(count / most))


def _step_latency(
    result: PipelineResult, lifecycle: Lifecycle, rounds: Sequence[RankRound]
) -> StepLatency | None:
    name = result.figures.callable
    steps = lifecycle.of(name)
    figure: Literal["submit_to_completion", "critical rank root"] = "submit_to_completion"
    values = steps.submit_to_completion_ns
    if not len(values):
        figure = "critical rank root"
        roots = [max(run.root.duration_ns for run in item.runs.values()) for item in rounds if item.complete]
        values = np.array(roots, dtype=np.int64)
    if not len(values):
        return None
    size = _per_point(len(values), MAX_POINTS)
    first = range(0, len(values), size)
    points = [values[start : start + size].astype(np.float64) for start in first]
    return StepLatency(
        callable=name,
        figure=figure,
        steps=len(values),
        steps_per_point=size,
        first_step=list(first),
        min_ns=[float(point.min()) for point in points],
        median_ns=[float(np.median(point)) for point in points],
        max_ns=[float(point.max()) for point in points],
    )


def _lateness(name: str, rounds: Sequence[RankRound], edge: Edge, late_ns: int) -> LatenessGrid | None:
    times = RunnerTimes.of(rounds)
    if not len(times):
        return None
    ranks = times.ranks
    rows = np.full((len(ranks), len(rounds)), np.nan)
    rows[:, times.positions] = times.after_median(edge).T
    size = _per_point(len(rounds), max(1, min(MAX_POINTS, MAX_CELLS // len(ranks))))
    first = range(0, len(rounds), size)
    return LatenessGrid(
        callable=name,
        edge=edge,
        late_ns=late_ns,
        ranks=list(ranks),
        rounds=len(rounds),
        rounds_per_column=size,
        first_round=list(first),
        after_median_ns=[[_latest(row[start : start + size].tolist()) for start in first] for row in rows],
    )


def _without_withheld(grids: Iterable[LatenessGrid], skews: Sequence[RankSkew]) -> list[LatenessGrid]:
    """The grids of callables whose skews are not withheld: the clocks do not support the others."""
    withheld = {(skew.callable, edge) for skew in skews for edge in EDGES if skew.at(edge).n == 0}
    return [grid for grid in grids if (grid.callable, grid.edge) not in withheld]


def _latest(values: Sequence[float]) -> float | None:
    return max((value for value in values if not math.isnan(value)), default=None)


def _step_distributions(
    pipelines: Sequence[PipelineResult], lifecycle: Lifecycle, rounds: dict[str, list[RankRound]]
) -> Iterator[Distribution]:
    for result in pipelines:
        name = result.figures.callable
        scope = "steady" if len(result.steady_steps) else "all"
        steps = result.steady_steps if scope == "steady" else lifecycle.of(name)
        if len(steps):
            of = f"{name}, {scope} steps"
            yield _distribution("submit_to_completion", of, "serving trace", steps.submit_to_completion_ns)
        runs, scope = _runs_of_steps(result.steady_steps, rounds[name])
        runners = [run.phases["runner_run"].duration_ns for run in runs if "runner_run" in run.phases]
        if runners:
            yield _distribution("runner_run", f"{name}, {scope} rounds, every rank", "STRACE", runners)


def _runs_of_steps(steady: Steps, rounds: Sequence[RankRound]) -> tuple[list[RankRun], str]:
    """The runs of the steady rounds where ids tell which those are, else of all."""
    runs = [run for item in rounds for run in item.runs.values()]
    dispatches = set(steady.joining_dispatch_id.tolist()) - {ABSENT}
    chosen = [run for run in runs if run.dispatch_id in dispatches]
    return (chosen, "steady") if chosen else (runs, "all")


def _blocking_distributions(spans: SpanTable) -> Iterator[Distribution]:
    """Blocking runs of those callables that ran most often; one run is no distribution."""
    runs = {name: durations_of(spans, label) for name, label in blocking_runs(spans).items()}
    often = sorted((name for name in runs if len(runs[name]) > 1), key=lambda name: -len(runs[name]))
    for name in often[:MAX_CALLABLES]:
        yield _distribution("blocking_kernel_span", f"{name}, all runs", "serving trace", runs[name])


def _request_distributions(requests: Sequence[RequestTiming]) -> Iterator[Distribution]:
    good = [timing for timing in requests if timing.is_whole]
    parts = [parts for timing in good if (parts := tpot_parts(timing)) is not None]
    if len(parts) > 1:
        values = [duration / tokens for duration, tokens in parts]
        yield _distribution("tpot", "measured requests", "requests", values)
    gaps = [gap for timing in good for gap in step_gaps(timing)]
    if len(gaps) > 1:
        yield _distribution("step_time", "measured requests", "requests", gaps)


def _distribution(
    figure: Literal["submit_to_completion", "blocking_kernel_span", "tpot", "step_time", "runner_run"],
    of: str,
    source: Literal["serving trace", "requests", "STRACE"],
    values: Sequence[float] | Int64s,
) -> Distribution:
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    if len(ordered) > MAX_POINTS:
        ordered = ordered[np.linspace(0, len(ordered) - 1, MAX_POINTS).round().astype(np.intp)]
    return Distribution(figure, of, source, summarize(values), ordered.tolist())


def _requests(requests: Sequence[RequestTiming]) -> RequestColumns | None:
    if not requests:
        return None
    longest = sorted(requests, key=lambda timing: -(_since_send(timing, timing.last_ns) or 0))
    shown = sorted(longest[:MAX_REQUESTS], key=lambda timing: (timing.send_ns or 0, timing.request_id))
    tpots = [tpot_parts(timing) if timing.error is None else None for timing in shown]
    return RequestColumns(
        requests=len(requests),
        id=[timing.request_id for timing in shown],
        rank=[timing.rank for timing in shown],
        output_tokens=[timing.output_tokens for timing in shown],
        ttft_ns=[_since_send(timing, timing.first_ns) for timing in shown],
        e2e_ns=[_since_send(timing, timing.last_ns) for timing in shown],
        tpot_ns=[parts[0] / parts[1] if parts is not None else None for parts in tpots],
        accepted=[timing.accepted for timing in shown],
        proposed=[timing.proposed for timing in shown],
        error=[timing.error for timing in shown],
    )


def _lives(lives: Sequence[RequestLife]) -> list[RequestLife]:
    longest = sorted(lives, key=lambda life: life.send_ns - life.last_arrival_ns)[:MAX_REQUESTS]
    return sorted(longest, key=lambda life: life.send_ns)


def _since_send(timing: RequestTiming, time: int | None) -> int | None:
    return time - timing.send_ns if time is not None and timing.send_ns is not None else None
