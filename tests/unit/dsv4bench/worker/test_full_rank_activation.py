"""All ranks bind a dispatch before any starts its runner: the gate, and the rank that goes through it (docs/engine.md)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from multiprocessing.context import ForkContext
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4bench.worker import messages
from dsv4bench.worker.board import Progress
from dsv4bench.worker.device_phases import DevicePhases
from dsv4bench.worker.exchange import DispatchGate
from dsv4bench.worker.messages import (
    ArgumentSignature,
    Complete,
    Dispatch,
    ProgramSpec,
    Ready,
    ScalarArgument,
)
from dsv4bench.worker.rank import Rank

GUARD_S = 30.0
"""Ends a test that would hang; nothing is decided by it."""


class WouldWaitError(Exception):
    """A semaphore at zero: a rank would sleep here."""


class CountedSemaphore:
    """A semaphore for one thread, in which waiting is an error."""

    def __init__(self, value: int) -> None:
        self.value = value

    def acquire(self) -> None:
        if not self.value:
            raise WouldWaitError
        self.value -= 1

    def release(self) -> None:
        self.value += 1


class OneThread:
    """Stands for the context that makes a gate's semaphores."""

    Semaphore = CountedSemaphore


def gate_for(ranks: int) -> DispatchGate:
    return DispatchGate(cast(ForkContext, OneThread()), ranks, np.zeros(2, np.int64))


@given(st.integers(1, 5), st.data())
def test_the_gate_opens_for_a_dispatch_when_every_rank_has_bound_it(ranks: int, data: st.DataObject) -> None:
    """Ranks bind and run in any order, two dispatches ahead at most: none passes before the last one has bound."""
    gate = gate_for(ranks)
    bound, passed = [0] * ranks, [0] * ranks
    for _ in range(8 * ranks):
        rank = data.draw(st.integers(0, ranks - 1))
        # A third dispatch is not submitted before the first is through on every rank.
        may_bind = bound[rank] < min(passed) + 2
        if may_bind and data.draw(st.booleans()):
            bound[rank] += 1
            gate.arrive(bound[rank])
        elif passed[rank] < min(bound):
            gate.wait(rank)
            passed[rank] += 1
        else:
            with pytest.raises(WouldWaitError):
                gate.wait(rank)


class WatchedGate:
    """Opens when it is told to; keeps what came to it, in order."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.changed = threading.Condition()
        self._open = threading.Event()

    def note(self, event: str) -> None:
        with self.changed:
            self.events.append(event)
            self.changed.notify_all()

    def saw(self, event: str) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: event in self.events, GUARD_S)

    def open(self) -> None:
        self.note("open")
        self._open.set()

    def arrive(self, dispatch_id: int) -> None:
        self.note(f"bound {dispatch_id}")

    def wait(self, rank: int) -> None:
        self.note(f"rank {rank} at the gate")
        assert self._open.wait(GUARD_S)


class Programs:
    """One program, which says that it runs."""

    def __init__(self, gate: WatchedGate) -> None:
        self._gate = gate

    def step(self, number: int) -> None:
        self._gate.note(f"run {number}")


class RankThread:
    """A rank process's code on a thread of this process."""

    def __init__(self) -> None:
        self.gate = WatchedGate()
        self.progress = np.zeros(len(Progress), np.int64)
        self._engine, self._channel = messages.socket_pair()
        self._engine.settimeout(GUARD_S)
        process = Rank(
            3,
            self._channel,
            np.zeros(64, np.uint8),
            np.zeros(64, np.uint8),
            [ProgramSpec("step", "step", "5" * 16, [ArgumentSignature("number", "scalar", ())])],
            Programs(self.gate),
            self.gate,
            self.progress,
            DevicePhases(),
        )
        self._thread = threading.Thread(target=process.serve)
        self._thread.start()
        assert isinstance(self.receive(), Ready)

    def dispatch(self, dispatch_id: int, *arguments: Any) -> None:
        encoded = messages.encode([ScalarArgument(argument) for argument in arguments])
        self._engine.send(messages.encode(Dispatch(dispatch_id, 0, 1, 9, True, encoded)))

    def receive(self) -> Ready | Complete:
        return messages.decode_from_rank(self._engine.recv(messages.MAX_MESSAGE_BYTES))

    def close(self) -> None:
        """Let it run what it has, and end it; idempotent."""
        if not self._thread.is_alive():
            return
        self.gate.open()
        self._engine.send(messages.encode(messages.Stop()))
        self._thread.join(GUARD_S)
        assert not self._thread.is_alive()
        self._engine.close()
        self._channel.close()


@pytest.fixture
def rank() -> Iterator[RankThread]:
    started = RankThread()
    yield started
    started.close()


def test_a_rank_binds_ahead_and_runs_nothing_before_the_gate_opens(rank: RankThread) -> None:
    rank.dispatch(1, 10)
    rank.dispatch(2, 20)
    # The second is bound while the first waits at the gate.
    assert rank.gate.saw("bound 2")
    assert rank.gate.saw("rank 3 at the gate")
    assert rank.progress[Progress.BOUND] == 2
    assert rank.progress[Progress.COMPLETED] == 0
    rank.gate.open()
    assert [rank.receive(), rank.receive()] == [Complete(1), Complete(2)]
    assert rank.progress[Progress.COMPLETED] == 2
    events = rank.gate.events
    assert [event for event in events if not event.startswith("bound")] == [
        "rank 3 at the gate",
        "open",
        "run 10",
        "rank 3 at the gate",
        "run 20",
    ]
    assert [event for event in events if event.startswith("bound")] == ["bound 1", "bound 2"]


def test_a_rank_that_cannot_bind_does_not_open_the_gate_for_the_others(rank: RankThread) -> None:
    rank.dispatch(1, 10, 11)
    failed = rank.receive()
    assert isinstance(failed, Complete)
    assert failed.error is not None
    assert "step takes 1 arguments, got 2" in failed.error
    assert rank.gate.events == []
    assert rank.progress[Progress.BOUND] == 0


def test_a_dispatch_leaves_one_record_a_phase(rank: RankThread, capfd: pytest.CaptureFixture[str]) -> None:
    rank.gate.open()
    rank.dispatch(7, 10)
    assert rank.receive() == Complete(7)
    rank.close()
    lines = [line for line in capfd.readouterr().err.splitlines() if "[STRACE]" in line]
    fields = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines]
    identity = {"dispatch_id": "7", "slot_id": "1"}
    root = {**identity, "run_id": "7", "run_epoch": "7", "generation": "9"}
    expected = {
        "ext.dsv4bench.bind_ahead": ("0", identity),
        "chip.run": ("0", root),
        "chip.run.bind": ("1", {}),
        "chip.run.post_bind": ("1", {}),
        "chip.run.runner_run": ("1", {}),
        "chip.run.validate": ("1", {}),
        "chip.run.claim_release": ("1", {}),
    }
    assert len(fields) == len(expected)
    assert {field["name"] for field in fields} == set(expected)
    for field in fields:
        depth, attributes = expected[field["name"]]
        own = {key: field[key] for key in field.keys() & root.keys()}
        assert (field["depth"], own, field["hid"], field["inv"]) == (depth, attributes, "5" * 16, "1")
    spans = {field["name"]: (int(field["ts"]), int(field["ts"]) + int(field["dur"])) for field in fields}
    # Bound before the runner starts, and every phase inside of the run, one behind the other.
    assert spans["ext.dsv4bench.bind_ahead"][1] <= spans["chip.run.runner_run"][0]
    phases = ("bind", "post_bind", "runner_run", "validate", "claim_release")
    times = [time for phase in phases for time in spans[f"chip.run.{phase}"]]
    assert times == sorted(times)
    assert (times[0], times[-1]) == spans["chip.run"]
