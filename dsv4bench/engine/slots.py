"""The two ping-pong slots: each owns every host buffer that its step reads or writes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from dsv4bench.cache.layout import CacheLayout
from dsv4bench.engine.metadata import Allocate, Blocks, TableBuffers
from dsv4bench.engine.packing import RequestChecks, allocate_arrays, pack_decode
from dsv4bench.engine.requests import ActiveRequest
from dsv4bench.engine.steps import DecodeOutput, DecodeStep
from dsv4bench.errors import EngineError
from dsv4bench.worker.task_args import DecodeArgs, decode_specs

SLOTS = 2


class DecodeSlot:
    """The buffers of one slot and who holds them.

    `generation` counts the steps that used the slot; STRACE records carry it.
    """

    def __init__(
        self,
        index: int,
        allocate: Allocate,
        layout: CacheLayout,
        ranks: int,
        rows: int,
        step_tokens: int,
        pages: Sequence[int] | None = None,
    ) -> None:
        """Make the buffers; `pages` is how many a rank has per group, see `packing.RequestChecks`."""
        self.index = index
        self.generation = 0
        self.buffers = TableBuffers(allocate, layout, ranks, rows)
        self._specs = decode_specs(ranks, rows, step_tokens)
        self._checks = RequestChecks(layout, ranks, rows, pages)
        self.args: DecodeArgs[NDArray[Any]] = allocate_arrays(self._specs, allocate)
        # None: not known. Fresh buffers hold no rows.
        self._packed: list[list[tuple[ActiveRequest, Blocks]] | None] = [[] for _ in range(ranks)]
        # No step has this id: a rank that never wrote its echo cannot pass for one that ran step 0.
        self._step_id = -1
        self.args.echoed_step_ids.fill(-1)

    def pack(self, step: DecodeStep) -> None:
        """Fill every input for `step`; see `pack_rows` and `update_tables`."""
        self.update_tables(step, self.pack_rows(step))

    def pack_rows(self, step: DecodeStep) -> list[int]:
        """Fill the active prefix of the rows; ranks whose rows are those of the slot's last step keep them.

        Returns the ranks that changed.

        Raises:
            ValueError: a row of the step is out of range; nothing was written.
        """
        changed = [rank for rank, requests in enumerate(step.requests) if not self._holds(rank, requests)]
        if changed:
            pack_decode(step, self.args, self._specs, self._checks, ranks=changed)
        self.args.step_id[0] = step.step_id
        self._step_id = step.step_id
        return changed

    def update_tables(self, step: DecodeStep, ranks: Sequence[int]) -> None:
        """Bring the block tables of `ranks` up to date."""
        for rank in ranks:
            self.buffers.update(rank, step.requests[rank])
            self._packed[rank] = [(request, request.blocks) for request in step.requests[rank]]

    def forget_rows(self) -> None:
        """Drop what is known of the slot's rows: the next step checks and writes all of them."""
        self._packed = [None for _ in self._packed]
        self._checks.forget()

    def forget(self) -> None:
        """Drop what is known of the slot's content: the next step fills and builds everything."""
        self.forget_rows()
        self.buffers.forget()

    def _holds(self, rank: int, requests: Sequence[ActiveRequest]) -> bool:
        """Whether the rank's rows are these, with these blocks: `ActiveRequest.blocks` is replaced when they change."""
        if rank >= len(self._packed):
            return False
        packed = self._packed[rank]
        if packed is None or len(packed) != len(requests):
            return False
        for request, (before, blocks) in zip(requests, packed, strict=True):
            if request is not before or request.blocks is not blocks:
                return False
        return True

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
