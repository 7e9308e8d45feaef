"""The two ping-pong slots: each owns every host buffer that its step reads or writes."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsv4bench.cache.layout import CacheLayout
from dsv4bench.engine.metadata import Allocate, TableBuffers
from dsv4bench.engine.steps import DecodeOutput, DecodeStep
from dsv4bench.errors import EngineError
from dsv4bench.worker.task_args import DecodeArgs

SLOTS = 2


class DecodeSlot:
    """The buffers of one slot and who holds them.

    `generation` counts the steps that used the slot; STRACE records carry it.
    """

    def __init__(
        self, index: int, allocate: Allocate, layout: CacheLayout, ranks: int, rows: int, step_tokens: int
    ) -> None:
        self.index = index
        self.generation = 0
        self.buffers = TableBuffers(allocate, layout, ranks, rows)
        self.args: DecodeArgs[NDArray[Any]] = DecodeArgs(
            step_id=allocate((1,), np.int64),
            row_counts=allocate((ranks,), np.int32),
            state_slots=allocate((ranks, rows), np.int32),
            generations=allocate((ranks, rows), np.int64),
            sampled_ids=allocate((ranks, rows, step_tokens), np.int32),
            accepted_counts=allocate((ranks, rows), np.int32),
            tail_positions=allocate((ranks, rows), np.int64),
            echoed_step_ids=allocate((ranks,), np.int64),
        )
        # No step has this id: a rank that never wrote its echo cannot pass for one that ran step 0.
        self._step_id = -1
        self.args.echoed_step_ids.fill(-1)

    def pack(self, step: DecodeStep) -> None:
        """Fill the active prefix of every input for `step`."""
        args = self.args
        self._step_id = step.step_id
        args.step_id[0] = step.step_id
        for rank, requests in enumerate(step.requests):
            args.row_counts[rank] = len(requests)
            self.buffers.update(rank, requests)
            for row, request in enumerate(requests):
                args.state_slots[rank, row] = request.state_slot
                args.generations[rank, row] = request.generation

    def read(self) -> DecodeOutput:
        """Copy the outputs, so that the slot can be used again.

        Raises:
            EngineError: a rank echoed another step's id: its outputs are not this step's.
        """
        echoed = self.args.echoed_step_ids
        if (echoed != self._step_id).any():
            wrong = {rank: int(step) for rank, step in enumerate(echoed) if step != self._step_id}
            raise EngineError(
                f"slot {self.index}: step {self._step_id} was expected, but "
                + ", ".join(f"rank {rank} echoed step {step}" for rank, step in wrong.items())
            )
        return DecodeOutput(self.args.sampled_ids.copy(), self.args.accepted_counts.copy())


class SlotPool:
    """Hands the slots out: step N + 2 gets its slot only after step N was reclaimed."""

    def __init__(self, slots: list[DecodeSlot]) -> None:
        self._slots = slots
        self._holder: list[int | None] = [None] * len(slots)
        self._changed = threading.Condition()
        self._closed = False

    def take(self, step: DecodeStep) -> DecodeSlot | None:
        """Wait for the step's slot and take it; None once the pool is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._holder[step.slot] is None)
            if self._closed:
                return None
            self._holder[step.slot] = step.step_id
            slot = self._slots[step.slot]
            slot.generation += 1
            return slot

    def release(self, step: DecodeStep) -> None:
        """Give the step's slot back, after its outputs were read.

        Raises:
            RuntimeError: the slot is not held by this step.
        """
        with self._changed:
            holder = self._holder[step.slot]
            if holder != step.step_id:
                raise RuntimeError(f"slot {step.slot} is held by step {holder}, not by step {step.step_id}")
            self._holder[step.slot] = None
            self._changed.notify_all()

    def close(self) -> None:
        """Wake whoever waits for a slot; none is handed out any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
