"""The embedded backend's worker: R rank processes running PyTorch, behind the `protocol.Worker` interface."""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from dsv4bench.errors import EngineError, RankError
from dsv4bench.worker import messages
from dsv4bench.worker.arena import HostArena, SharedRegion
from dsv4bench.worker.arguments import ArgumentEncoder
from dsv4bench.worker.board import Board
from dsv4bench.worker.device import Device
from dsv4bench.worker.fault_injection import FaultPlan
from dsv4bench.worker.handle import DispatchHandle
from dsv4bench.worker.in_flight import InFlightTable
from dsv4bench.worker.node_trace import NodeTrace
from dsv4bench.worker.protocol import Argument, DeviceTensor, HostTensor, StackedDeviceTensor
from dsv4bench.worker.rank_server_process import RankServerProcess


@dataclass(frozen=True)
class WorkerOptions:
    """How to start a worker.

    `setup` names a function `module:name` that the rank server calls once, before it forks, with `setup_argument`;
    it returns a function `RankContext -> object` whose methods are the programs. Times in seconds, sizes in bytes.
    Without logs the ranks write to this process's stderr; `log_to_stderr` has its own records of dispatches there too.
    """

    ranks: int
    setup: str
    setup_argument: bytes
    programs: tuple[messages.ProgramSpec, ...]
    exchange: str = "shared-memory"
    host_bytes: int = 256 << 20
    device_bytes: int = 1 << 30
    exchange_bytes: int = 64 << 20
    dispatch_timeout_s: float = 60.0
    startup_timeout_s: float = 120.0
    keep_encoded_arguments: bool = True
    rank_logs: tuple[Path, ...] = ()
    server_log: Path | None = None
    log_to_stderr: bool = False


class TorchWorker:
    """See `protocol.Worker`. Thread-safe; `tracing` switches the STRACE records of later dispatches, `device_phases`
    those of their device phases among them, `faults` is what is to go wrong in them.
    """

    def __init__(self, options: WorkerOptions) -> None:
        """Start the rank server and wait until every rank is ready.

        Raises:
            RankError: a rank did not start; nothing is left behind.
        """
        self.options = options
        self.tracing = True
        self.device_phases = False
        self.faults = FaultPlan()
        self.rank_pids: dict[int, int] = {}
        self._host = HostArena(SharedRegion.create("host", options.host_bytes))
        self._devices = [Device(rank, options.device_bytes) for rank in range(options.ranks)]
        self._arguments = ArgumentEncoder(self._host, self._devices, keep=options.keep_encoded_arguments)
        self._programs = {spec.name: index for index, spec in enumerate(options.programs)}

        self._submitting = threading.Lock()
        self._ending = threading.Lock()
        self._closing = False
        self._closed = False

        self._node_trace = NodeTrace(_open_node_log(options))
        self._exchange = SharedRegion.create("exchange", options.exchange_bytes)
        self.window_resets = 0
        board = SharedRegion.create("board", Board.size(options.ranks))
        self._board = Board(board.bytes, options.ranks)
        self._server = RankServerProcess(
            ranks=options.ranks,
            setup=options.setup,
            setup_argument=options.setup_argument,
            programs=options.programs,
            exchange=options.exchange,
            host=self._host.region,
            devices=[device.region for device in self._devices],
            board=board,
            exchange_region=self._exchange,
            rank_logs=[str(path) for path in options.rank_logs],
            server_log=str(options.server_log) if options.server_log else None,
        )
        self._in_flight = InFlightTable(options.ranks, self._server.kill_ranks)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server.control, selectors.EVENT_READ, None)
        for rank, channel in enumerate(self._server.channels):
            self._selector.register(channel, selectors.EVENT_READ, rank)
        try:
            self._await_ready()
        except BaseException:
            self._server.kill_ranks()
            self._server.wait()
            self._server.close()
            self._selector.close()
            self._node_trace.close()
            raise
        self._watcher = threading.Thread(target=self._watch, name="worker-watch", daemon=True)
        self._watcher.start()

    # Starting and ending

    def _await_ready(self) -> None:
        deadline = time.monotonic() + self.options.startup_timeout_s
        while len(self.rank_pids) < self.options.ranks:
            left = deadline - time.monotonic()
            if left <= 0:
                waiting = sorted(set(range(self.options.ranks)) - set(self.rank_pids))
                raise RankError(
                    f"ranks {waiting} were not ready after {self.options.startup_timeout_s:.0f} s; their logs say "
                    f"what they were doing"
                )
            for key, _ in self._selector.select(min(left, 1.0)):
                if key.data is None:
                    self._read_control()
                else:
                    self._read_rank(key.data)
            if self._in_flight.error is not None:
                raise self._in_flight.error
        self.rank_pids = dict(sorted(self.rank_pids.items()))

    def close(self) -> None:
        """Drain in order, end the ranks and the server; idempotent."""
        with self._submitting:
            # A submit that was let in before has its dispatch in flight now; none comes after it.
            self._closing = True
        with self._ending:
            if self._closed:
                return
            self._in_flight.drain()
            self._closed = True
            if self._in_flight.error is not None:
                self._server.kill_ranks()
            else:
                self._server.stop_ranks()
            self._server.wait()
            self._server.hang_up()
            self._watcher.join()
            self._node_trace.close()

    @property
    def failure(self) -> BaseException | None:
        """What made it fail, if anything did: a rank may end while nothing is in flight."""
        return self._in_flight.error

    # Memory

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.options.ranks

    def alloc_host(self, shape: tuple[int, ...], dtype: DTypeLike) -> HostTensor:
        """See `protocol.Worker.alloc_host`."""
        return self._host.allocate(shape, dtype)

    def malloc(self, nbytes: int, *, worker_id: int) -> int:
        """See `protocol.Worker.malloc`; `DeviceMemory.malloc` names the errors."""
        self._refuse_after_close("malloc")
        return self._device("malloc", worker_id).memory.malloc(nbytes)

    def free(self, ptr: int, *, worker_id: int) -> None:
        """See `protocol.Worker.free`; `DeviceMemory.free` names the errors."""
        self._device("free", worker_id).memory.free(ptr)

    def copy_to(self, dst_ptr: int, src: HostTensor, nbytes: int, *, worker_id: int) -> None:
        """See `protocol.Worker.copy_to`; `Device.write` names the errors."""
        self._refuse_after_close("copy_to")
        self._device("copy_to", worker_id).write("copy_to", dst_ptr, 0, src, nbytes)

    def copy_to_offset(
        self, dst_base: int, byte_offset: int, src: HostTensor, nbytes: int, *, worker_id: int
    ) -> None:
        """See `protocol.Worker.copy_to_offset`; `Device.write` names the errors."""
        self._refuse_after_close("copy_to_offset")
        self._device("copy_to_offset", worker_id).write("copy_to_offset", dst_base, byte_offset, src, nbytes)

    def copy_from(self, dst: HostTensor, src_ptr: int, nbytes: int, *, worker_id: int) -> None:
        """See `protocol.Worker.copy_from`; `Device.read` names the errors."""
        self._refuse_after_close("copy_from")
        self._device("copy_from", worker_id).read("copy_from", src_ptr, dst, nbytes)

    def copy_from_offset(
        self, dst: HostTensor, src_base: int, byte_offset: int, nbytes: int, *, worker_id: int
    ) -> None:
        """See `protocol.Worker.copy_from_offset`; `Device.read` names the errors."""
        self._refuse_after_close("copy_from_offset")
        self._device("copy_from_offset", worker_id).read(
            "copy_from_offset", src_base, dst, nbytes, byte_offset
        )

    def alloc_tensor(
        self, shape: tuple[int, ...], dtype: DTypeLike, *, init: HostTensor | None = None, worker_id: int
    ) -> DeviceTensor:
        """See `protocol.Worker.alloc_tensor`.

        Raises:
            ValueError: `init` has another shape or dtype.
        """
        wanted = np.dtype(dtype)
        if init is not None and (init.shape != shape or init.dtype != wanted):
            raise ValueError(
                f"alloc_tensor: init is {init.dtype}{init.shape}, the tensor {wanted}{shape} (rank {worker_id})"
            )
        nbytes = math.prod(shape) * wanted.itemsize
        pointer = self.malloc(nbytes, worker_id=worker_id)
        if init is not None:
            self.copy_to(pointer, np.ascontiguousarray(init), nbytes, worker_id=worker_id)
        return DeviceTensor(pointer, shape, wanted, worker_id)

    def free_tensor(self, tensor: DeviceTensor) -> None:
        """See `protocol.Worker.free_tensor`."""
        self.free(tensor.pointer, worker_id=tensor.rank)

    def alloc_stacked_tensor(self, host: HostTensor) -> StackedDeviceTensor:
        """See `protocol.Worker.alloc_stacked_tensor`.

        Raises:
            ValueError: the leading dimension is not the number of ranks.
        """
        if host.shape[:1] != (self.ranks,):
            raise ValueError(
                f"alloc_stacked_tensor: shape {host.shape} must begin with the number of ranks, {self.ranks}"
            )
        return StackedDeviceTensor(
            tuple(
                self.alloc_tensor(host.shape[1:], host.dtype, init=host[rank], worker_id=rank)
                for rank in range(self.ranks)
            )
        )

    def _device(self, operation: str, worker_id: int) -> Device:
        if not 0 <= worker_id < self.ranks:
            raise IndexError(f"{operation}: worker_id {worker_id} is not in 0..{self.ranks - 1}")
        return self._devices[worker_id]

    # Dispatching

    def submit(
        self, program: str, arguments: Sequence[Argument], *, slot_id: int = 0, generation: int = 0
    ) -> DispatchHandle:
        """See `protocol.Worker.submit`.

        Raises:
            KeyError: no such program.
            TypeError: a host tensor that is not in shared memory.
            RuntimeError: after close.
            RankError: the worker has failed.
        """
        index = self._programs[program]
        with self._submitting:
            self._refuse_after_close("submit")
            started = time.perf_counter_ns()
            encoded = self._arguments.encode(arguments)
            built = time.perf_counter_ns()
            entry = self._in_flight.enter(program, trace=self.tracing, slot_id=slot_id, generation=generation)
            dispatch_id = entry.handle.dispatch_id
            faults = self.faults.take(dispatch_id, slot_id, generation, ranks=self.ranks)
            if entry.trace:
                self._node_trace.graph_build(started, built, dispatch_id)
            for rank, channel in enumerate(self._server.channels):
                sent = time.perf_counter_ns()
                message = messages.Dispatch(
                    dispatch_id,
                    index,
                    slot_id,
                    generation,
                    entry.trace,
                    encoded[rank],
                    faults[rank],
                    self.device_phases,
                )
                # A rank that is gone is reported by the server with its cause; the handle carries that error.
                with contextlib.suppress(OSError):
                    channel.send(messages.encode(message))
                if entry.trace:
                    self._node_trace.frame_submit(sent, dispatch_id, rank, slot_id, generation)
            if entry.trace:
                self._node_trace.submit(started, dispatch_id, self.options.programs[index].hid)
            return entry.handle

    def run(self, program: str, arguments: Sequence[Argument]) -> DispatchHandle:
        """See `protocol.Worker.run`."""
        handle = self.submit(program, arguments)
        handle.result()
        return handle

    def reset_windows(self) -> None:
        """See `protocol.Worker.reset_windows`.

        Raises:
            RuntimeError: after close.
            RankError: the worker has failed.
        """
        with self._submitting:
            self._refuse_after_close("reset_windows")
            self._in_flight.drain_whole()
            self._exchange.bytes[:] = 0
            self.window_resets += 1

    def _refuse_after_close(self, operation: str) -> None:
        if self._closing:
            raise RuntimeError(f"{operation}: the worker is closed")

    # Watching

    def _watch(self) -> None:
        """Thread: read what ranks and server say until the server's end of the control socket closes."""
        while True:
            for key, _ in self._selector.select(0.25):
                if key.data is not None:
                    self._read_rank(key.data)
                elif not self._read_control():
                    self._server.close()
                    self._selector.close()
                    return
            self._check_deadline()

    def _read_control(self) -> bool:
        """Handle one record of the server; False when it is gone."""
        data = _receive(self._server.control)
        if not data:
            if not self._closed:
                self._in_flight.fail(EngineError("the rank server ended unexpectedly; server.log says more"))
            return False
        message = messages.decode_from_server(data)
        if isinstance(message, messages.StartFailed):
            self._in_flight.fail(RankError(f"the ranks could not be started:\n{message.error}"))
            return True
        if not self._closed:
            # What it completed before its end may lie unread in its socket.
            channel = self._server.channels[message.rank]
            while channel in self._selector.get_map():
                self._read_rank(message.rank)
            error = RankError(f"rank {message.rank} (pid {message.pid}) {_describe_exit(message.status)}")
            self._in_flight.fail(error, self._in_flight.first_incomplete(message.rank))
        return True

    def _read_rank(self, rank: int) -> None:
        channel = self._server.channels[rank]
        if channel not in self._selector.get_map():
            return
        data = _receive(channel)
        if not data:
            # The server reports the exit with its cause; this socket has nothing more to say.
            self._selector.unregister(channel)
            return
        message = messages.decode_from_rank(data)
        if isinstance(message, messages.Ready):
            self.rank_pids[rank] = message.pid
        elif message.error is not None:
            self._in_flight.fail(
                RankError(
                    f"rank {rank} raised in dispatch {message.dispatch_id} "
                    f"({self._in_flight.program_of(message.dispatch_id)}):\n{message.error}"
                ),
                message.dispatch_id,
            )
        else:
            self._complete(rank, message.dispatch_id)

    def _complete(self, rank: int, dispatch_id: int) -> None:
        started = time.perf_counter_ns()
        entry = self._in_flight.complete(rank, dispatch_id)
        if entry is not None and entry.trace:
            if self._in_flight.is_complete(entry):
                self._node_trace.retirement(started, dispatch_id, entry.slot_id, entry.generation)
            self._node_trace.complete(started, dispatch_id, rank, entry.slot_id, entry.generation)

    def _check_deadline(self) -> None:
        entry = self._in_flight.oldest()
        timeout = self.options.dispatch_timeout_s
        if entry is not None and time.monotonic() - entry.head_since > timeout:
            missing = self._board.furthest_behind(set(range(self.ranks)) - entry.completed)
            pids = ", ".join(f"rank {rank} (pid {self.rank_pids[rank]})" for rank in missing)
            self._in_flight.fail(
                RankError(
                    f"dispatch {entry.handle.dispatch_id} ({entry.handle.program}) did not complete within {timeout:g} s; "
                    f"still waiting for {pids}"
                )
            )


def _open_node_log(options: WorkerOptions) -> int | None:
    if options.server_log:
        return os.open(options.server_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    return os.dup(2) if options.log_to_stderr else None


def _receive(endpoint: socket.socket) -> bytes:
    """One record, or nothing when the other side is gone (killed with records of ours unread: a reset)."""
    try:
        return endpoint.recv(messages.MAX_MESSAGE_BYTES)
    except ConnectionResetError:
        return b""


def _describe_exit(status: int) -> str:
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"exited with code {status}"
