"""Where a step's time went: worked out by hand, and parts that add up whatever the times are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analyzers.ranks.rounds import match_rounds, rank_runs
from analyzers.ranks.scheduler import read_schedule
from analyzers.steps.bubbles import PhaseIntervals, StepPhase, StepTime, measure_step_time, split_windows
from analyzers.steps.lifecycle import check_lifecycles
from analyzers.steps.pipeline import measure_pipeline
from analyzers.table.callables import DispatchNames
from analyzers.table.spans import ABSENT, Clock, Source, SpanTable, concatenate, empty_table
from tests.builders.spans import Spans


class Serving(Spans):
    """A serving trace, step by step."""

    def __init__(self, clock: Clock = Clock.HOST) -> None:
        super().__init__(Source.SERVING, clock=clock)

    def step(self, step: int, at: int, done: int) -> None:
        """Scheduled at `at`, with 10 ns each of schedule, prepare and submit; published 30 ns after `done`."""
        self.add("scheduler.schedule", at, at + 10, 1, step_id=step)
        self.add("WorkerProcess.prepare_decode", at + 12, at + 22, 2, step_id=step)
        self.add("decode.worker_submit", at + 25, at + 35, 3, step_id=step, dispatch_id=step)
        self.add("decode.worker_wait", max(at + 40, done - 50), done, 4, step_id=step, dispatch_id=step)
        self.add("WorkerProcess.reclaim_decode", max(at + 40, done - 51), done + 15, 4, step_id=step)
        self.add("scheduler.process_step_output", done + 20, done + 30, 1, step_id=step)


def ranks(*runs: tuple[int, int, int, int, int]) -> SpanTable:
    """Runs of (rank, dispatch, root start, runner start, runner end); validate takes 4 ns, the claim 6 more."""
    table = Spans(Source.STRACE)
    for rank, dispatch, start, runner, end in runs:
        for name, begins, ends, dispatch_id in (
            ("chip.run", start, end + 10, dispatch),
            ("chip.run.bind", start, start + 1, ABSENT),
            ("chip.run.runner_run", runner, end, ABSENT),
            ("chip.run.validate", end, end + 4, ABSENT),
        ):
            ids = {"rank": rank, "invocation": dispatch, "dispatch_id": dispatch_id}
            table.add(name, begins, ends, pid=100 + rank, **ids)
    return table.build()


def measure(*tables: SpanTable) -> StepTime | None:
    spans = concatenate(tables)
    lifecycle = check_lifecycles(spans, empty_table())
    matching = match_rounds(*rank_runs(spans, DispatchNames(spans)))
    callable_name = "decode" if lifecycle.steps else "all runs"
    pipeline = measure_pipeline(callable_name, read_schedule(spans), lifecycle, matching, full_batch=None)
    return measure_step_time(pipeline, lifecycle, matching)


def means(result: StepTime) -> dict[str, float | None]:
    return {entry.phase: entry.charged.mean for entry in result.phases}


def test_a_step_alone_is_charged_with_everything_it_does() -> None:
    serving = Serving()
    serving.step(1, 0, 900)
    serving.step(2, 1_000, 1_900)
    # Rank 1 ends last: its phases are the path, although rank 0 has the longer root.
    result = measure(
        serving.build(),
        ranks(
            (0, 1, 50, 60, 800),
            (1, 1, 60, 80, 850),
            (0, 2, 1_040, 1_060, 1_840),
            (1, 2, 1_090, 1_120, 1_870),
        ),
    )
    assert result is not None
    # Step 1 is published at 930, step 2 at 1930: 70 ns before it is scheduled, 2 and 3 ns between the lanes.
    assert result.wall.mean == 1_000
    assert means(result) == {
        "schedule": 10,
        "prepare": 10,
        "submit": 10,
        "queue": 1_090 - 1_035,
        "bind": 30,
        "runner": 750,
        "validate": 4,
        "wait": 1_900 - 1_874,
        "reclaim": 30,
        "remainder": 70 + 2 + 3,
    }
    assert result.published_by == "process_step_output"
    assert result.ranks_known
    assert all(entry.hidden.max == 0 for entry in result.phases if entry.phase != "remainder")


def test_what_a_step_did_behind_the_step_ahead_is_hidden_and_charged_to_nobody() -> None:
    serving = Serving()
    serving.step(1, 0, 900)
    serving.step(2, 300, 1_700)
    result = measure(serving.build(), ranks((0, 1, 50, 60, 850), (0, 2, 870, 880, 1_650)))
    assert result is not None
    # [930, 1730): the rest of the runner, validate, wait and reclaim. All before it lies behind step 1.
    assert means(result) == {
        "schedule": 0, "prepare": 0, "submit": 0, "queue": 0, "bind": 0,
        "runner": 720, "validate": 4, "wait": 46, "reclaim": 30, "remainder": 0,
    }  # fmt: skip
    hidden = {entry.phase: entry.hidden.mean for entry in result.phases}
    assert (hidden["schedule"], hidden["submit"], hidden["queue"], hidden["runner"]) == (10, 10, 535, 50)


def test_without_ranks_everything_behind_the_submit_is_wait() -> None:
    serving = Serving()
    serving.step(1, 0, 900)
    serving.step(2, 1_000, 1_900)
    result = measure(serving.build())
    assert result is not None
    assert not result.ranks_known
    assert means(result) == {
        "schedule": 10, "prepare": 10, "submit": 10, "wait": 865, "reclaim": 30, "remainder": 75,
    }  # fmt: skip


def test_a_trace_on_a_clock_of_its_own_is_not_joined_with_the_ranks() -> None:
    serving = Serving(Clock.FILE)
    serving.step(1, 0, 900)
    serving.step(2, 1_000, 1_900)
    result = measure(serving.build(), ranks((0, 1, 50, 60, 850), (0, 2, 1_040, 1_060, 1_840)))
    assert result is not None
    assert not result.ranks_known


def test_the_publication_is_the_last_that_every_step_has() -> None:
    serving = Serving()
    serving.step(1, 0, 900)
    serving.add("decode.worker_submit", 1_000, 1_010, 3, step_id=2, dispatch_id=2)
    serving.add("decode.worker_wait", 1_020, 1_800, 4, step_id=2, dispatch_id=2)
    result = measure(serving.build())
    assert result is not None
    assert result.published_by == "worker_wait"
    assert (result.wall.mean, means(result)["reclaim"]) == (900, 0)


def test_ranks_alone_are_split_from_completion_to_completion() -> None:
    result = measure(ranks((0, 1, 50, 60, 846), (0, 2, 900, 930, 1_646), (0, 3, 1_700, 1_710, 2_446)))
    assert result is not None
    # 850 to 1650 and to 2450; the root begins 50 ns after the completion before it, each time.
    assert result.published_by == "last rank"
    assert result.wall.mean == 800
    assert means(result) == {
        "bind": 20, "runner": (716 + 736) / 2, "validate": 4, "remainder": 50,
    }  # fmt: skip


def test_steps_that_cannot_be_split_are_counted() -> None:
    serving = Serving()
    for step in range(1, 5):
        serving.step(step, 1_000 * step, 1_000 * step + 900)
    serving.add("prefill.worker_run", 3_935, 3_990, 3)
    # Of dispatch 2, rank 1 has no record.
    runs = [
        (rank, step, 1_000 * step + 40, 1_000 * step + 50, 1_000 * step + 800)
        for step in range(1, 5)
        for rank in (0, 1)
        if (rank, step) != (1, 2)
    ]
    result = measure(serving.build(), ranks(*runs))
    assert result is not None
    assert result.left_out == {"no rank records": 1, "prefill between": 1}
    assert result.wall.n == 1


def test_one_step_has_no_step_before_it() -> None:
    serving = Serving()
    serving.step(1, 0, 900)
    assert measure(serving.build()) is None


def split(
    window: list[int], segments: list[tuple[StepPhase, int, int]]
) -> tuple[dict[StepPhase, int], dict[StepPhase, int]]:
    """`split_windows` of a single step: what it is charged with, and what is hidden."""
    starts, ends = (np.array([time]) for time in window)
    columns = [
        PhaseIntervals(phase, np.array([start]), np.array([end]), np.array([True]))
        for phase, start, end in segments
    ]
    breakdown = split_windows(starts, ends, columns)
    charged = {phase: int(times[0]) for phase, times in breakdown.charged.items()}
    return charged, {phase: int(times[0]) for phase, times in breakdown.hidden.items()}


TIME = st.integers(-1_000, 1_000)
PHASES = st.sampled_from(["schedule", "prepare", "submit", "queue", "bind", "runner", "validate", "wait"])


@given(st.tuples(TIME, TIME).map(sorted), st.lists(st.tuples(PHASES, TIME, TIME), max_size=12))
def test_the_parts_always_add_up(times: list[int], segments: list[tuple[str, int, int]]) -> None:
    charged, hidden = split(times, segments)  # type: ignore[arg-type]
    assert sum(charged.values()) == times[1] - times[0]
    assert all(value >= 0 for value in (*charged.values(), *hidden.values()))


@given(
    st.lists(st.integers(0, 500), min_size=4, max_size=10),
    st.tuples(st.integers(0, 3_000), st.integers(0, 3_000)).map(sorted),
)
def test_segments_in_order_are_charged_with_exactly_their_part_of_the_window(
    lengths: list[int], times: list[int]
) -> None:
    phases = ["schedule", "prepare", "submit", "queue", "bind", "runner", "validate", "wait", "reclaim", "x"]
    ends = [sum(lengths[: index + 1]) for index in range(len(lengths))]
    segments = [(phases[i], end - lengths[i], end) for i, end in enumerate(ends)]
    charged, hidden = split(times, segments)  # type: ignore[arg-type]
    inside = range(*times)
    for phase, start, end in segments:
        assert charged[phase] == len(range(max(start, inside.start), min(end, inside.stop)))  # type: ignore[index]
        assert hidden[phase] == len(range(start, min(end, inside.start)))  # type: ignore[index]


def test_a_phase_that_only_one_step_has_takes_no_time_of_the_other() -> None:
    always = np.array([True, True])
    segments = [
        PhaseIntervals("prepare", np.array([5, 0]), np.array([8, 999]), np.array([True, False])),
        PhaseIntervals("submit", np.array([10, 110]), np.array([30, 140]), always),
    ]
    found = split_windows(np.array([6, 120]), np.array([26, 200]), segments)
    assert {phase: times.tolist() for phase, times in found.charged.items()} == {
        "prepare": [2, 0], "submit": [16, 20], "remainder": [2, 60],
    }  # fmt: skip
    assert {phase: times.tolist() for phase, times in found.hidden.items()} == {
        "prepare": [1, 0], "submit": [0, 10],
    }  # fmt: skip
