"""One rank process: binds dispatches as they arrive, runs them in order, and writes an STRACE record a phase."""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from dsv4bench.model.exchange import ExpertExchange
from dsv4bench.tracing.strace import DEVICE_CLOCK, StraceEmitter
from dsv4bench.worker.arguments import check_signature
from dsv4bench.worker.arguments import decode as decode_arguments
from dsv4bench.worker.board import Progress
from dsv4bench.worker.device_phases import DevicePhases
from dsv4bench.worker.fault_injection import emitter_for, enter_runner, leave_runner
from dsv4bench.worker.messages import (
    MAX_MESSAGE_BYTES,
    Argument,
    Complete,
    DeviceArgument,
    Dispatch,
    HostArgument,
    ProgramSpec,
    Ready,
    ScalarArgument,
    Stop,
    decode_to_rank,
    encode,
)

_MAX_TRACEBACK = 16_000
_KEPT_LISTS = 256


@dataclass(frozen=True)
class RankContext:
    """What a rank's programs know of their place."""

    rank: int
    ranks: int
    exchange: ExpertExchange
    phases: DevicePhases = field(default_factory=DevicePhases)
    """A program that knows them stamps its own."""


class Gate(Protocol):
    """Opens when every rank has bound a dispatch: none starts its runner before."""

    def arrive(self, dispatch_id: int) -> None:
        """This rank has bound the dispatch."""
        ...

    def wait(self, rank: int) -> None:
        """Return once every rank has bound the next dispatch of `rank`."""
        ...


Validation = Callable[[], None]
"""A program may return one: a check of its outputs, run as the `validate` phase; it raises when they are wrong."""


@dataclass(frozen=True)
class _Bound:
    """A dispatch whose tensors are at hand, and when binding it ahead began and ended (ns)."""

    dispatch: Dispatch
    function: Callable[..., Validation | None]
    arguments: list[torch.Tensor | int | float]
    start_ns: int
    end_ns: int


class Rank:
    """The two threads of one rank. Programs are methods of `programs`, called with tensors and scalars.

    The frame thread takes dispatches from the engine and binds them ahead, while the runner thread runs the one
    before: so the gate is open when the runner comes to it, and no rank waits for the host between two steps.
    """

    def __init__(
        self,
        rank: int,
        channel: socket.socket,
        host: NDArray[np.uint8],
        device: NDArray[np.uint8],
        specs: list[ProgramSpec],
        programs: object,
        gate: Gate,
        progress: NDArray[np.int64],
        phases: DevicePhases,
    ) -> None:
        """`progress` is the rank's line of the board; `phases` are those that the programs stamp."""
        self._rank = rank
        self._channel = channel
        self._host = host
        self._device = device
        self._specs = specs
        self._functions: list[Callable[..., Validation | None]] = [
            getattr(programs, spec.function) for spec in specs
        ]
        self._gate = gate
        self._progress = progress
        self._phases = phases
        self._frames: queue.SimpleQueue[_Bound | None] = queue.SimpleQueue()
        self._tensors: dict[Argument, torch.Tensor] = {}
        self._argument_lists: dict[bytes, list[torch.Tensor | int | float]] = {}
        self._strace = StraceEmitter()
        self._invocation = 0

    def serve(self) -> None:
        """Run dispatches in order until told to stop, or until the engine is gone."""
        self._strace.clock_anchor()
        self._strace.ready(self._rank)
        self._send(Ready(os.getpid()))
        threading.Thread(target=self._take_frames, name="frames", daemon=True).start()
        while (frame := self._frames.get()) is not None:
            try:
                self._run(frame)
            except Exception:  # noqa: BLE001 - the engine's to report: it fails the worker and ends every rank
                self._fail(frame.dispatch)

    # The frame thread

    def _take_frames(self) -> None:
        while data := self._channel.recv(MAX_MESSAGE_BYTES):
            message = decode_to_rank(data)
            if isinstance(message, Stop):
                break
            try:
                self._frames.put(self._bind_ahead(message))
            except Exception:  # noqa: BLE001 - the engine's to report: it fails the worker and ends every rank
                self._fail(message)
        self._frames.put(None)

    def _bind_ahead(self, dispatch: Dispatch) -> _Bound:
        start = time.perf_counter_ns()
        function = self._functions[dispatch.program]
        arguments = self._argument_lists.get(dispatch.arguments)
        if arguments is None:
            decoded = decode_arguments(dispatch.arguments)
            check_signature(self._specs[dispatch.program], decoded)
            arguments = [self._value(argument) for argument in decoded]
            if len(self._argument_lists) >= _KEPT_LISTS:
                self._argument_lists.clear()
            self._argument_lists[dispatch.arguments] = arguments
        self._progress[Progress.BOUND] += 1
        self._gate.arrive(dispatch.dispatch_id)
        return _Bound(dispatch, function, arguments, start, time.perf_counter_ns())

    def _value(self, argument: Argument) -> torch.Tensor | int | float:
        if isinstance(argument, ScalarArgument):
            return argument.value
        if argument not in self._tensors:
            self._tensors[argument] = self._tensor(argument)
        return self._tensors[argument]

    def _tensor(self, argument: HostArgument | DeviceArgument) -> torch.Tensor:
        region = self._host if isinstance(argument, HostArgument) else self._device
        dtype = np.dtype(argument.dtype)
        nbytes = int(np.prod(argument.shape)) * dtype.itemsize
        extent = region[argument.offset : argument.offset + nbytes]
        return torch.from_numpy(extent.view(dtype).reshape(argument.shape))

    # The runner thread

    def _run(self, frame: _Bound) -> None:
        self._invocation += 1
        dispatch = frame.dispatch
        clock = time.perf_counter_ns
        taken = clock()
        arguments = frame.arguments
        bind_end = clock()
        self._gate.wait(self._rank)

        runner_start = clock()
        cpu_start = time.thread_time_ns()
        with torch.inference_mode():
            enter_runner(dispatch.faults)
            self._phases.begin()
            validation = frame.function(*arguments)
            leave_runner(dispatch.faults, cpu_start)
            self._phases.end()
        runner_end = clock()
        validate_start = clock()
        if validation is not None:
            validation()
        validate_end = clock()
        self._progress[Progress.COMPLETED] += 1
        self._send(Complete(dispatch.dispatch_id))
        released = clock()
        if not dispatch.trace:
            return

        # Written after the engine was told: records cost the step nothing.
        record = self._record_for(dispatch)
        identity = {"dispatch_id": dispatch.dispatch_id, "slot_id": dispatch.slot_id}
        record("ext.dsv4bench.bind_ahead", frame.start_ns, frame.end_ns, 0, identity)
        record("chip.run.bind", taken, bind_end, 1)
        record("chip.run.post_bind", bind_end, runner_start, 1)
        if dispatch.device_phases:
            for name, start, end, depth in self._phases.spans():
                record(name, start, end, depth, DEVICE_CLOCK)
        record("chip.run.runner_run", runner_start, runner_end, 1)
        record("chip.run.validate", validate_start, validate_end, 1)
        record("chip.run.claim_release", validate_end, released, 1)
        root = {
            "run_id": dispatch.dispatch_id,
            "dispatch_id": dispatch.dispatch_id,
            "run_epoch": dispatch.dispatch_id,
            "slot_id": dispatch.slot_id,
            "generation": dispatch.generation,
        }
        record("chip.run", taken, released, 0, root)

    def _record_for(self, dispatch: Dispatch) -> Callable[..., None]:
        hid = self._specs[dispatch.program].hid
        invocation = self._invocation
        emitter = emitter_for(dispatch.faults, self._strace)

        def record(
            name: str, start: int, end: int, depth: int, attributes: Mapping[str, int | str] | None = None
        ) -> None:
            emitter.record(
                name,
                start,
                end - start,
                invocation=invocation,
                hid=hid,
                depth=depth,
                attributes=attributes or {},
            )

        return record

    def _fail(self, dispatch: Dispatch) -> None:
        self._send(Complete(dispatch.dispatch_id, traceback.format_exc()[-_MAX_TRACEBACK:]))

    def _send(self, message: Ready | Complete) -> None:
        try:
            self._channel.send(encode(message))
        except BrokenPipeError:
            # The engine is gone, and the frame thread has seen it: the rank ends after this.
            self._frames.put(None)
