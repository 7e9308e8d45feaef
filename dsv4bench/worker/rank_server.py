"""The rank server: loads torch and the weights once, forks the ranks, gathers what they print, watches them die.

Started as `python -m dsv4bench.worker.rank_server <control fd>`. It lives in a session of its own, so that Ctrl-C in
the user's terminal reaches the engine alone, and it ends with its last rank or with the engine, whichever is first.
"""

from __future__ import annotations

import ctypes
import importlib
import multiprocessing
import os
import selectors
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch.distributed import FileStore  # type: ignore[attr-defined]

from dsv4bench.model.exchange import ExpertExchange, LocalExchange
from dsv4bench.tracing.append import write_lines
from dsv4bench.worker.arena import SharedRegion
from dsv4bench.worker.board import Board
from dsv4bench.worker.device_phases import DevicePhases, StampedExchange
from dsv4bench.worker.exchange import (
    DispatchGate,
    DistributedExchange,
    ProcessBarrier,
    SharedMemoryExchange,
)
from dsv4bench.worker.messages import (
    MAX_MESSAGE_BYTES,
    RankExited,
    ServerSpec,
    StartFailed,
    decode_server_spec,
    encode,
)
from dsv4bench.worker.rank import Rank, RankContext

_PR_SET_PDEATHSIG = 1
_CHUNK = 1 << 16
_STDERR = 2


def main() -> None:
    """Read the specification from the control socket, start the ranks, and watch them."""
    # The engine ends the server by closing the control socket; a signal meant for a terminal must not.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=int(sys.argv[1]))
    spec = decode_server_spec(control.recv(MAX_MESSAGE_BYTES))
    torch.set_num_threads(1)
    try:
        server = RankServer(control, spec)
        server.start()
    except Exception:  # noqa: BLE001 - whatever it was, the engine reports it
        control.send(encode(StartFailed(traceback.format_exc()[-16_000:])))
        return
    server.watch()
    # Everything is written and reaped; torch's own teardown would only cost the engine half a second.
    os._exit(0)


class LogSink:
    """Appends the complete lines of one rank's stderr to its log and to the server log, one write each."""

    def __init__(self, fds: list[int]) -> None:
        self._fds = fds
        self._pending = b""

    def feed(self, data: bytes) -> None:
        """Take more of the stream; whole lines are written, a rest is kept."""
        lines, newline, rest = (self._pending + data).rpartition(b"\n")
        self._pending = rest
        if newline:
            self._write(lines + newline)

    def finish(self) -> None:
        """Write what a rank left without an end of line, so that no other rank's record is glued to it."""
        if self._pending:
            self._write(self._pending + b"\n")
            self._pending = b""

    def _write(self, data: bytes) -> None:
        for fd in self._fds:
            if fd == _STDERR:
                write_lines(fd, data)
            else:
                os.write(fd, data)


class RankServer:
    """Owns the rank processes of one worker."""

    def __init__(self, control: socket.socket, spec: ServerSpec) -> None:
        self._control = control
        self._spec = spec
        self._selector = selectors.DefaultSelector()
        self._alive: dict[int, int] = {}  # rank -> pid
        self._sinks: dict[int, tuple[int, LogSink]] = {}  # rank -> (stderr fd, sink)
        self._store_directory: tempfile.TemporaryDirectory[str] | None = None

    def start(self) -> None:
        """Load what all ranks share, then fork them."""
        spec = self._spec
        module, _, name = spec.setup.partition(":")
        make_programs: Callable[[RankContext], object] = getattr(importlib.import_module(module), name)(
            spec.setup_argument
        )
        host = SharedRegion(spec.host_fd, spec.host_bytes)
        exchange_region = SharedRegion(spec.exchange_fd, spec.exchange_bytes)
        board = Board(SharedRegion(spec.board_fd, Board.size(spec.ranks)).bytes, spec.ranks)
        fork = multiprocessing.get_context("fork")
        gate = DispatchGate(fork, spec.ranks, board.gate_arrivals)
        barrier = ProcessBarrier(fork, spec.ranks, board.exchange_arrivals)
        if spec.exchange == "torch-distributed" and spec.ranks > 1:
            self._store_directory = tempfile.TemporaryDirectory(prefix="dsv4bench-store-")

        def make_exchange(rank: int) -> ExpertExchange:
            if spec.ranks == 1:
                return LocalExchange()
            if self._store_directory is not None:
                store = FileStore(str(Path(self._store_directory.name) / "store"), spec.ranks)
                return DistributedExchange(rank, spec.ranks, store, board.progress[rank])
            return SharedMemoryExchange(
                rank, spec.ranks, exchange_region.bytes, barrier, board.progress[rank]
            )

        server_log = [_open_log(spec.server_log)] if spec.server_log else []
        for rank in range(spec.ranks):
            reader, writer = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.dup2(writer, 2)
                for other in spec.rank_sockets[rank + 1 :]:
                    os.close(other)
                os.close(reader)
                os.close(writer)
                self._control.close()
                _run_rank(rank, spec, host, gate, board, make_exchange, make_programs)
            os.close(writer)
            os.close(spec.rank_sockets[rank])
            log = [_open_log(spec.rank_logs[rank])] if spec.rank_logs else []
            sink = LogSink((log + server_log) or [_STDERR])
            self._alive[rank] = pid
            self._sinks[rank] = (reader, sink)
            self._selector.register(reader, selectors.EVENT_READ, partial(self._read, rank))
            pidfd = os.pidfd_open(pid)
            self._selector.register(pidfd, selectors.EVENT_READ, partial(self._reap, rank, pidfd))
        self._selector.register(self._control, selectors.EVENT_READ, self._kill_all)

    def watch(self) -> None:
        """Serve until the last rank has ended and its output is written."""
        try:
            while self._alive:
                for key, _ in self._selector.select():
                    key.data()
        finally:
            if self._store_directory is not None:
                self._store_directory.cleanup()

    def _read(self, rank: int) -> bool:
        """Move one chunk of a rank's stderr to its logs; False at the end of the stream."""
        fd, sink = self._sinks[rank]
        data = os.read(fd, _CHUNK)
        if data:
            sink.feed(data)
        elif rank in self._alive:
            # Closed early: nothing more can come, and the selector would spin on it.
            self._selector.unregister(fd)
        return bool(data)

    def _reap(self, rank: int, pidfd: int) -> None:
        pid = self._alive.pop(rank)
        _, status = os.waitpid(pid, 0)
        self._selector.unregister(pidfd)
        os.close(pidfd)
        while self._read(rank):
            pass
        fd, sink = self._sinks.pop(rank)
        sink.finish()
        if fd in self._selector.get_map():
            self._selector.unregister(fd)
        os.close(fd)
        exited = RankExited(rank, pid, os.waitstatus_to_exitcode(status))
        try:
            self._control.send(encode(exited))
        except (BrokenPipeError, ConnectionResetError):
            self._kill_all()

    def _kill_all(self) -> None:
        """The engine asked for the end, or is gone: no rank may outlive it."""
        if self._control in self._selector.get_map():
            self._selector.unregister(self._control)
        for pid in self._alive.values():
            os.kill(pid, signal.SIGKILL)


def _open_log(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)


def _run_rank(
    rank: int,
    spec: ServerSpec,
    host: SharedRegion,
    gate: DispatchGate,
    board: Board,
    make_exchange: Callable[[int], ExpertExchange],
    make_programs: Callable[[RankContext], Any],
) -> NoReturn:
    """The life of a forked rank; never returns to the server's code."""
    status = 1
    try:
        if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
        device = SharedRegion(spec.device_fds[rank], spec.device_bytes)
        phases = DevicePhases()
        exchange = make_exchange(rank)
        if spec.ranks > 1:
            exchange = StampedExchange(exchange, phases)
        context = RankContext(rank, spec.ranks, exchange, phases)
        channel = socket.socket(fileno=spec.rank_sockets[rank])
        process = Rank(
            rank,
            channel,
            host.bytes,
            device.bytes,
            spec.programs,
            make_programs(context),
            gate,
            board.progress[rank],
            phases,
        )
        process.serve()
        status = 0
    except BaseException:  # noqa: BLE001 - the last frame of the process: report and end, whatever it is
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
