"""Appending whole records to a file that several threads and processes share."""

from __future__ import annotations

import os
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
