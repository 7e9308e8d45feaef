"""What the manifest of a run says of its machine: which facts name the machine, and which tell how it was just then.

Two sides of a comparison are of one machine when their fingerprints are equal. A machine that moved while runs were
made (load, frequency, temperature, processes of others) is a warning.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import msgspec

STABLE = (
    "processor",
    "machine",
    "cores",
    "memory_bytes",
    "governor",
    "kernel",
    "cpu_limit",
    "memory_limit",
    "device",
    "driver",
)
"""Host facts that name the machine. Not the host name: a container gets a new one at every start."""

STABLE_VERSIONS = ("python", "torch")
"""Versions that belong to the machine. Not the version of dsv4bench: that is what a gate compares."""

VOLATILE = (
    "sampled_s",
    "load_average",
    "busy_s",
    "own_cpu_s",
    "steal_s",
    "cpu_mhz",
    "temperature_c",
    "throttle_count",
    "quota_throttled_s",
    "cpu_pressure_s",
)
"""Host facts that tell how the machine was when a run began; with `END` behind the name, when it ended."""

END = "_end"

BUSY_LOAD = 0.5
"""Load average a core above which a machine is busy."""
OTHERS_SHARE = 0.10
"""Share of the cores that processes of others may use; kernel threads and interrupts alone use a few percent."""
STEAL_SHARE = 0.02
"""Share of the cores that the hypervisor may give to others."""
QUOTA_SHARE = 0.02
"""Share of a run that the container's processor limit may hold it back."""
FREQUENCY_SPREAD = 0.05
"""Spread of the processor's frequency over the runs, as a share of its median."""
TEMPERATURE_SPREAD_C = 15.0
"""Spread of the temperature over the runs."""


class Conditions(msgspec.Struct, frozen=True):
    """How the machine was during one run; None is a figure that the machine does not give.

    `others`, `steal` and `quota` are shares: of the cores, of the cores, and of the run's duration.
    """

    label: str
    cores: int | None = None
    load: float | None = None
    """Load average of the last minute when it began."""
    others: float | None = None
    """Used by processes that are not of the run."""
    steal: float | None = None
    quota: float | None = None
    frequency_mhz: float | None = None
    """Mean of begin and end."""
    temperature_c: float | None = None
    """The higher of begin and end."""
    throttled: int | None = None
    """How often the processor slowed down for its temperature."""


def fingerprint(host: Mapping[str, str], versions: Mapping[str, str]) -> str:
    """The machine as `key=value; ...`, equal for runs of one machine; facts that a manifest lacks are left out."""
    facts = {key: host[key] for key in STABLE if key in host}
    facts |= {key: versions[key] for key in STABLE_VERSIONS if key in versions}
    if "memory_bytes" in facts and facts["memory_bytes"].isdecimal():
        # A kernel keeps a little more or less for itself at every start.
        facts["memory_bytes"] = f"{int(facts['memory_bytes']) / 2**30:.0f} GiB"
    return "; ".join(f"{key.removesuffix('_bytes')}={value}" for key, value in facts.items())


def conditions_of(host: Mapping[str, str], label: str) -> Conditions:
    """How the machine was, from the host facts of a run; `label` names the run for people."""
    cores = _number(host.get("cores"))
    duration = _difference(host, "sampled_s")
    capacity = duration * cores if duration and cores else None
    busy, own, steal = (_difference(host, key) for key in ("busy_s", "own_cpu_s", "steal_s"))
    others = max(0.0, busy - own) if busy is not None and own is not None else None
    quota = _difference(host, "quota_throttled_s")
    throttled = _difference(host, "throttle_count")
    temperatures = _both(host, "temperature_c")
    frequencies = _both(host, "cpu_mhz")
    return Conditions(
        label,
        cores=int(cores) if cores else None,
        load=_number(host.get("load_average", "").partition(" ")[0]),
        others=others / capacity if others is not None and capacity else None,
        steal=steal / capacity if steal is not None and capacity else None,
        quota=quota / duration if quota is not None and duration else None,
        frequency_mhz=statistics.fmean(frequencies) if frequencies else None,
        temperature_c=max(temperatures) if temperatures else None,
        throttled=int(throttled) if throttled is not None else None,
    )


def busy_before(run: Conditions) -> str | None:
    """A warning for people where the machine was busy before a run that followed no other; None where it was not."""
    if run.load is None or run.cores is None or run.load <= BUSY_LOAD * run.cores:
        return None
    return f"the machine was busy before {run.label}: load average {run.load:.2f} on {run.cores} cores"


def what_moved(runs: Sequence[Conditions]) -> list[str]:
    """Warnings for people: what disturbed these runs. The load average is not: the run before is in it."""
    warnings = []
    for name, limit, text in (
        ("others", OTHERS_SHARE, "other processes used up to {worst:.0%} of the cores"),
        ("steal", STEAL_SHARE, "the hypervisor gave up to {worst:.0%} of the cores to others"),
        ("quota", QUOTA_SHARE, "the container's processor limit held a run back for up to {worst:.0%} of it"),
    ):
        shares = [(share, run.label) for run in runs if (share := getattr(run, name)) is not None]
        above = [share for share in shares if share[0] > limit]
        if above:
            worst, label = max(above)
            warnings.append(
                f"{text.format(worst=worst)} ({label}; more than {limit:.0%} in {len(above)} of {len(shares)} runs)"
            )
    frequencies = [run.frequency_mhz for run in runs if run.frequency_mhz is not None]
    if frequencies and max(frequencies) - min(frequencies) > FREQUENCY_SPREAD * statistics.median(
        frequencies
    ):
        warnings.append(
            f"the processor's frequency moved from {min(frequencies):.0f} to {max(frequencies):.0f} MHz between runs"
        )
    temperatures = [run.temperature_c for run in runs if run.temperature_c is not None]
    if temperatures and max(temperatures) - min(temperatures) > TEMPERATURE_SPREAD_C:
        warnings.append(
            f"the temperature moved from {min(temperatures):.0f} to {max(temperatures):.0f} °C between runs"
        )
    throttled = [run.label for run in runs if run.throttled]
    if throttled:
        warnings.append(f"the processor was throttled for its temperature in {', '.join(throttled)}")
    return warnings


def was_busy(runs: Sequence[Conditions]) -> bool:
    """Whether others are known to have taken more of the machine than they may, during any of these runs."""
    limits = (("others", OTHERS_SHARE), ("steal", STEAL_SHARE), ("quota", QUOTA_SHARE))
    return any((getattr(run, name) or 0.0) > limit for run in runs for name, limit in limits)


def _both(host: Mapping[str, str], key: str) -> list[float]:
    values = (_number(host.get(key)), _number(host.get(key + END)))
    return [value for value in values if value is not None]


def _difference(host: Mapping[str, str], key: str) -> float | None:
    values = _both(host, key)
    return values[1] - values[0] if len(values) == 2 else None


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:  # "none" or "unknown": the machine does not say
        return None
