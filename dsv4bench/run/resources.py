"""What the processes of a run hold while it goes on: memory, file descriptors, shared memory (`resources.jsonl`)."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from analyzers.rundir import ResourceSample

SAMPLE_EVERY = 100
"""Decode steps between two samples."""

_SHARED = re.compile(r"\S+ \S+ \S+ \S+ (\d+) +(?:/memfd:|/dev/shm/)")


class ResourceWatch:
    """Samples every process of an engine into a file, one line each."""

    def __init__(self, path: Path, rank_pids: Mapping[int, int]) -> None:
        """`rank_pids` maps ranks to their processes; this process is the engine, the ranks' parent their server."""
        self._path = path
        self._processes = {"engine": os.getpid()}
        if rank_pids:
            self._processes["server"] = _parent_of(next(iter(rank_pids.values())))
        self._processes.update({f"rank {rank}": pid for rank, pid in sorted(rank_pids.items())})
        self._next = 0

    def observe(self, decode_steps: int) -> None:
        """Sample if the next sample is due: at the start and every `SAMPLE_EVERY` steps."""
        if decode_steps >= self._next:
            self._next = (decode_steps // SAMPLE_EVERY + 1) * SAMPLE_EVERY
            self.sample(decode_steps)

    def sample(self, decode_steps: int) -> None:
        """Sample every process that is still there."""
        with self._path.open("ab") as file:
            for process, pid in self._processes.items():
                taken = sample_process(process, pid, decode_steps)
                if taken is not None:
                    file.write(msgspec.json.encode(taken) + b"\n")


def sample_process(process: str, pid: int, decode_steps: int) -> ResourceSample | None:
    """What a process holds now, from /proc (proc(5)); None when it has ended."""
    root = Path("/proc") / str(pid)
    try:
        status = (root / "status").read_text()
        shared = set(_SHARED.findall((root / "maps").read_text()))
        descriptors = sum(1 for _ in (root / "fd").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return None
    if "VmRSS:" not in status:  # a process that has ended and was not yet reaped has no memory
        return None
    return ResourceSample(
        time_ns=time.perf_counter_ns(),
        decode_steps=decode_steps,
        process=process,
        pid=pid,
        rss_bytes=_kilobytes(status, "VmRSS") << 10,
        anonymous_bytes=_kilobytes(status, "RssAnon") << 10,
        fds=descriptors,
        shared_regions=len(shared),
    )


def _kilobytes(status: str, key: str) -> int:
    return int(status.partition(f"{key}:")[2].split(maxsplit=1)[0])


def _parent_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("PPid:")[2].split(maxsplit=1)[0])
