"""The engine's side of the rank server: starting it, its sockets, and ending it with every rank."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence

from dsv4bench.worker import messages
from dsv4bench.worker.arena import SharedRegion

_EXIT_GRACE_S = 5.0


class RankServerProcess:
    """A running rank server. `control` speaks with the server, `channels[r]` with rank r."""

    def __init__(
        self,
        *,
        ranks: int,
        setup: str,
        setup_argument: bytes,
        programs: Sequence[messages.ProgramSpec],
        exchange: str,
        host: SharedRegion,
        devices: Sequence[SharedRegion],
        board: SharedRegion,
        exchange_region: SharedRegion,
        rank_logs: Sequence[str],
        server_log: str | None,
    ) -> None:
        """Start the server; the regions' descriptors move to it and are closed here. Ranks report on `channels`."""
        self.control, server_control = messages.socket_pair()
        pairs = [messages.socket_pair() for _ in range(ranks)]
        self.channels = [ours for ours, _ in pairs]
        theirs = [server_control, *(their_end for _, their_end in pairs)]
        regions = [host, *devices, board, exchange_region]
        spec = messages.ServerSpec(
            ranks=ranks,
            setup=setup,
            setup_argument=setup_argument,
            programs=list(programs),
            exchange=exchange,
            host_fd=host.fd,
            host_bytes=host.size,
            device_fds=[region.fd for region in devices],
            device_bytes=devices[0].size,
            board_fd=board.fd,
            exchange_fd=exchange_region.fd,
            exchange_bytes=exchange_region.size,
            rank_sockets=[end.fileno() for end in theirs[1:]],
            rank_logs=list(rank_logs),
            server_log=server_log,
        )
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dsv4bench.worker.rank_server", str(server_control.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[*(end.fileno() for end in theirs), *(region.fd for region in regions)],
            start_new_session=True,
        )
        for end in theirs:
            end.close()
        for region in regions:
            region.close_fd()
        self.control.send(messages.encode(spec))

    def stop_ranks(self) -> None:
        """Ask every rank to leave once its work is done. A rank that is gone has left already."""
        for channel in self.channels:
            with contextlib.suppress(OSError):
                channel.send(messages.encode(messages.Stop()))

    def kill_ranks(self) -> None:
        """Have the server kill every rank; it ends with them."""
        with contextlib.suppress(OSError):
            self.control.send(messages.encode(messages.Stop()))

    def wait(self) -> None:
        """Wait for the server, which ends with its last rank; past a grace period, kill its whole session."""
        try:
            self._process.wait(_EXIT_GRACE_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def hang_up(self) -> None:
        """End both directions of every socket, so that whoever reads them wakes."""
        for endpoint in (self.control, *self.channels):
            with contextlib.suppress(OSError):
                endpoint.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the sockets."""
        for endpoint in (self.control, *self.channels):
            endpoint.close()
