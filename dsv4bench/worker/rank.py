"""One rank process: binds dispatches, runs them once all ranks are bound, and writes an STRACE record a phase."""

from __future__ import annotations

import os
import socket
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from dsv4bench.model.exchange import ExpertExchange
from dsv4bench.tracing.strace import StraceEmitter
from dsv4bench.worker.board import Progress
from dsv4bench.worker.messages import (
    MAX_MESSAGE_BYTES,
    Argument,
    Complete,
    Dispatch,
    HostArgument,
    ProgramSpec,
    Ready,
    ScalarArgument,
    Stop,
    ToRank,
    decode_to_rank,
    encode,
)

_MAX_TRACEBACK = 16_000


@dataclass(frozen=True)
class RankContext:
    """What a rank's programs know of their place."""

    rank: int
    ranks: int
    exchange: ExpertExchange


class Gate(Protocol):
    """Opens when every rank has arrived: no rank starts its runner before all have bound."""

    def wait(self, rank: int) -> None:
        """Return once every rank has called."""
        ...


Validation = Callable[[], None]
"""A program may return one: a check of its outputs, run as the `validate` phase; it raises when they are wrong."""


class EngineGoneError(Exception):
    """The engine closed its end of the socket."""


class RankProcess:
    """The loop of one rank. Programs are methods of `programs`, called with tensors and scalars."""

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
    ) -> None:
        """`progress` is the rank's line of the board."""
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
        self._tensors: dict[Argument, torch.Tensor] = {}
        self._strace = StraceEmitter()
        self._invocation = 0

    def serve(self) -> None:
        """Run dispatches in order until told to stop."""
        self._strace.clock_anchor()
        self._strace.ready(self._rank)
        self._send(Ready(os.getpid()))
        while True:
            message = self._receive()
            if isinstance(message, Stop):
                return
            self._serve_dispatch(message)

    def _serve_dispatch(self, dispatch: Dispatch) -> None:
        try:
            self._run(dispatch)
        except EngineGoneError:
            raise
        except Exception:  # noqa: BLE001 - the engine's to report: it fails the worker and ends every rank
            self._send(Complete(dispatch.dispatch_id, traceback.format_exc()[-_MAX_TRACEBACK:]))

    def _run(self, dispatch: Dispatch) -> None:
        self._invocation += 1
        clock = time.perf_counter_ns
        received = clock()
        function = self._functions[dispatch.program]
        bind_start = clock()
        missing = [argument for argument in dispatch.arguments if not self._is_bound(argument)]
        for argument in missing:
            self._tensors[argument] = self._tensor(argument)
        args_end = clock()
        arguments = [self._value(argument) for argument in dispatch.arguments]
        bind_end = clock()
        self._progress[Progress.BOUND] += 1
        self._gate.wait(self._rank)

        runner_start = clock()
        with torch.inference_mode():
            validation = function(*arguments)
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
        record("chip.run.pre_bind", received, bind_start, 1)
        record("chip.run.bind.args", bind_start, args_end, 2)
        record("chip.run.bind.prebuilt", args_end, bind_end, 2)
        record("chip.run.bind", bind_start, bind_end, 1)
        record("chip.run.post_bind", bind_end, runner_start, 1)
        record("chip.run.runner_run", runner_start, runner_end, 1)
        record("chip.run.validate", validate_start, validate_end, 1)
        record("chip.run.claim_release", validate_end, released, 1)
        record(
            "chip.run",
            received,
            released,
            0,
            {
                "run_id": dispatch.dispatch_id,
                "dispatch_id": dispatch.dispatch_id,
                "run_epoch": dispatch.dispatch_id,
                "slot_id": dispatch.slot_id,
                "generation": dispatch.generation,
            },
        )

    def _record_for(self, dispatch: Dispatch) -> Callable[..., None]:
        hid = self._specs[dispatch.program].hid
        invocation = self._invocation

        def record(
            name: str, start: int, end: int, depth: int, attributes: dict[str, Any] | None = None
        ) -> None:
            self._strace.record(
                name,
                start,
                end - start,
                invocation=invocation,
                hid=hid,
                depth=depth,
                attributes=attributes or {},
            )

        return record

    def _is_bound(self, argument: Argument) -> bool:
        return isinstance(argument, ScalarArgument) or argument in self._tensors

    def _value(self, argument: Argument) -> torch.Tensor | int | float:
        return argument.value if isinstance(argument, ScalarArgument) else self._tensors[argument]

    def _tensor(self, argument: Argument) -> torch.Tensor:
        assert not isinstance(argument, ScalarArgument)
        region = self._host if isinstance(argument, HostArgument) else self._device
        dtype = np.dtype(argument.dtype)
        nbytes = int(np.prod(argument.shape)) * dtype.itemsize
        extent = region[argument.offset : argument.offset + nbytes]
        return torch.from_numpy(extent.view(dtype).reshape(argument.shape))

    def _receive(self) -> ToRank:
        data = self._channel.recv(MAX_MESSAGE_BYTES)
        if not data:
            raise EngineGoneError
        return decode_to_rank(data)

    def _send(self, message: Ready | Complete) -> None:
        try:
            self._channel.send(encode(message))
        except BrokenPipeError as error:
            raise EngineGoneError from error
