"""Appending whole records to a file that several threads and processes share."""

from __future__ import annotations

import os
import select
from pathlib import Path


def open_append(path: Path) -> int:
    """Open `path` for appending and return its descriptor; every write lands at the end of the file."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)


def write_all(descriptor: int, data: bytes) -> None:
    """Write `data` in one system call, going on only after a short write (a full disk, a signal)."""
    written = os.write(descriptor, data)
    while written < len(data):
        data = data[written:]
        written = os.write(descriptor, data)


def write_lines(descriptor: int, lines: bytes) -> None:
    """Write whole lines so that those of other processes never end up inside of one, also where they share a pipe.

    A pipe takes a write of up to PIPE_BUF bytes at once; longer lines than that may be torn.
    """
    start = 0
    while len(lines) - start > select.PIPE_BUF:
        end = (
            lines.rfind(b"\n", start, start + select.PIPE_BUF) + 1
            or lines.find(b"\n", start) + 1
            or len(lines)
        )
        write_all(descriptor, lines[start:end])
        start = end
    if start < len(lines):
        write_all(descriptor, lines[start:])
