"""Which rank each process is, and which device it drives: three numbers that differ more often than not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from analyzers.recording.rank_naming import RankAssignment, RankBasis
from analyzers.table.processes import lane_ranks
from analyzers.table.spans import DeviceIds, SpanTable

NamedBy = RankBasis | Literal["option", "trace"]
"""What names a rank; `option` is --rank, `trace` is the trace itself."""


class RankDevice(msgspec.Struct, frozen=True):
    """A rank in one file, and the device of its processes there; null is what nothing in the input says."""

    rank: int
    logical_device: int | None
    """Counted among the devices that the process sees."""
    physical_device: int | None
    """Counted on the host."""
    pids: list[str]
    """As the file has them; `41#2` is the second process that had the pid 41."""
    file: str
    named_by: NamedBy


def map_ranks(spans: SpanTable, assigned: RankAssignment, given: Mapping[str, int]) -> list[RankDevice]:
    """Every rank by (rank, file, device), those without any record too. `given` names files (--rank)."""
    basis = assigned.basis
    processes: dict[tuple[int, str, DeviceIds, NamedBy], dict[str, None]] = {}
    for lane, rank in lane_ranks(spans):
        process = spans.lanes[lane].process
        file, pid = process
        named_by: NamedBy = basis.get(process) or ("option" if file in given else "trace")
        key = (rank, file, spans.devices.get(process, DeviceIds()), named_by)
        processes.setdefault(key, {})["(unknown)" if pid is None else str(pid)] = None
    for process in assigned.silent:
        file, pid = process
        key = (assigned.ranks[process], file, assigned.devices.get(process, DeviceIds()), basis[process])
        processes.setdefault(key, {})[str(pid)] = None
    found = [
        RankDevice(rank, device.logical, device.physical, list(pids), file, named_by)
        for (rank, file, device, named_by), pids in processes.items()
    ]
    return sorted(found, key=lambda entry: (entry.rank, entry.file, entry.pids))
