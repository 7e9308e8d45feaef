"""A worker without ranks, for tests of what the engine asks of one: it keeps what it was called with.

A dispatch runs at once or, while the worker is held, when it is released: what is in flight is then for the test to say
and not for the scheduler of a busy machine. Running writes every output, rows behind the active ones included.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dsv4bench.worker.fault_injection import FaultPlan
from dsv4bench.worker.handle import DispatchHandle
from dsv4bench.worker.program_specs import MTP_PREFILL, PREFILL
from dsv4bench.worker.protocol import Argument, DeviceTensor, HostTensor
from dsv4bench.worker.task_args import (
    ArgumentReader,
    DecodeArgs,
    MtpPrefillArgs,
    PrefillArgs,
    Tables,
    values,
)
from dsv4bench.worker.torch_worker import WorkerOptions

Arrays = dict[str, NDArray[Any]]

_OUTPUTS = {
    DecodeArgs: ("sampled_ids", "accepted_counts", "tail_positions", "echoed_step_ids"),
    PrefillArgs: ("sampled_ids",),
    MtpPrefillArgs: (),
}


@dataclass
class Dispatch:
    """One submission: the arguments themselves, and copies of what they held.

    `inputs`, `tables` and `outputs_found` were copied at the submission, `outputs_left` when it had run. It was
    `disturbed` if any of the first three had changed until then.
    """

    handle: DispatchHandle
    program: str
    slot_id: int
    generation: int
    arguments: tuple[Argument, ...]
    host: list[HostTensor]
    inputs: Arrays
    tables: Tables[NDArray[Any]]
    outputs_found: Arrays
    outputs_left: Arrays = field(default_factory=dict)
    disturbed: bool = False

    @property
    def decodes(self) -> bool:
        """Whether it is a decode step's."""
        return self.program not in (PREFILL, MTP_PREFILL)


class ScriptedWorker:
    """See `protocol.Worker`; takes the place of `TorchWorker` in an engine.

    Device memory is pointers alone. `calls` names every other call, in order; `deepest` is the most dispatches that were
    in flight at once.
    """

    def __init__(self, options: WorkerOptions) -> None:
        self.options = options
        self.tracing = True
        self.device_phases = False
        self.faults = FaultPlan()
        self.rank_pids: dict[int, int] = {}
        self.window_resets = 0
        self.calls: list[str] = []
        self.dispatches: list[Dispatch] = []
        self.deepest = 0
        self.refusal: BaseException | None = None
        self._held = False
        self._in_flight: list[Dispatch] = []
        self._changed = threading.Condition()
        self._pointers = itertools.count(64, 64)

    # What the test says

    def hold(self) -> None:
        """Let no decode step complete from now on."""
        with self._changed:
            self._held = True

    def release(self, error: BaseException | None = None) -> None:
        """Run what is in flight, in order, and every later dispatch at once; or fail all of them."""
        with self._changed:
            self._held = False
            self.refusal = error
            for dispatch in self._in_flight:
                self._complete(dispatch)
            self._in_flight.clear()

    def wait_for_in_flight(self, count: int, seconds: float) -> bool:
        """Wait until so many dispatches are in flight; False if they are not after `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._in_flight) == count, seconds)

    def decode_steps(self) -> list[Dispatch]:
        """The decode dispatches so far, in order."""
        return [dispatch for dispatch in self.dispatches if dispatch.decodes]

    # The worker

    @property
    def ranks(self) -> int:
        return self.options.ranks

    def alloc_host(self, shape: tuple[int, ...], dtype: DTypeLike) -> HostTensor:
        return np.zeros(shape, dtype)

    def alloc_tensor(
        self, shape: tuple[int, ...], dtype: DTypeLike, *, init: HostTensor | None = None, worker_id: int
    ) -> DeviceTensor:
        return DeviceTensor(next(self._pointers), shape, np.dtype(dtype), worker_id)

    def copy_to_offset(
        self, dst_base: int, byte_offset: int, src: HostTensor, nbytes: int, *, worker_id: int
    ) -> None:
        self.calls.append("copy_to_offset")

    def copy_from_offset(
        self, dst: HostTensor, src_base: int, byte_offset: int, nbytes: int, *, worker_id: int
    ) -> None:
        self.calls.append("copy_from_offset")

    def reset_windows(self) -> None:
        self.calls.append("reset_windows")
        self.window_resets += 1

    def run(self, program: str, arguments: Sequence[Argument]) -> DispatchHandle:
        handle = self.submit(program, arguments)
        handle.result()
        return handle

    def submit(
        self, program: str, arguments: Sequence[Argument], *, slot_id: int = 0, generation: int = 0
    ) -> DispatchHandle:
        self.calls.append(program)
        record, tables = _host_arguments(program, arguments)
        outputs = _OUTPUTS[type(record)]
        with self._changed:
            dispatch = Dispatch(
                DispatchHandle(len(self.dispatches) + 1, program),
                program,
                slot_id,
                generation,
                tuple(arguments),
                [*values(record), *values(tables)],
                _copies(record, set(record.__dataclass_fields__) - set(outputs)),
                Tables(*(table.copy() for table in values(tables))),
                _copies(record, outputs),
            )
            self.dispatches.append(dispatch)
            self.deepest = max(self.deepest, len(self._in_flight) + 1)
            if self._held and dispatch.decodes:
                self._in_flight.append(dispatch)
                self._changed.notify_all()
            else:
                self._complete(dispatch)
        return dispatch.handle

    def close(self) -> None:
        self.calls.append("close")

    def _complete(self, dispatch: Dispatch) -> None:
        if self.refusal is None:
            record, tables = _host_arguments(dispatch.program, dispatch.arguments)
            before = {**dispatch.inputs, **dispatch.outputs_found, **vars(dispatch.tables)}
            now = {**vars(tables), **vars(record)}
            dispatch.disturbed = any(not np.array_equal(before[name], now[name]) for name in before)
            self._run(record, dispatch)
            dispatch.outputs_left = _copies(record, _OUTPUTS[type(record)])
        dispatch.handle.complete(self.refusal)

    def _run(self, record: Any, dispatch: Dispatch) -> None:
        """One token a request, and something to be found again in every entry of every output."""
        mark = 2 + dispatch.handle.dispatch_id % 90
        if isinstance(record, PrefillArgs):
            record.sampled_ids[...] = mark
        elif isinstance(record, DecodeArgs):
            record.sampled_ids[...] = mark
            record.tail_positions[...] = mark
            record.accepted_counts[...] = 1
            record.echoed_step_ids[...] = record.step_id[0]


def _host_arguments(program: str, arguments: Sequence[Argument]) -> tuple[Any, Tables[NDArray[Any]]]:
    reader = ArgumentReader(tuple(arguments))
    kinds = {PREFILL: PrefillArgs, MTP_PREFILL: MtpPrefillArgs}
    return reader.take(kinds.get(program, DecodeArgs)), reader.take(Tables)


def _copies(record: Any, names: Iterable[str]) -> Arrays:
    return {name: getattr(record, name).copy() for name in names}
