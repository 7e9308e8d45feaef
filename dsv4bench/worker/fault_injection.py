"""Injecting faults: the engine's side picks the dispatch, the rank's side suffers it (docs/faults.md).

`serialise` is the device lane's own: it asks the plan. `spoil-drafts` travels with the requests.
"""

from __future__ import annotations

import os
import signal
import time
import zlib
from collections.abc import Sequence

from dsv4bench.faults import Fault
from dsv4bench.tracing.strace import StraceEmitter

_BLOCK = bytes(1 << 15)


class FaultPlan:
    """Which faults a dispatch brings.

    Decode steps are counted from 0 behind the first prefill that the plan sees, so that a step of an earlier batch
    that is still on its way is none of them. Dispatches of one slot and generation are one step; a prefill holds no
    slot, its generation is 0.
    """

    def __init__(self, faults: Sequence[Fault] = ()) -> None:
        self._faults = tuple(faults)
        self._step: int | None = None
        self._holder = (0, 0)
        self.hit: dict[Fault, int] = {}
        """The first dispatch (its id) that brought each fault; a fault that is not here was never reached."""

    @property
    def serialises(self) -> bool:
        """Whether the device lane is to wait for each dispatch before it submits the next."""
        return self._step is not None and any(fault.kind == "serialise" for fault in self._faults)

    @property
    def spoilt_share(self) -> float:
        """Share of the drafts that are to be wrong."""
        return max((fault.share for fault in self._faults if fault.kind == "spoil-drafts"), default=0.0)

    def take(
        self, dispatch_id: int, slot_id: int, generation: int, *, ranks: int
    ) -> tuple[tuple[Fault, ...], ...]:
        """The faults of the next dispatch, for each rank."""
        nothing = ((),) * ranks
        if not self._faults:
            return nothing
        if generation == 0:
            self._step = -1 if self._step is None else self._step
            return nothing
        if self._step is None:
            return nothing
        if self._holder != (slot_id, generation):
            self._holder = (slot_id, generation)
            self._step += 1
        step = self._step
        taken = [fault for fault in self._faults if fault.step in (None, step)]
        for fault in taken:
            self.hit.setdefault(fault, dispatch_id)
        return tuple(
            tuple(fault for fault in taken if fault.rank_at(step, ranks) == rank) for rank in range(ranks)
        )

    def describe(self) -> list[str]:
        """Each fault, and the dispatch that it hit."""
        return [
            f"{fault} (from dispatch {self.hit[fault]} on)"
            if fault in self.hit and fault.step is None
            else f"{fault} (dispatch {self.hit[fault]})"
            if fault in self.hit
            else f"{fault} (not reached)"
            for fault in self._faults
        ]


def enter_runner(faults: Sequence[Fault]) -> None:
    """Kill, hang or raise at the start of a rank's runner: the other ranks wait for it in their first exchange."""
    for fault in faults:
        if fault.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault.kind == "hang":
            while True:
                signal.pause()
        elif fault.kind == "raise":
            raise RuntimeError(f"injected fault: {fault}")


def leave_runner(faults: Sequence[Fault], cpu_start_ns: int) -> None:
    """Prolong a slow rank's runner, behind its last exchange: earlier, every other rank would take as long.

    A delay is slept. A share is computed: where ranks share cores, a rank that sleeps gives its core to the others, and
    the step may take no longer. `cpu_start_ns` is this thread's processor time (`time.thread_time_ns`) when the runner
    began.
    """
    for fault in faults:
        if fault.kind == "slow":
            _compute(round(fault.share * (time.thread_time_ns() - cpu_start_ns)))
            time.sleep(fault.delay_ns / 1e9)


def _compute(cpu_ns: int) -> None:
    """Use so much processor time. The interpreter's lock is free meanwhile, as it is in a kernel."""
    end = time.thread_time_ns() + cpu_ns
    while time.thread_time_ns() < end:
        zlib.crc32(_BLOCK)


def emitter_for(faults: Sequence[Fault], emitter: StraceEmitter) -> StraceEmitter:
    """What writes the records of a dispatch with these faults."""
    kinds = {fault.kind for fault in faults}
    if "drop-strace" in kinds:
        return StraceEmitter(enabled=False)
    return TearingEmitter() if "torn-strace" in kinds else emitter


class TearingEmitter(StraceEmitter):
    """Cuts root records before their duration, without an end of line, as a writer that was interrupted leaves them."""

    def _write(self, line: bytes) -> None:
        super()._write(line.partition(b" dur=")[0] if b" name=chip.run " in line else line)
