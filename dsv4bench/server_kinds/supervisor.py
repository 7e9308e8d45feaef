"""A process of its own between a run and its server: when the run is gone, however that happened, the server is too.

It is started as a file with a connected socket (its number is the first argument) and the command behind it, and imports
nothing of the package. It is the reaper of every descendant of the server, also of those that left its process group: they
become its children when their parents die, and are killed. What it says: `pid N` when the command runs, `failed TEXT` if it
cannot, `exit STATUS` when it has ended (a signal is negative), `gone` when nothing of it is left. What it is told: `signal
N` for the server, `kill` for everything. The end of the connection is `kill`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import socket
import sys
import time
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.02
_LIMIT_S = 10.0


def main(descriptor: int, command: list[str]) -> None:
    """Run `command` until it ends, or until the connection says otherwise or ends; leave nothing of it."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    child = _start(connection, command, libc)
    if child is not None:
        status = _watch(connection, child)
        _kill_all(child)
        _say(connection, f"exit {status if status is not None else -signal.SIGKILL}")
    _say(connection, "gone")


def _start(connection: socket.socket, command: list[str], libc: ctypes.CDLL) -> int | None:
    """The process of the command, the leader of a session of its own; None where it cannot be run."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            os.setsid()
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            for restored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(restored, signal.SIG_DFL)
            os.execvp(command[0], command)
        except OSError as error:
            os.write(writing, str(error.strerror).encode())
        finally:
            os._exit(127)
    os.close(writing)
    with os.fdopen(reading, "rb") as failure:
        problem = failure.read().decode()  # ends with the successful exec, which closes the other end
    if problem:
        os.waitpid(child, 0)
        _say(connection, f"failed {problem}")
        return None
    _say(connection, f"pid {child}")
    return child


def _watch(connection: socket.socket, child: int) -> int | None:
    """Do as the connection says until the child ends, and return its status; None when all is to be killed."""
    descriptor = os.pidfd_open(child)
    waiting = selectors.DefaultSelector()
    waiting.register(descriptor, selectors.EVENT_READ)
    waiting.register(connection, selectors.EVENT_READ)
    rest = b""
    while True:
        ready = {key.fd for key, _ in waiting.select()}
        if descriptor in ready:
            return _reaped(child)
        received = _received(connection)
        *lines, rest = (rest + received).split(b"\n")
        for line in lines:
            order, _, number = line.partition(b" ")
            if order == b"signal":
                signal.pidfd_send_signal(descriptor, int(number))
        if not received or b"kill" in lines:
            return None


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(4096)
    except ConnectionError:
        return b""


def _reaped(child: int) -> int:
    """The exit status of a child that has ended, without reaping it: its group keeps its number."""
    result = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert result is not None
    return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status


def _kill_all(child: int) -> None:
    """Kill the child's group and every descendant, until none is left."""
    deadline = time.monotonic() + _LIMIT_S
    with contextlib.suppress(ProcessLookupError):  # it has ended, and nobody else was in its group
        os.killpg(child, signal.SIGKILL)
    while (children := _children()) and time.monotonic() < deadline:
        for pid in children:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
            except (ProcessLookupError, ChildProcessError):
                continue  # ended meanwhile
        time.sleep(_POLL_S)


def _children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def _say(connection: socket.socket, text: str) -> None:
    with contextlib.suppress(OSError):  # nobody is there any more to be told
        connection.sendall(text.encode() + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
