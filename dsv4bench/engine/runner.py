"""The model runner: turns steps into dispatches of the DeepSeek-V4 programs and reads their outputs back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from dsv4bench.cache.layout import CacheLayout
from dsv4bench.engine.page_clearing import PageClearing
from dsv4bench.engine.prefill import PrefillBuffers
from dsv4bench.engine.prefix_snapshots import SnapshotCopies
from dsv4bench.engine.requests import ActiveRequest
from dsv4bench.engine.slots import SLOTS, DecodeSlot, SlotPool
from dsv4bench.engine.steps import DecodeOutput, DecodeStep, PrefillOutput, PrefillStep
from dsv4bench.engine.tickets import Ticket
from dsv4bench.model.config import ModelConfig
from dsv4bench.tracing.recorder import Recorder
from dsv4bench.tracing.settings import Level
from dsv4bench.worker.program_specs import MTP_PREFILL, PREFILL, decode_program
from dsv4bench.worker.protocol import Argument, StackedDeviceTensor, Worker
from dsv4bench.worker.signatures import pool_specs, state_specs
from dsv4bench.worker.task_args import (
    NO_OVERRIDE,
    DeviceState,
    Pools,
    values,
)

# Span names of docs/formats.md, Serving trace: (name, category, level), from the outermost inwards.
_Spans = tuple[tuple[str, str, Level], ...]
_PREPARE: _Spans = (
    ("WorkerProcess.prepare_decode", "worker", "e2e"),
    ("PyptoExecutor.prepare_decode", "executor", "e2e"),
    ("DeepSeekV4ModelRunner.decode.prepare_early", "executor", "verbose"),
)
_DISPATCH: _Spans = (
    ("WorkerProcess.dispatch_decode", "worker", "e2e"),
    ("PyptoExecutor.dispatch_prepared_decode", "executor", "e2e"),
    ("DeepSeekV4ModelRunner.decode.l3_dispatch", "executor", "verbose"),
)
_RECLAIM: _Spans = (
    ("WorkerProcess.reclaim_decode", "worker", "e2e"),
    ("PyptoExecutor.reclaim_prepared_decode", "executor", "e2e"),
)
_PREFILL: _Spans = (
    ("WorkerProcess.execute_step", "worker", "e2e"),
    ("PyptoExecutor.batch_prefill", "executor", "e2e"),
)
_PACK = "DeepSeekV4ModelRunner.decode.pack"
_METADATA = "DeepSeekV4ModelRunner.decode.metadata"
_READ = "DeepSeekV4ModelRunner.decode.mtp_reclaim"
_MTP_STAGING = "DeepSeekV4ModelRunner.prefill.mtp_staging"


@dataclass(frozen=True)
class PreparedDecode:
    """A step whose inputs lie in its slot."""

    step: DecodeStep
    slot: DecodeSlot


@dataclass(frozen=True)
class DispatchedDecode:
    """A step in flight."""

    step: DecodeStep
    slot: DecodeSlot
    ticket: Ticket


class ModelRunner:
    """Owns cache pools, device state, slots and prefill buffers for the life of the worker.

    Each method belongs to one lane: `prepare_decode` (prepare), `dispatch_decode` and `execute_prefill` (device),
    `reclaim_decode` (output).
    """

    def __init__(
        self,
        worker: Worker,
        config: ModelConfig,
        layout: CacheLayout,
        recorder: Recorder,
        *,
        requests_per_rank: int,
        pages: Sequence[int],
        prefill_tokens: int,
        speculative_tokens: int,
    ) -> None:
        self._worker = worker
        self._recorder = recorder
        self._program = decode_program(speculative_tokens)
        self._speculative = speculative_tokens > 0
        ranks = worker.ranks
        self.slots = [
            DecodeSlot(
                index, worker.alloc_host, layout, ranks, requests_per_rank, speculative_tokens + 1, pages
            )
            for index in range(SLOTS)
        ]
        self.slot_pool = SlotPool(self.slots)
        self._prefill = PrefillBuffers(
            worker.alloc_host, layout, ranks, requests_per_rank, prefill_tokens, pages
        )
        self._pools: Pools[StackedDeviceTensor] = self._allocate(pool_specs(layout, pages), {})
        self._clearing = PageClearing(worker, self._pools, layout)
        self._state: DeviceState[StackedDeviceTensor] = self._allocate(
            state_specs(config, layout, requests_per_rank, speculative_tokens),
            {"integers": 0, "sampling": 0, "hidden": 0, "prefill_hidden": 0, "draft_override": NO_OVERRIDE},
        )
        self._snapshots = SnapshotCopies(worker, config, layout, self._pools, self._state)
        # The same objects for the life of the runner: what changes between steps is their content.
        self._decode_arguments: list[list[Argument]] = [
            [*values(slot.args), *values(slot.buffers.tables), *values(self._state), *values(self._pools)]
            for slot in self.slots
        ]
        self._override_row = np.empty(layout.max_model_len, np.int32)
        self._overridden: set[tuple[int, int]] = set()

    # Prepare lane

    def prepare_decode(self, step: DecodeStep) -> PreparedDecode | None:
        """Take the step's slot and pack its inputs; None once the engine is closing."""
        slot = self.slot_pool.take(step)
        if slot is None:
            return None
        with self._nested(_PREPARE, step_id=step.step_id, buffer_slot=step.slot):
            try:
                with self._recorder.span(_PACK, "executor", level="verbose", step_id=step.step_id):
                    changed = slot.pack_rows(step)
                with self._recorder.span(_METADATA, "executor", level="verbose", step_id=step.step_id):
                    slot.update_tables(step, changed)
            except BaseException:
                self.slot_pool.release(step)
                raise
        return PreparedDecode(step, slot)

    # Device lane

    def dispatch_decode(self, prepared: PreparedDecode) -> DispatchedDecode:
        """Submit a prepared step; does not wait for it."""
        step, slot = prepared.step, prepared.slot
        with self._nested(_DISPATCH, step_id=step.step_id, buffer_slot=step.slot):
            try:
                self._clearing.before_dispatch(step.requests)
                ticket = Ticket.submit(
                    self._worker,
                    self._program,
                    self._decode_arguments[step.slot],
                    self._recorder,
                    {"step_id": step.step_id, "slot": step.slot},
                    slot_id=step.slot,
                    generation=slot.generation,
                )
            except BaseException:
                self.slot_pool.release(step)
                raise
        return DispatchedDecode(step, slot, ticket)

    def execute_prefill(self, step: PrefillStep) -> PrefillOutput:
        """Run a prefill step to its end, MTP prefill included where a prompt ends."""
        batch_size = sum(map(len, step.chunks))
        with self._nested(_PREFILL, batch_size=batch_size):
            with self._recorder.span(_MTP_STAGING, "executor", level="verbose", batch_size=batch_size):
                self._prefill.pack(step)
            self._clearing.before_dispatch([[chunk.request for chunk in chunks] for chunks in step.chunks])
            self._snapshots.restore(step)
            terminal = [chunk.request for chunks in step.chunks for chunk in chunks if chunk.terminal]
            for request in terminal:
                self._upload_injected_drafts(request)
            self._run_blocking(PREFILL, [*values(self._prefill.args)], self._prefill.tiles)
            self._snapshots.take(step)
            if terminal and self._speculative:
                self._run_blocking(MTP_PREFILL, [*values(self._prefill.mtp_args)], self._prefill.mtp_tiles)
            return self._prefill.read()

    # Output lane

    def reclaim_decode(self, dispatched: DispatchedDecode) -> DecodeOutput:
        """Wait for a step, read its outputs, and free its slot, also when it failed."""
        step = dispatched.step
        try:
            with self._nested(_RECLAIM, step_id=step.step_id):
                dispatched.ticket.wait()
                with self._recorder.span(_READ, "executor", level="verbose", step_id=step.step_id):
                    return dispatched.slot.read()
        finally:
            self.slot_pool.release(step)

    def release_unsubmitted(self, prepared: PreparedDecode) -> None:
        """Free the slot of a step that will not be dispatched."""
        self.slot_pool.release(prepared.step)

    @contextmanager
    def _nested(self, spans: Sequence[tuple[str, str, Level]], **args: Any) -> Iterator[None]:
        """Spans one inside the other, named as upstream's layers are."""
        with ExitStack() as stack:
            for name, category, level in spans:
                stack.enter_context(self._recorder.span(name, category, level=level, **args))
            yield

    def _run_blocking(self, program: str, arguments: list[Argument], tiles: int) -> None:
        with (
            self._recorder.span(program, "kernel", level="kernel"),
            self._recorder.span(f"{program}.worker_run", "kernel", level="kernel") as span,
        ):
            handle = self._worker.run(
                program,
                [
                    *arguments,
                    *values(self._prefill.buffers.tables),
                    *values(self._state),
                    *values(self._pools),
                    tiles,
                ],
            )
            span.args["dispatch_id"] = handle.dispatch_id

    def _allocate(self, record: Any, fill: dict[str, int]) -> Any:
        """A record of device tensors, one shard a rank, as a record of ArraySpec describes them.

        Fields in `fill` are filled; the others are addressed by position and only read where they were written.
        """
        return type(record)(
            *(
                self._stacked(spec.shape, spec.dtype, fill.get(field.name))
                for field, spec in zip(fields(record), values(record), strict=True)
            )
        )

    def _stacked(self, shape: tuple[int, ...], dtype: str, fill: int | None) -> StackedDeviceTensor:
        init = None if fill is None else np.full(shape, fill, dtype)
        return StackedDeviceTensor(
            tuple(
                self._worker.alloc_tensor(shape, dtype, init=init, worker_id=rank)
                for rank in range(self._worker.ranks)
            )
        )

    def _upload_injected_drafts(self, request: ActiveRequest) -> None:
        """Set the request's row of the draft overrides; a row nobody injected into is already empty."""
        owner = (request.rank, request.state_slot)
        injected = request.request.injected_drafts
        if injected is None and owner not in self._overridden:
            return
        row = self._override_row
        row.fill(NO_OVERRIDE)
        if injected is None:
            self._overridden.discard(owner)
        else:
            count = min(len(injected), len(row))
            row[:count] = injected[:count]
            self._overridden.add(owner)
        base = self._state.draft_override.shards[request.rank].pointer
        self._worker.copy_to_offset(
            base, request.state_slot * row.nbytes, row, row.nbytes, worker_id=request.rank
        )
