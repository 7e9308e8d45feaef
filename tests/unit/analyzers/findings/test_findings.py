"""One hand-made recording a finding in which it holds, and one in which it does not."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyzers.analysis import analyze_recording
from analyzers.machine import MachineFacts, MachineState
from analyzers.recording.recording import load_recording
from analyzers.report.model import Finding, FindingCode, Report
from analyzers.rundir import RankProcess, RequestRecord
from tests.builders import chrome, strace
from tests.builders.manifests import device_map, manifest
from tests.builders.requests import request, write_requests

US, MS = 1_000, 1_000_000
DECODE = "decode"
STEPS, PERIOD = 20, 100 * MS


def at(step: int) -> int:
    return step * PERIOD


class Recorded:
    """Collects a serving trace and the ranks' log, and measures them as one recording. Times are ns."""

    def __init__(self, directory: Path, depth: int = 2) -> None:
        self._directory = directory
        self._depth = depth
        self.host = MachineFacts()
        self.load: float | None = None
        self.device_map: list[RankProcess] = []
        self.events: list[dict[str, Any]] = []
        self.records: list[str] = []
        self.requests: list[RequestRecord] = []

    def span(self, name: str, start: int, end: int, tid: int, **args: Any) -> None:
        self.events.append(
            chrome.event(name, start / US, (end - start) / US, tid=tid, category="worker", **args)
        )

    def step(
        self,
        step: int,
        *,
        schedule: tuple[int, int] | None = None,
        prepare: tuple[int, int] | None = None,
        submit: tuple[int, int],
        wait: tuple[int, int],
    ) -> None:
        if schedule:
            self.span("scheduler.schedule", *schedule, 1, step_id=step)
        if prepare:
            self.span("WorkerProcess.prepare_decode", *prepare, 2, step_id=step)
        self.span(f"{DECODE}.worker_submit", *submit, 3, step_id=step, dispatch_id=step)
        self.span(f"{DECODE}.worker_wait", *wait, 4, step_id=step, dispatch_id=step)

    def run(
        self,
        rank: int,
        dispatch: int,
        start: int,
        runner: tuple[int, int],
        *,
        bind: int = 10 * US,
        device_wall: int | None = None,
        gap: int = 0,
        validate: int = 100 * US,
    ) -> None:
        checked = runner[1] + gap
        end, pid = checked + validate, 100 + rank
        self.records += [
            strace.record("chip.run", start, end - start, pid=pid, inv=dispatch, dispatch_id=dispatch),
            strace.record("chip.run.bind", start, bind, pid=pid, inv=dispatch),
            strace.record("chip.run.runner_run", runner[0], runner[1] - runner[0], pid=pid, inv=dispatch),
            strace.record("chip.run.validate", checked, validate, pid=pid, inv=dispatch),
        ]
        if device_wall is not None:
            name = "chip.run.runner_run.device_wall"
            self.records.append(strace.record(name, 5, device_wall, pid=pid, inv=dispatch, clk="dev"))

    def rounds(self, ranks: int, late: Callable[[int, int], int], steps: int = STEPS) -> None:
        """A runner of 39 ms on every rank in every step, and `late` (step, rank) ns more."""
        for step, rank in itertools.product(range(1, steps + 1), range(ranks)):
            start = at(step)
            self.run(rank, step, start, (start + MS, start + 40 * MS + late(step, rank)))

    def on_shared_cores(self, ranks: int) -> None:
        """Of a machine with two cores for all the ranks."""
        self.host, self.load = MachineFacts(cores=2), 0.0
        self.device_map = device_map(range(ranks), first_pid=100)

    def report(self) -> Report:
        place, files = self._directory, []
        if self.events:
            files.append(chrome.write_trace(place / "trace.json", self.events))
        if self.records:
            pids = sorted({int(record.split("pid=")[1].split()[0]) for record in self.records})
            ready = [strace.ready(pid, pid - 100) for pid in pids]
            files.append(strace.write_log(place / "server.log", *ready, *self.records))
        if self.requests:
            files.append(write_requests(place / "requests.jsonl", *self.requests))
        profile = {"name": "test", "engine": {"depth": self._depth}}
        before = MachineState(load_average_1min=self.load)
        own = manifest(profile=profile, host=self.host, device_map=self.device_map, host_before=before)
        recording = load_recording(files)
        return analyze_recording(dataclasses.replace(recording, manifest=own))


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path)


def found(report: Report, code: FindingCode) -> list[Finding]:
    return [finding for finding in report.findings if finding.code == code]


def steps_in_flight(recorded: Recorded, count: int = STEPS) -> None:
    """Step N runs in [100 N, 100 N + 100) ms, and N+1 is submitted 50 ms before N completes."""
    for step in range(1, count + 1):
        t = at(step)
        recorded.step(
            step,
            schedule=(t - 55 * MS, t - 54 * MS),
            prepare=(t - 53 * MS, t - 51 * MS),
            submit=(t - 50 * MS, t - 49 * MS),
            wait=(t + MS, t + 100 * MS),
        )


# Each lane's span as (start, end) in ms from the completion of the step ahead; the run takes 90 ms from the submit.
SERIALISED: dict[str, dict[str, tuple[int, int] | None]] = {
    "submit begins in time": {"schedule": (-50, -49), "prepare": (-48, -47), "submit": (-40, 1)},
    "submit itself lasts": {"schedule": (1, 2), "prepare": (3, 4), "submit": (5, 94)},
    "is prepared in time": {"schedule": (-50, -49), "prepare": (-48, -47), "submit": (2, 3)},
    "prepare begins in time": {"schedule": (-50, -49), "prepare": (-48, 1), "submit": (2, 3)},
    "scheduled in time": {"schedule": (-50, -49), "prepare": (1, 2), "submit": (3, 4)},
    "scheduled only when": {"schedule": (1, 2), "prepare": (3, 4), "submit": (5, 6)},
    "does not say": {"schedule": None, "prepare": None, "submit": (5, 6)},
}


@pytest.mark.parametrize("words", list(SERIALISED))
def test_a_collapsed_pipeline_names_the_wait_that_serialises_it(words: str, recorded: Recorded) -> None:
    lanes = SERIALISED[words]
    for step in range(1, STEPS + 1):
        times = {
            lane: (at(step) + span[0] * MS, at(step) + span[1] * MS)
            for lane, span in lanes.items()
            if span is not None
        }
        submitted = times["submit"][1]
        recorded.step(step, **times, wait=(max(submitted, at(step) + 20 * MS), at(step + 1)))
    report = recorded.report()
    assert found(report, "pipeline") == []
    [finding] = found(report, "pipeline_collapsed")
    assert f"in {STEPS - 1} of {STEPS - 1} steps" in finding.evidence
    assert words in finding.evidence
    assert finding.advice
    # The completion of step 1 and the submit of step 2 are where to look.
    assert [(span.name, span.step_id) for span in finding.spans] == [
        ("decode.worker_wait", 1),
        ("decode.worker_submit", 2),
    ]


def test_a_pipeline_with_two_in_flight_did_not_collapse(recorded: Recorded) -> None:
    steps_in_flight(recorded)
    report = recorded.report()
    assert found(report, "pipeline_collapsed") == []
    [finding] = found(report, "pipeline")
    assert "two in flight" in finding.title


def add_ranks(recorded: Recorded, *, runner: int, queue: int = 0) -> None:
    for step in range(1, STEPS + 1):
        start = at(step) + queue
        for rank in (0, 1):
            recorded.run(rank, step, start, (start + MS, start + MS + runner))


def test_steps_whose_time_is_the_runners_are_device_bound(recorded: Recorded) -> None:
    steps_in_flight(recorded)
    add_ranks(recorded, runner=90 * MS)
    report = recorded.report()
    [finding] = found(report, "device_bound")
    # Of the 100 ms between two completions the runner has 90.
    assert finding.figures["runner_share"] == pytest.approx(0.9)
    assert finding.figures["mean_wall_ns"] == 100 * MS
    assert found(report, "host_bound") == []


def test_steps_whose_time_is_not_the_runners_are_host_bound(recorded: Recorded) -> None:
    steps_in_flight(recorded)
    add_ranks(recorded, runner=30 * MS, queue=60 * MS)
    report = recorded.report()
    [finding] = found(report, "host_bound")
    assert finding.severity == "warning"
    assert finding.title == "decode: host-bound, 70 % of a step's time is not the runner's"
    assert finding.evidence.endswith("outside of the runner: queue 60.000 ms, wait 8.900 ms")
    assert found(report, "device_bound") == []


def test_without_ranks_nobody_is_said_to_set_the_pace(recorded: Recorded) -> None:
    steps_in_flight(recorded)
    report = recorded.report()
    assert found(report, "host_bound") == found(report, "device_bound") == []


def slow_rank_of(step: int, kind: str) -> int | None:
    return {"persistent": 2, "rotating": step % 4, "none": None}[kind]


@pytest.mark.parametrize("kind", ["persistent", "rotating", "none"])
def test_a_persistent_straggler_is_told_from_a_rotating_one(kind: str, recorded: Recorded) -> None:
    recorded.rounds(4, lambda step, rank: 8 * MS * (rank == slow_rank_of(step, kind)))
    report = recorded.report()
    stragglers, rotating = found(report, "straggler"), found(report, "no_persistent_straggler")
    if kind == "persistent":
        [finding] = stragglers
        assert finding.title == "hid ab: rank 2 is persistently the last to end"
        # 20 of 20 rounds: 4 outcomes of 4**20 are as uneven.
        assert finding.figures["p_value"] == pytest.approx(4 / 4**20)
        assert (finding.severity, finding.figures["median_excess_ns"], rotating) == ("warning", 8 * MS, [])
    elif kind == "rotating":
        [finding] = rotating
        assert finding.evidence.endswith("stability 25 %, median skew 8.000 ms")
        assert stragglers == []
    else:
        assert stragglers == rotating == []


def test_a_rotating_straggler_is_told_below_the_limit_for_late_ranks(recorded: Recorded) -> None:
    # Each of four ranks is slow twice, by exactly the 5 ms that are not yet late.
    for step in range(8):
        for rank in range(4):
            end = at(step) + (15 if rank == step % 4 else 10) * MS
            recorded.run(rank, step + 1, at(step), (at(step), end), bind=0)
    report = recorded.report()
    assert found(report, "late_ranks") == []
    [finding] = found(report, "no_persistent_straggler")
    assert finding.evidence.endswith("stability 25 %, median skew 5.000 ms")


def test_long_tails_are_split_into_what_they_consist_of(recorded: Recorded) -> None:
    for step in range(1, STEPS + 1):
        for rank in range(3):
            tail = rank == 1 and step % 5 == 0
            start = at(step) + (2 * MS if tail else 0)
            wall = 30 * MS + (10 * MS if tail else 0)
            recorded.run(
                rank,
                step,
                at(step),
                (start, start + wall + (3 * MS if tail else MS)),
                device_wall=wall,
                gap=4 * MS if tail else MS,
                validate=6 * MS if tail else MS,
            )
    [finding] = found(recorded.report(), "long_tail_split")
    assert finding.figures == {
        "a late start_ns": 2 * MS,
        "the device wall_ns": 10 * MS,
        "the host side of the runner_ns": 2 * MS,
        "the gap before validate_ns": 3 * MS,
        "validate_ns": 5 * MS,
        "the rest of the run_ns": 0,
    }
    assert (
        finding.title
        == "hid ab: the device wall is the largest part of 4 of 4 long tails, 45 % of what adds to them all"
    )
    assert finding.evidence.startswith("mean excess of 4 over the middle rank of their round: 22.000 ms = ")


def test_rounds_without_a_long_tail_are_not_split(recorded: Recorded) -> None:
    add_ranks(recorded, runner=90 * MS)
    assert found(recorded.report(), "long_tail_split") == []


@pytest.mark.parametrize(("longest", "expected"), [(20 * MS, 1), (900 * US, 0)])
def test_a_bind_far_beyond_the_others_is_an_outlier(longest: int, expected: int, recorded: Recorded) -> None:
    for step in range(1, STEPS + 1):
        for rank in (0, 1):
            bind = longest if (rank, step) == (1, 7) else (10 + step % 3) * US
            recorded.run(rank, step, at(step), (at(step) + bind, at(step) + 50 * MS), bind=bind)
    findings = found(recorded.report(), "bind_outliers")
    assert len(findings) == expected
    for finding in findings:
        # The first round is left out: what is done once is no outlier.
        assert finding.title == "hid ab: 1 of 38 binds is an outlier, the longest 20.000 ms"
        assert finding.evidence.startswith(
            "rank 1 in round 6; the median is 0.011 ms; rounds waited 20.000 ms for them"
        )
        # 20 ms of the 1.85 s from the start of step 2 to the end of step 20.
        assert finding.severity == "info"


@pytest.mark.parametrize(("gap", "expected"), [(3 * MS, 1), (300 * US, 0)])
def test_gaps_between_phases_show_the_cost_of_tracing(gap: int, expected: int, recorded: Recorded) -> None:
    for step in range(1, STEPS + 1):
        recorded.run(0, step, at(step), (at(step) + 10 * US, at(step) + 50 * MS), gap=gap)
    findings = found(recorded.report(), "record_gaps")
    assert len(findings) == expected
    for finding in findings:
        # 3 ms of 50 + 3 + 0.1 ms.
        assert "take 5.6 % of it" in finding.title


def test_waits_inside_their_submit_are_a_fallback_to_blocking(recorded: Recorded) -> None:
    recorded.span(f"{DECODE}.worker_submit", 0, 10 * MS, 3, dispatch_id=1)
    recorded.span(f"{DECODE}.worker_wait", MS, 9 * MS, 3, dispatch_id=1)
    [finding] = found(recorded.report(), "synchronous_fallback")
    assert finding.title == "decode: 1 step fell back to blocking: its wait lies inside its submit"
    assert [span.dispatch_id for span in finding.spans] == [1, 1]


def test_blocking_steps_beside_submitted_ones_are_a_fallback(recorded: Recorded) -> None:
    steps_in_flight(recorded)
    recorded.span(f"{DECODE}.worker_run", at(30), at(30) + 50 * MS, 3)
    [finding] = found(recorded.report(), "synchronous_fallback")
    assert finding.title == f"decode: 1 step ran blocking beside {STEPS} that were submitted"


def test_asynchronous_steps_and_blocking_prefills_are_no_fallback(recorded: Recorded) -> None:
    steps_in_flight(recorded)
    recorded.span("deepseek_v4_prefill.worker_run", at(30), at(30) + 50 * MS, 3)
    assert found(recorded.report(), "synchronous_fallback") == []


def exchange(recorded: Recorded, step: int, last: int | None, name: str = "all_to_all") -> None:
    """Eight ranks enter at about the same time but one, 400 us later; all leave together after 500 us."""
    for rank in range(8):
        enters = at(step) + (400 * US if rank == last else rank * US)
        recorded.span(name, enters, at(step) + 500 * US, 10 + rank, rank=rank, step=step)


def test_the_slow_rank_of_an_exchange_is_the_one_that_waits_least(recorded: Recorded) -> None:
    for step in range(10):
        exchange(recorded, step, 5)
    [finding] = found(recorded.report(), "slow_rank_in_exchange")
    # The others wait 500 us less their own delay of 0 to 7 us, 497 in the middle; rank 5 waits 100.
    assert finding.title == "all_to_all: rank 5 comes last, the others wait 0.397 ms for it"
    assert finding.figures["imposed_wait_ns"] == 397 * US
    assert "held up: ranks 0, 1, 2, 3, 4, 6, 7" in finding.evidence
    assert (finding.figures["rank"], finding.figures["held_up"]) == (5, 10)
    assert finding.spans[0].end_ns - finding.spans[0].start_ns == 100 * US


def test_one_exchange_is_enough_to_name_who_came_last(recorded: Recorded) -> None:
    exchange(recorded, 0, 3)
    [finding] = found(recorded.report(), "slow_rank_in_exchange")
    assert finding.figures["rank"] == 3


def test_a_rank_that_changes_is_no_slow_rank_of_the_exchange(recorded: Recorded) -> None:
    for step in range(16):
        exchange(recorded, step, step % 8)
    report = recorded.report()
    assert found(report, "slow_rank_in_exchange") == []
    [finding] = found(report, "no_persistent_straggler")
    assert finding.title == "all_to_all: no persistent straggler, the rank that comes last changes"


def test_ranks_that_enter_together_hold_nobody_up(recorded: Recorded) -> None:
    for step in range(10):
        exchange(recorded, step, None)
    exchange(recorded, 20, 5, name="matmul")
    report = recorded.report()
    assert found(report, "slow_rank_in_exchange") == found(report, "no_persistent_straggler") == []


@pytest.mark.parametrize("falls", [True, False])
def test_acceptance_that_falls_over_the_run_is_told(falls: bool, recorded: Recorded) -> None:
    # 60 steps after the prefill, the last one not counted. Falling: all of the first 30 drafts are accepted, then every
    # third; steady: every second.
    accepted = [int(step < 30 or step % 3 == 0) if falls else step % 2 for step in range(60)]
    times = [0, *(at(step + 1) for step in range(60) for _ in range(1 + accepted[step]))]
    counts = {"steps": 60, "proposed": 60, "accepted": sum(accepted), "discarded": 0}
    recorded.requests.append(request("a", times, send_ns=-MS, **counts))
    findings = found(recorded.report(), "acceptance_fell")
    assert len(findings) == int(falls)
    for finding in findings:
        # The first 19 of 59 trials are all accepted; of the last 19, steps 40 to 58: 42, 45, 48, 51, 54 and 57.
        assert finding.title == "MTP acceptance fell over the run, from 100.0 % to 31.6 %"


@pytest.mark.parametrize(("first", "expected"), [(4, 1), (2, 0)])
def test_first_steps_much_slower_than_the_rest_are_a_cold_start(
    first: int, expected: int, recorded: Recorded
) -> None:
    # Step 1 is no steady one; step 2 is the first in 20 of the others.
    for step in range(1, 22):
        lasts = 90 * MS * (first if step == 2 else 1)
        start = at(5 * step)
        recorded.step(step, submit=(start, start + MS), wait=(start + 2 * MS, start + lasts))
    findings = found(recorded.report(), "cold_start")
    assert len(findings) == expected
    for finding in findings:
        assert (
            finding.title
            == "decode: the first steady step takes 4x the median: cold start inside the sample?"
        )
        assert finding.spans[0].step_id == 2


def test_a_slow_first_step_is_no_cold_start_where_a_later_one_is_as_slow(recorded: Recorded) -> None:
    for step in range(1, 22):
        lasts = 90 * MS * (4 if step in (2, 15) else 1)
        start = at(5 * step)
        recorded.step(step, submit=(start, start + MS), wait=(start + 2 * MS, start + lasts))
    assert found(recorded.report(), "cold_start") == []


@pytest.mark.parametrize(("late_rounds", "severity"), [(1, "info"), (2, "warning")])
def test_late_ranks_are_a_warning_where_they_are_common(
    late_rounds: int, severity: str, recorded: Recorded
) -> None:
    # Of 30 rounds, one is 3 % and two are 7 %.
    recorded.rounds(4, lambda step, rank: 8 * MS * (step <= late_rounds and rank == step), steps=30)
    [finding] = found(recorded.report(), "late_ranks")
    assert finding.severity == severity
    tails = "1 long tail" if late_rounds == 1 else "2 long tails"
    assert finding.title == f"hid ab (all rounds): {tails} of more than 5.000 ms"
    assert finding.evidence == f"in {late_rounds} of 30 rounds; worst: rank 1 in round 0, 8.000 ms late"


def test_a_named_straggler_comes_before_what_it_causes(recorded: Recorded) -> None:
    recorded.rounds(4, lambda _, rank: 8 * MS * (rank == 2))
    findings = recorded.report().findings
    assert [(finding.code, finding.severity) for finding in findings] == [
        ("straggler", "warning"),
        ("late_ranks", "info"),
        ("pipeline", "info"),
        ("long_tail_split", "info"),
    ]


@pytest.mark.parametrize(("hidden", "severity", "waited"), [(False, "warning", 180), (True, "info", 0)])
def test_binds_that_runners_wait_for_are_a_warning(
    hidden: bool, severity: str, waited: int, recorded: Recorded
) -> None:
    # Three of 20 rounds: 180 ms of less than two seconds. Behind the runner of the round ahead they cost nothing.
    for step in range(1, STEPS + 1):
        bind = 60 * MS if step in (7, 11, 15) else 10 * US
        start = at(step) + bind
        recorded.run(0, step, at(step), (start, start + 30 * MS), bind=bind)
        if hidden and step + 1 in (7, 11, 15):
            recorded.records[-2] = recorded.records[-2].replace(f"dur={30 * MS} ", f"dur={PERIOD + 60 * MS} ")
    [finding] = found(recorded.report(), "bind_outliers")
    assert finding.severity == severity
    assert finding.figures["exposed_ns"] == waited * MS


# Whose fault it is: each rank's own noise, a rank with more to do, cores that ranks share.


def noisy_ranks(recorded: Recorded, *, rank_2: int, scatter: int) -> None:
    """Ranks 0, 1 and 3 end up to 4 `scatter` after 40 ms, each in its own order; rank 2 always `rank_2` ns after."""
    recorded.rounds(4, lambda step, rank: rank_2 if rank == 2 else step * (1 + rank) % 5 * scatter)


def test_a_rank_is_late_by_more_than_the_others_vary(recorded: Recorded) -> None:
    noisy_ranks(recorded, rank_2=40 * MS, scatter=3 * MS)
    [finding] = found(recorded.report(), "straggler")
    assert (finding.severity, finding.figures["rank"]) == ("warning", 2)


def test_a_rank_that_is_last_within_the_scatter_is_no_straggler_to_warn_of(recorded: Recorded) -> None:
    noisy_ranks(recorded, rank_2=33 * MS, scatter=8 * MS)
    [finding] = found(recorded.report(), "straggler")
    assert finding.severity == "info"
    assert finding.title == "hid ab: rank 2 is most often the last to end, within the scatter"


def answered_by(*ranks: int) -> list[RequestRecord]:
    return [request(f"r{n}", [MS, at(STEPS + 1)], rank=rank) for n, rank in enumerate(ranks)]


def test_a_rank_with_more_requests_is_last_by_its_work(recorded: Recorded) -> None:
    noisy_ranks(recorded, rank_2=40 * MS, scatter=3 * MS)
    recorded.requests += answered_by(0, 1, 2, 2, 3)
    report = recorded.report()
    assert found(report, "straggler") == []
    [finding] = found(report, "uneven_work")
    assert finding.title == "hid ab: rank 2 is the last to end, and carries 2 of 5 requests"
    assert finding.severity == "info"
    assert all(finding.severity == "info" for finding in report.findings)


def test_a_slow_rank_with_as_many_requests_as_the_others_is_a_straggler(recorded: Recorded) -> None:
    noisy_ranks(recorded, rank_2=40 * MS, scatter=3 * MS)
    recorded.requests += answered_by(*range(4))
    report = recorded.report()
    assert found(report, "uneven_work") == []
    assert [finding.severity for finding in found(report, "straggler")] == ["warning"]


@pytest.mark.parametrize(
    ("cores", "load", "shared"),
    [
        (2, 0.0, "4 ranks and the engine share 2 cores"),
        (8, 6.5, "4 ranks and the engine share 8 cores with a load of 6.50"),
        (8, 1.0, ""),
        (None, None, ""),
    ],
)
def test_ranks_that_share_cores_are_late_now_and_then_and_nobody_is_warned(
    cores: int | None, load: float | None, shared: str, recorded: Recorded
) -> None:
    recorded.host, recorded.load = MachineFacts(cores=cores), load
    recorded.device_map = device_map(range(4), first_pid=100)
    recorded.rounds(4, lambda step, rank: (step + rank) % 4 * 8 * MS)
    findings = recorded.report().findings
    told = [finding for finding in findings if finding.code in ("no_persistent_straggler", "late_ranks")]
    assert len(told) == 2
    assert {finding.severity for finding in told} == ({"info"} if shared else {"warning", "info"})
    assert all(finding.evidence.endswith(shared) for finding in told)


def test_ranks_that_are_slow_in_turn_are_warned_of_on_shared_cores_too(recorded: Recorded) -> None:
    recorded.on_shared_cores(4)
    recorded.rounds(4, lambda step, rank: (step * 7 + rank) % 3 * 4 * MS + 60 * MS * (rank == step % 4))
    first = recorded.report().findings[0]
    assert (first.code, first.severity) == ("no_persistent_straggler", "warning")
    assert first.title.endswith("in 100 % of the rounds one rank is far behind the others")


@pytest.mark.parametrize(("alternates", "severity"), [(True, "warning"), (False, "info")])
def test_two_ranks_slow_in_turn_are_told_from_chance_by_how_steady_their_distance_is(
    alternates: bool, severity: str, recorded: Recorded
) -> None:
    recorded.on_shared_cores(2)
    distance = (lambda step: 50 + step % 3) if alternates else (lambda step: 2 * step)
    recorded.rounds(2, lambda step, rank: distance(step) * MS * (rank == step % 2))
    [finding] = found(recorded.report(), "no_persistent_straggler")
    assert finding.severity == severity


# The headline: the first finding.


def healthy_ranks(recorded: Recorded) -> None:
    steps_in_flight(recorded)
    recorded.rounds(4, lambda step, rank: 50 * MS + (step + rank) % 4 * US)


def test_a_healthy_recording_says_so_in_one_sentence(recorded: Recorded) -> None:
    healthy_ranks(recorded)
    findings = recorded.report().findings
    assert all(finding.severity == "info" for finding in findings)
    assert findings[0].code == "healthy"
    assert findings[0].title == "healthy: two in flight, no rank persistently late, nothing lost"
    # 20 steps of which the first is not steady; 4 spans a step and 4 records a rank and step.
    assert findings[0].evidence == "measured: 20 decode steps, 19 steady rounds on 4 ranks and 400 records"


def test_on_shared_cores_a_healthy_run_says_what_it_could_not_show(recorded: Recorded) -> None:
    recorded.on_shared_cores(4)
    healthy_ranks(recorded)
    [finding] = found(recorded.report(), "healthy")
    # The ends of a round lie 0 to 3 us after 90 ms.
    assert finding.evidence.endswith(
        "; 4 ranks and the engine share 2 cores; ranks end 0.003 ms apart, so that one that is late by less does not show"
    )


def test_without_ranks_nobody_is_said_to_be_in_time(recorded: Recorded) -> None:
    steps_in_flight(recorded)
    [finding] = found(recorded.report(), "healthy")
    assert finding.title == "healthy: two in flight, nothing lost"


def test_what_is_warned_of_is_not_healthy(recorded: Recorded) -> None:
    healthy_ranks(recorded)
    recorded.span(f"{DECODE}.worker_run", at(30), at(30) + 50 * MS, 3)
    report = recorded.report()
    assert found(report, "healthy") == []
    assert report.findings[0].code == "synchronous_fallback"


def test_a_pipeline_of_which_no_depth_is_known_is_not_called_healthy(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, depth=1)
    for step in range(1, 9):
        start = at(2 * step)
        recorded.step(step, submit=(start, start + MS), wait=(start + MS, start + 90 * MS))
    report = recorded.report()
    assert found(report, "healthy")[0].title == "healthy: one in flight, as declared, nothing lost"
    unknown = analyze_recording(load_recording([tmp_path / "trace.json"]))
    assert found(unknown, "healthy") == []
    assert unknown.findings[0].code == "pipeline"


def test_a_collapsed_pipeline_comes_before_the_ranks(recorded: Recorded) -> None:
    for step in range(1, STEPS + 1):
        t = at(step)
        recorded.step(
            step,
            schedule=(t - 50 * MS, t - 49 * MS),
            prepare=(t - 48 * MS, t - 47 * MS),
            submit=(t + 2 * MS, t + 3 * MS),
            wait=(t + 20 * MS, at(step + 1)),
        )
        for rank in range(4):
            late = 20 * MS if rank == 1 else 0
            recorded.run(rank, step, t + 4 * MS, (t + 5 * MS, t + 60 * MS + late))
    first, second = recorded.report().findings[:2]
    assert (first.code, second.code) == ("pipeline_collapsed", "straggler")
    assert first.title.endswith("; the device lane waits for the step ahead")
