"""Lanes: outcomes leave in submission order, failures included, and every slot comes back."""

import queue
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from dsv4bench.engine.lanes import Lanes
from dsv4bench.engine.runner import DispatchedDecode, PreparedDecode
from dsv4bench.engine.steps import DecodeStep, Outcome, PrefillStep, Step
from dsv4bench.tracing.recorder import NullRecorder


class FakeTicket:
    """Settles when its step is reclaimed."""

    def __init__(self, settled: Any) -> None:
        self._settled = settled

    def settle(self) -> None:
        assert self._settled.wait(5)


class FakeRunner:
    """Fails where it is told to, and keeps count of the slots."""

    def __init__(self, failing: Mapping[int, str] | None = None) -> None:
        self.failing = failing or {}
        self.held: set[int] = set()
        self.dispatched: list[int] = []
        self.hold = threading.Event()
        self.hold.set()
        self.settled: dict[int, Any] = {}

    def _maybe_fail(self, phase: str, step_id: int) -> None:
        if self.failing.get(step_id) == phase:
            raise ValueError(f"{phase} {step_id}")

    def prepare_decode(self, step: DecodeStep) -> PreparedDecode:
        self._maybe_fail("prepare", step.step_id)
        self.held.add(step.step_id)
        return PreparedDecode(step, None)

    def release_unsubmitted(self, prepared: PreparedDecode) -> None:
        self.held.remove(prepared.step.step_id)

    def dispatch_decode(self, prepared: PreparedDecode) -> DispatchedDecode:
        step_id = prepared.step.step_id
        if self.failing.get(step_id) == "dispatch":
            self.held.remove(step_id)
            raise ValueError(f"dispatch {step_id}")
        self.dispatched.append(step_id)
        self.settled[step_id] = threading.Event()
        return DispatchedDecode(prepared.step, None, cast(Any, FakeTicket(self.settled[step_id])))

    def reclaim_decode(self, dispatched: DispatchedDecode) -> str:
        self.hold.wait()
        step_id = dispatched.step.step_id
        self.settled[step_id].set()
        self.held.remove(step_id)
        self._maybe_fail("reclaim", step_id)
        return f"output {step_id}"

    def execute_prefill(self, step: PrefillStep) -> None:
        raise ValueError("prefill")


@pytest.fixture
def outcomes() -> queue.SimpleQueue[Outcome]:
    return queue.SimpleQueue()


def run(
    runner: Any, outcomes: queue.SimpleQueue[Outcome], steps: Sequence[Step]
) -> tuple[Lanes, list[Outcome]]:
    lanes = Lanes(cast(Any, runner), NullRecorder(), outcomes.put)
    for step in steps:
        lanes.put(step)
    results = [outcomes.get(timeout=5) for _ in steps]
    return lanes, results


def described(results: list[Outcome]) -> list[str]:
    return [str(result.error or result.output) for result in results]


def decode(*step_ids: int) -> list[DecodeStep]:
    return [DecodeStep(step_id, ()) for step_id in step_ids]


def test_outcomes_come_in_submission_order(outcomes: queue.SimpleQueue[Outcome]) -> None:
    runner = FakeRunner()
    lanes, results = run(runner, outcomes, decode(0, 1, 2, 3))
    lanes.close()
    assert [cast(DecodeStep, result.step).step_id for result in results] == [0, 1, 2, 3]
    assert described(results) == ["output 0", "output 1", "output 2", "output 3"]


@pytest.mark.parametrize("phase", ["prepare", "dispatch"])
def test_a_failed_step_keeps_its_place_and_fails_those_behind_it(
    outcomes: queue.SimpleQueue[Outcome], phase: str
) -> None:
    runner = FakeRunner({1: phase})
    lanes, results = run(runner, outcomes, decode(0, 1, 2, 3))
    lanes.close()
    assert described(results) == ["output 0", f"{phase} 1", f"{phase} 1", f"{phase} 1"]
    assert runner.dispatched == [0]
    assert runner.held == set()


def test_a_failed_reclaim_frees_its_slot_and_drains_what_was_in_flight(
    outcomes: queue.SimpleQueue[Outcome],
) -> None:
    runner = FakeRunner({0: "reclaim"})
    runner.hold.clear()
    lanes = Lanes(cast(Any, runner), NullRecorder(), outcomes.put)
    for step in decode(0, 1):
        lanes.put(step)
    while len(runner.dispatched) < 2:
        pass
    runner.hold.set()
    results = [outcomes.get(timeout=5) for _ in range(2)]
    # The late result of step 1 was waited for and delivered, not lost.
    assert described(results) == ["reclaim 0", "output 1"]
    lanes.put(DecodeStep(2, ()))
    assert described([outcomes.get(timeout=5)]) == ["reclaim 0"]
    lanes.close()
    assert runner.held == set()
    assert runner.dispatched == [0, 1]


def test_a_failed_prefill_is_an_outcome_like_any_other(outcomes: queue.SimpleQueue[Outcome]) -> None:
    lanes, results = run(FakeRunner(), outcomes, [PrefillStep(0, ())])
    lanes.close()
    assert described(results) == ["prefill"]


def test_close_lets_the_steps_on_the_way_come_out(outcomes: queue.SimpleQueue[Outcome]) -> None:
    runner = FakeRunner()
    lanes = Lanes(cast(Any, runner), NullRecorder(), outcomes.put)
    for step in decode(0, 1, 2):
        lanes.put(step)
    lanes.close()
    assert described([outcomes.get_nowait() for _ in range(3)]) == ["output 0", "output 1", "output 2"]


@pytest.mark.parametrize(("serialised", "in_flight"), [(True, [0]), (False, [0, 1])])
def test_a_serialised_device_lane_waits_for_each_step_before_it_dispatches_the_next(
    outcomes: queue.SimpleQueue[Outcome], serialised: bool, in_flight: list[int]
) -> None:
    runner = FakeRunner()
    runner.hold.clear()
    lanes = Lanes(cast(Any, runner), NullRecorder(), outcomes.put, serialised=lambda: serialised)
    for step in decode(0, 1):
        lanes.put(step)
    deadline = time.monotonic() + 5
    while (len(runner.held) < 2 or len(runner.dispatched) < len(in_flight)) and time.monotonic() < deadline:
        pass
    assert runner.dispatched == in_flight
    runner.hold.set()
    lanes.close()
    assert described([outcomes.get_nowait() for _ in range(2)]) == ["output 0", "output 1"]
    assert runner.dispatched == [0, 1]


def test_a_serialised_device_lane_does_not_wait_for_a_step_that_failed(
    outcomes: queue.SimpleQueue[Outcome],
) -> None:
    runner = FakeRunner({0: "reclaim"})
    lanes = Lanes(cast(Any, runner), NullRecorder(), outcomes.put, serialised=lambda: True)
    for step in decode(0, 1):
        lanes.put(step)
    results = [outcomes.get(timeout=5) for _ in range(2)]
    lanes.close()
    assert described(results)[0] == "reclaim 0"
    assert runner.held == set()
