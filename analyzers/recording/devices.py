"""Which device each process drives: logical and physical numbers, each from what names it, or unknown.

The number of a ready line is logical: the runtime hands it to the calls that count visible devices. A list of visible
devices (ASCEND_RT_VISIBLE_DEVICES) maps it to the driver's number, which is the host's unless a container renumbers its
devices (ASCEND_VISIBLE_DEVICES).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from analyzers.readers.log_processes import parse_visible_devices
from analyzers.readers.strace import StraceLog
from analyzers.rundir import CONTAINER_DEVICES, VISIBLE_DEVICES, Manifest, RankProcess
from analyzers.table.spans import DeviceIds, Process, process_label

_ACCELERATOR = re.compile(r"(?:npu|cuda):(\d{1,9})", re.ASCII)

Fact = TypeVar("Fact")


def log_devices(
    logs: Sequence[StraceLog], processes: Iterable[Process], manifest: Manifest | None
) -> dict[Process, DeviceIds]:
    """The devices of `processes`, as far as ready lines, the manifest or a log's environment name them.

    Two sources that contradict each other leave a number unknown.
    """
    ready = ready_devices(logs, processes)
    physical_of = {log.report.path: log.processes.physical_devices for log in logs}
    environment = physical_devices(manifest.environment) if manifest is not None else {}
    named = manifest_devices(manifest)
    on_host = (
        {entry.pid for entry in manifest.device_map if _is_host(entry)} if manifest is not None else set()
    )
    found = {}
    for process in processes:
        by_manifest = named.get(process[1], DeviceIds())
        logical = _agreed(ready.get(process), by_manifest.logical)
        mapped = None
        if logical is not None and process[1] not in on_host:
            in_log = physical_of.get(process[0], {})
            mapped = _agreed(in_log.get(logical), environment.get(logical))
        device = DeviceIds(logical, _agreed(by_manifest.physical, mapped))
        if device != DeviceIds():
            found[process] = device
    return found


def ready_devices(logs: Sequence[StraceLog], processes: Iterable[Process]) -> dict[Process, int]:
    """The logical device of each process that a ready line names."""
    stated: dict[Process, int] = {}
    for log in logs:
        for line in log.processes.ready:
            stated[log.report.path, process_label(line.pid, line.incarnation)] = line.logical_device
    return of_processes(stated, processes)


def of_processes(stated: Mapping[Process, Fact], processes: Iterable[Process]) -> dict[Process, Fact]:
    """What is stated of each of `processes`: in its own file, or in another, where one process alone has its pid.

    Ranks in containers may share a pid: what another file says of it could be of any of them.
    """
    wanted = list(processes)
    holders: dict[int | str | None, set[str]] = {}
    for file, pid in wanted:
        holders.setdefault(pid, set()).add(file)
    elsewhere: dict[int | str | None, list[Fact]] = {}
    for (_, pid), fact in stated.items():
        known = elsewhere.setdefault(pid, [])
        if fact not in known:
            known.append(fact)
    found = {}
    for process in wanted:
        pid = process[1]
        if process in stated:
            found[process] = stated[process]
        elif len(holders[pid]) == 1 and len(elsewhere.get(pid, ())) == 1:
            found[process] = elsewhere[pid][0]
    return found


def manifest_devices(manifest: Manifest | None) -> dict[int | str | None, DeviceIds]:
    """The devices by pid, of pids that the device map has once."""
    if manifest is None:
        return {}
    pids = [entry.pid for entry in manifest.device_map]
    physical_of = physical_devices(manifest.environment)
    found: dict[int | str | None, DeviceIds] = {}
    for entry in manifest.device_map:
        if pids.count(entry.pid) > 1:
            continue
        named = _ACCELERATOR.fullmatch(entry.device)
        logical = entry.logical_device
        if logical is None and named is not None:
            logical = int(named[1])
        physical = entry.physical_device
        if physical is None and logical is not None and not _is_host(entry):
            physical = physical_of.get(logical)
        found[entry.pid] = DeviceIds(logical, physical)
    return found


def _is_host(entry: RankProcess) -> bool:
    """Whether a rank computes on the host's cores: its number is that of no device."""
    return entry.device.partition(":")[0] == "cpu"


def physical_devices(environment: Mapping[str, str]) -> dict[int, int]:
    """Logical -> physical device by the environment of a process; {} where it does not tell."""
    if environment.get(CONTAINER_DEVICES):
        return {}
    return parse_visible_devices(environment.get(VISIBLE_DEVICES, ""))


def _agreed(first: int | None, second: int | None) -> int | None:
    if first is None or second is None:
        return second if first is None else first
    return first if first == second else None
