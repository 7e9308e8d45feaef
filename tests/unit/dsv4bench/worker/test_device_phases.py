"""What a rank's device phases say: the stamps, and the records that a dispatch leaves of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import numpy as np
import pytest
import torch

from dsv4bench.faults import Fault, parse_fault
from dsv4bench.model.exchange import LocalExchange
from dsv4bench.worker import device_phases, messages
from dsv4bench.worker.board import Progress
from dsv4bench.worker.device_phases import DevicePhases, StampedExchange
from dsv4bench.worker.messages import Complete, Dispatch, ProgramSpec, Ready
from dsv4bench.worker.rank import Rank

WALL = "chip.run.runner_run.device_wall"
GUARD_S = 30.0


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that shows 1000, 1010, 1020, ..."""
    ticks = count(1000, 10)
    monkeypatch.setattr(device_phases, "perf_counter_ns", lambda: next(ticks))


@pytest.mark.usefixtures("ticking")
def test_spans_count_from_the_call_and_sched_ends_with_the_last_exchange() -> None:
    phases = DevicePhases()
    exchange = StampedExchange(LocalExchange(), phases)
    rows = torch.ones(2, 3)
    phases.begin()  # 1000
    phases.fed()  # 1010
    for _ in range(3):
        received, counts = exchange.all_to_all(rows, [2])  # 1020, 1030, 1040
        assert received is rows
        assert counts == [2]
    phases.end()  # 1050
    assert list(phases.spans()) == [
        (f"{WALL}.orch", 0, 10, 3),
        (f"{WALL}.sched", 10, 40, 3),
        (WALL, 0, 50, 2),
    ]
    assert (exchange.rank, exchange.ranks) == (0, 1)


@pytest.mark.usefixtures("ticking")
def test_what_a_program_did_not_reach_is_left_out_and_not_taken_from_the_one_before() -> None:
    phases = DevicePhases()
    phases.begin()
    phases.fed()
    phases.exchanged()
    phases.end()
    phases.begin()
    phases.fed()
    phases.end()
    assert list(phases.spans()) == [(f"{WALL}.orch", 0, 10, 3), (WALL, 0, 20, 2)]
    phases.begin()
    phases.exchanged()  # by a program that stamps nothing else: where its host side ends is unknown
    phases.end()
    assert list(phases.spans()) == [(WALL, 0, 20, 2)]


class Programs:
    """Programs that stamp, or do not."""

    def __init__(self, phases: DevicePhases) -> None:
        self._phases = phases
        self._exchange = StampedExchange(LocalExchange(), phases)

    def stamping(self) -> None:
        self._phases.fed()
        self._exchange.all_to_all(torch.ones(1, 1), [1])

    def plain(self) -> None:
        pass


class OpenGate:
    def arrive(self, dispatch_id: int) -> None:
        pass

    def wait(self, rank: int) -> None:
        pass


@contextmanager
def rank_on_a_thread() -> Iterator[Callable[[Dispatch], None]]:
    """Runs a dispatch on a rank's code in this process, whose stderr gets the records."""
    engine, channel = messages.socket_pair()
    engine.settimeout(GUARD_S)
    phases = DevicePhases()
    specs = [ProgramSpec("stamping", "stamping", "5" * 16), ProgramSpec("plain", "plain", "6" * 16)]
    memory, progress = np.zeros(64, np.uint8), np.zeros(len(Progress), np.int64)
    rank = Rank(0, channel, memory, memory, specs, Programs(phases), OpenGate(), progress, phases)
    thread = threading.Thread(target=rank.serve)
    thread.start()

    def receive() -> Ready | Complete:
        return messages.decode_from_rank(engine.recv(messages.MAX_MESSAGE_BYTES))

    assert isinstance(receive(), Ready)

    def run(dispatch: Dispatch) -> None:
        engine.send(messages.encode(dispatch))
        assert receive() == Complete(dispatch.dispatch_id)

    yield run
    engine.send(messages.encode(messages.Stop()))
    thread.join(GUARD_S)
    assert not thread.is_alive()
    engine.close()
    channel.close()


def dispatch(
    number: int, program: int, *, trace: bool = True, phases: bool = True, faults: tuple[Fault, ...] = ()
) -> Dispatch:
    return Dispatch(number, program, 1, 9, trace, messages.encode([]), faults, phases)


def records(text: str) -> list[dict[str, str]]:
    lines = [line for line in text.splitlines() if "[STRACE]" in line]
    return [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines]


def test_device_phases_lie_in_the_runner_of_their_run_on_a_clock_of_their_own(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with rank_on_a_thread() as run:
        run(dispatch(1, 0))
        run(dispatch(2, 1))
    found = records(capfd.readouterr().err)
    assert {record["name"] for record in found if record.get("clk") == "dev"} == {
        WALL,
        f"{WALL}.orch",
        f"{WALL}.sched",
    }
    first, second = ({r["name"]: r for r in found if r["inv"] == inv} for inv in ("1", "2"))
    assert f"{WALL}.orch" not in second
    assert f"{WALL}.sched" not in second
    for run_records in (first, second):
        wall, runner = run_records[WALL], run_records["chip.run.runner_run"]
        assert (wall["ts"], wall["depth"], wall["hid"]) == ("0", "2", runner["hid"])
        assert int(wall["dur"]) <= int(runner["dur"])
        assert not {"run_id", "dispatch_id"} & wall.keys()
    orch, sched = first[f"{WALL}.orch"], first[f"{WALL}.sched"]
    assert (orch["ts"], orch["depth"], sched["depth"]) == ("0", "3", "3")
    assert sched["ts"] == orch["dur"]
    assert int(sched["ts"]) + int(sched["dur"]) <= int(first[WALL]["dur"])


@pytest.mark.parametrize(("trace", "phases"), [(True, False), (False, True), (False, False)])
def test_without_being_asked_for_there_is_none(
    trace: bool, phases: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    with rank_on_a_thread() as run:
        run(dispatch(1, 0, trace=trace, phases=phases))
    found = records(capfd.readouterr().err)
    assert bool(found) == trace
    assert not [record for record in found if "device_wall" in record["name"] or "clk" in record]


def test_what_makes_a_rank_slow_is_the_programs_time_behind_its_last_exchange(
    capfd: pytest.CaptureFixture[str],
) -> None:
    slow = (parse_fault("rank=0,step=1,kind=slow:30ms"),)
    with rank_on_a_thread() as run:
        run(dispatch(1, 0, faults=slow))
    found = {record["name"]: record for record in records(capfd.readouterr().err)}
    sched = found[f"{WALL}.sched"]
    assert int(found[WALL]["dur"]) - int(sched["ts"]) - int(sched["dur"]) >= 30_000_000
