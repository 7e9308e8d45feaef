"""What a server left, brought into the run directory: its traces, its device map, its own words on drafts."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from analyzers.rundir import RankProcess, RunDirectory, ServerDrafts
from dsv4bench.server_kinds.resolve import ResolvedServer
from dsv4bench.tracing.merge import merge_fragments

_READY = re.compile(rb"\[chip_process pid=(\d{1,18}) dev=(\d{1,9})\] ready")
_ACCEPTANCE = re.compile(rb"MTP acceptance for (\S+): accepted=(\d{1,12}) proposed=(\d{1,12})\b")
_PROGRAM = re.compile(rb"^program \S+ [0-9a-f]+: cache (hit|miss)$", re.MULTILINE)
_KINETO = ("*.json", "*.json.gz")
_POLL_S = 0.2


def collect_traces(server: ResolvedServer, directory: RunDirectory) -> list[str]:
    """Move the files of the server's profiler to their places in the run directory; returns what is missing and why.

    They may appear a while after the profiler's answer.
    """
    profiling = server.profiling
    if profiling is None:
        return []
    output = Path(profiling.output)
    deadline = time.monotonic() + profiling.appears_s
    while not _trace_files(output, profiling.format):
        if time.monotonic() > deadline:
            return [f"no trace appeared in {output} within {profiling.appears_s:g} s of the profiler's end"]
        time.sleep(_POLL_S)
    if profiling.format == "kineto":
        directory.torch_profiles.mkdir(exist_ok=True)
        for path in _trace_files(output, profiling.format):
            take = shutil.move if server.command else shutil.copy
            take(path, directory.torch_profiles / path.name)
        return []
    shutil.copytree(output, directory.sa_profile, dirs_exist_ok=True)
    if server.command:
        # What a server that runs already wrote stays where it is.
        shutil.rmtree(output)
    if not directory.serving_trace.is_file():
        merge_fragments(directory.sa_profile)
        return ["the server did not merge its trace; the fragments of its processes were"]
    return []


def _trace_files(output: Path, kind: str) -> list[Path]:
    if kind == "kineto":
        return sorted(path for pattern in _KINETO for path in output.rglob(pattern))
    return [
        path for path in (output / "trace.json", *(output / "fragments").glob("*.jsonl")) if path.is_file()
    ]


def device_map(log: Path, devices: Sequence[int]) -> list[RankProcess]:
    """The ranks of a server by the ready lines of its log: in the order of their devices; `devices` are the physical
    ones. [] where it has none.
    """
    ready = {int(device): int(pid) for pid, device in _READY.findall(log.read_bytes())}
    # The runtime counts the devices that a process sees, or names the physical ones.
    numbers = sorted(ready)
    logical = numbers == list(range(len(devices)))
    known = logical or numbers == sorted(devices)
    ranks = []
    for rank, number in enumerate(devices if known and not logical else numbers):
        physical = (devices[rank] if logical else number) if known else None
        ranks.append(
            RankProcess(
                rank,
                ready[number],
                f"npu:{number if physical is None else physical}",
                logical_device=rank if known else number,
                physical_device=physical,
            )
        )
    return ranks


def drafts_of_log(log: Path, request_ids: Sequence[str]) -> ServerDrafts | None:
    """The drafts of these requests by the lines that the server writes when it releases one; None without any."""
    wanted = set(request_ids)
    found = {
        name: (int(accepted), int(proposed))
        for name, accepted, proposed in (
            (name.decode(errors="replace"), accepted, proposed)
            for name, accepted, proposed in _ACCEPTANCE.findall(log.read_bytes())
        )
        if name in wanted
    }
    if not found:
        return None
    accepted, proposed = (sum(counts) for counts in zip(*found.values(), strict=True))
    return ServerDrafts(accepted, proposed, "server.log")


def programs_of_log(log: Path) -> dict[str, int]:
    """Programs that came from the compile cache and that were compiled, by the lines of the log; {} without any."""
    found = _PROGRAM.findall(log.read_bytes())
    return {"hits": found.count(b"hit"), "misses": found.count(b"miss")} if found else {}
