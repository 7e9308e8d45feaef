"""How the machine is at a moment: load, processor time, frequency, heat, throttling. Linux's own files, no tools."""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from analyzers.machine import MachineState, NoLimit

_CPUS = Path("/sys/devices/system/cpu")
_CGROUPS = Path("/sys/fs/cgroup")


def machine_state() -> MachineState:
    """The state now; what the machine does not give is None."""
    busy_s, steal_s = _processor_time()
    load_1min, load_5min, load_15min = os.getloadavg()
    temperatures = _numbers(Path("/sys/class/thermal").glob("thermal_zone*/temp"))  # thousandths of a degree
    throttled = _numbers(_CPUS.glob("cpu[0-9]*/thermal_throttle/core_throttle_count"))
    frequencies = _frequencies_hz()
    return MachineState(
        sampled_s=time.monotonic(),
        load_average_1min=load_1min,
        load_average_5min=load_5min,
        load_average_15min=load_15min,
        busy_s=busy_s,
        own_cpu_s=_own_cpu_s(),
        steal_s=steal_s,
        frequency_hz=statistics.fmean(frequencies) if frequencies else None,
        temperature_celsius=max(temperatures) / 1000 if temperatures else None,
        throttle_count=sum(throttled) if throttled else None,
        quota_throttled_s=_quota_throttled_s(),
        cpu_pressure_s=_pressure_s(),
    )


def governor() -> str:
    """How the processor's frequency is chosen; `none` where nobody does."""
    return _text(_CPUS / "cpu0/cpufreq/scaling_governor") or "none"


def cpu_limit_cores() -> float | NoLimit:
    """Most processors that the container (cgroup v2) may use at a time."""
    limits = []
    for directory in _cgroups():
        quota, _, period = _text(directory / "cpu.max").partition(" ")
        if quota.isdecimal() and period.isdecimal():
            limits.append(int(quota) / int(period))
    return min(limits) if limits else "none"


def memory_limit_bytes() -> int | NoLimit:
    """Most memory that the container (cgroup v2) may use."""
    limits = _numbers(directory / "memory.max" for directory in _cgroups())
    return min(limits) if limits else "none"


def _own_cpu_s() -> float:
    """Processor time of this process and of the children that have ended, theirs included."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _processor_time() -> tuple[float | None, float | None]:
    """Seconds that the processors we may use were busy, and that the hypervisor took (proc_stat(5))."""
    ours = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    busy = steal = 0
    for line in _text(Path("/proc/stat")).splitlines():
        name, *fields = line.split()
        if name in ours:
            user, nice, system, _idle, _iowait, irq, softirq, stolen = map(int, fields[:8])
            busy += user + nice + system + irq + softirq
            steal += stolen
    if busy == 0:
        return None, None
    ticks = os.sysconf("SC_CLK_TCK")
    return busy / ticks, steal / ticks


def _frequencies_hz() -> list[float]:
    """Of each processor: what the governor set, else what /proc/cpuinfo says."""
    current = _numbers(_CPUS.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"))
    if current:
        return [kilohertz * 1e3 for kilohertz in current]
    lines = _text(Path("/proc/cpuinfo")).splitlines()
    return [float(line.partition(":")[2]) * 1e6 for line in lines if line.startswith("cpu MHz")]


def _quota_throttled_s() -> float | None:
    for directory in _cgroups():
        for line in _text(directory / "cpu.stat").splitlines():
            key, _, value = line.partition(" ")
            if key == "throttled_usec":
                return int(value) / 1e6
    return None


def _pressure_s() -> float | None:
    """Time in which some task waited for a processor (PSI)."""
    first = _text(Path("/proc/pressure/cpu")).partition("\n")[0]
    total = first.rpartition("total=")[2]
    return int(total) / 1e6 if total.isdecimal() else None


def _cgroups() -> Iterator[Path]:
    """Our cgroup v2 and those above it, from the inside outwards."""
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        if line.startswith("0::"):
            directory = _CGROUPS / line[3:].strip("/")
            while directory != _CGROUPS.parent:
                yield directory
                directory = directory.parent


def _numbers(paths: Iterable[Path]) -> list[int]:
    """The whole number in each file that holds one."""
    texts = [_text(path) for path in paths]
    return [int(text) for text in texts if text.removeprefix("-").isdecimal()]


def _text(path: Path) -> str:
    """The content of a small file; empty where the machine has none or keeps it to itself."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
