"""Traces of one rank each as PyTorch's profiler writes them, for tools that read such a directory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_STEP_US = 20_000
_OPERATORS = 100
_PER_STEP = 1 + 3 * _OPERATORS
"""The step's own annotation; of each operator its call, the launch of its kernel, and the kernel on the device."""


def write_rank_traces(directory: Path, events: int, ranks: int) -> list[Path]:
    """Write a trace of `events` events for each rank to `directory`; returns the files, rank by rank."""
    directory.mkdir(parents=True, exist_ok=True)
    return [_write(directory / f"rank-{rank}.json", events, rank, ranks) for rank in range(ranks)]


def _write(path: Path, events: int, rank: int, ranks: int) -> Path:
    envelope = {
        "schemaVersion": 1,
        "deviceProperties": [],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks},
        "baseTimeNanoseconds": 1_700_000_000_000_000_000,
    }
    with path.open("w") as file:
        file.write(json.dumps(envelope)[:-1] + ', "traceEvents": [\n')
        for number, event in enumerate(_events(events, rank)):
            file.write((",\n" if number else "") + json.dumps(event))
        file.write("\n]}\n")
    return path


def _events(count: int, rank: int) -> Iterator[dict[str, Any]]:
    """Steps of operators, each of which launches a kernel; every tenth kernel is a collective."""
    for number in range(count):
        step, part = divmod(number, _PER_STEP)
        start = 1_000 + step * _STEP_US
        if part == 0:
            name, category, length = f"ProfilerStep#{step}", "user_annotation", _STEP_US - 100
            yield _event(name, category, 100, 100, start, length, {"External id": number})
            continue
        operator, kind = divmod(part - 1, 3)
        at, kernel = start + 150 * operator, step * _OPERATORS + operator
        if kind == 0:
            shapes = {"External id": kernel, "Input Dims": [[32, 4096], [4096, 7168]]}
            yield _event(f"aten::operator_{operator % 40}", "cpu_op", 100, 100, at, 60, shapes)
        elif kind == 1:
            launch = {"External id": kernel, "correlation": kernel}
            yield _event("cudaLaunchKernel", "cuda_runtime", 100, 100, at + 10, 20, launch)
        else:
            name = "ncclDevKernel_AllReduce" if operator % 10 == 9 else f"gemm_kernel_{operator % 30}"
            stream = 20 if operator % 10 == 9 else 7
            queued = {"External id": kernel, "correlation": kernel, "stream": stream, "device": rank}
            yield _event(name, "kernel", rank, stream, at + 40 + 3 * rank, 90 + number % 17, queued)


def _event(
    name: str, category: str, pid: int, tid: int, at: int, length: int, arguments: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": at, "dur": length,
        "args": arguments,
    }  # fmt: skip
