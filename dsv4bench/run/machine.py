"""How the machine is at a moment: load, processor time, frequency, heat, throttling. Linux's own files, no tools.

The keys are those of `analyzers.gate.machine.VOLATILE`; a fact that the machine does not give is left out.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from analyzers.gate.machine import END

_CPUS = Path("/sys/devices/system/cpu")
_CGROUPS = Path("/sys/fs/cgroup")


def volatile_state() -> dict[str, str]:
    """The state now. Times are seconds since some fixed point, so that the difference of two states counts."""
    facts: dict[str, float | None] = {"sampled_s": time.monotonic(), "own_cpu_s": _own_cpu_s()}
    facts |= _processor_time()
    facts |= {
        "cpu_mhz": _mean(_frequencies()),
        "temperature_c": max(
            _numbers(Path("/sys/class/thermal").glob("thermal_zone*/temp"), 1e-3), default=None
        ),
        "throttle_count": _total(_CPUS.glob("cpu[0-9]*/thermal_throttle/core_throttle_count")),
        "quota_throttled_s": _quota_throttled_s(),
        "cpu_pressure_s": _pressure_s(),
    }
    state = {"load_average": " ".join(f"{value:.2f}" for value in os.getloadavg())}
    return state | {key: f"{value:.3f}" for key, value in facts.items() if value is not None}


def at_the_end(state: dict[str, str]) -> dict[str, str]:
    """The state when a run ended, under the keys that say so."""
    return {key + END: value for key, value in state.items()}


def governor() -> str:
    """How the processor's frequency is chosen; `none` where nobody does."""
    return _text(_CPUS / "cpu0/cpufreq/scaling_governor") or "none"


def cpu_limit() -> str:
    """Most processors that the container (cgroup v2) may use at a time; `none` without a limit."""
    limits = []
    for directory in _cgroups():
        quota, _, period = _text(directory / "cpu.max").partition(" ")
        if quota.isdecimal() and period.isdecimal():
            limits.append(int(quota) / int(period))
    return f"{min(limits):g}" if limits else "none"


def memory_limit() -> str:
    """Most memory that the container (cgroup v2) may use, in bytes; `none` without a limit."""
    texts = [_text(directory / "memory.max") for directory in _cgroups()]
    limits = [int(text) for text in texts if text.isdecimal()]
    return str(min(limits)) if limits else "none"


def _own_cpu_s() -> float:
    """Processor time of this process and of the children that have ended, theirs included."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _processor_time() -> dict[str, float | None]:
    """Time that the processors we may use were busy, and that the hypervisor took (proc_stat(5))."""
    ours = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    busy = steal = 0
    for line in _text(Path("/proc/stat")).splitlines():
        name, *fields = line.split()
        if name in ours:
            user, nice, system, _idle, _iowait, irq, softirq, stolen = map(int, fields[:8])
            busy += user + nice + system + irq + softirq
            steal += stolen
    if busy == 0:
        return {}
    ticks = os.sysconf("SC_CLK_TCK")
    return {"busy_s": busy / ticks, "steal_s": steal / ticks}


def _frequencies() -> list[float]:
    """Of each processor, in MHz: what the governor set, else what /proc/cpuinfo says."""
    current = _numbers(_CPUS.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"), 1e-3)
    if current:
        return current
    lines = _text(Path("/proc/cpuinfo")).splitlines()
    return [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]


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


def _numbers(paths: Iterable[Path], factor: float) -> list[float]:
    texts = [_text(path) for path in sorted(paths)]
    return [int(text) * factor for text in texts if text.lstrip("-").isdecimal()]


def _total(paths: Iterable[Path]) -> float | None:
    numbers = _numbers(paths, 1)
    return sum(numbers) if numbers else None


def _mean(numbers: list[float]) -> float | None:
    return sum(numbers) / len(numbers) if numbers else None


def _text(path: Path) -> str:
    """The content of a small file; empty where the machine has none or keeps it to itself."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
