"""What the manifest of a run says of its machine: which facts name the machine, and which tell how it was just then.

Two sides of a comparison are of one machine when their fingerprints are equal. A machine that moved while runs were
made (load, frequency, temperature, processes of others) is a warning.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import msgspec

from analyzers.machine import MachineFacts, MachineState, NoLimit
from analyzers.rundir import Manifest

STABLE_VERSIONS = ("python", "torch")
"""Versions that belong to the machine. Not the version of dsv4bench: that is what a gate compares."""

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
TEMPERATURE_SPREAD_CELSIUS = 15.0
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
    frequency_hz: float | None = None
    """Mean of begin and end."""
    temperature_celsius: float | None = None
    """The higher of begin and end."""
    throttled: int | None = None
    """How often the processor slowed down for its temperature."""


def fingerprint(host: MachineFacts, versions: Mapping[str, str]) -> str:
    """The machine as `key=value; ...`, equal for runs of one machine; facts that are not known are left out.

    Not the host name: a container gets a new one at every start.
    """
    facts = {
        "processor": host.processor,
        "machine": host.architecture,
        "cores": host.cores,
        # A kernel keeps a little more or less for itself at every start.
        "memory": f"{host.memory_bytes / 2**30:.0f} GiB" if host.memory_bytes is not None else None,
        "governor": host.governor,
        "kernel": host.kernel,
        "cpu_limit": _limit(host.cpu_limit_cores),
        "memory_limit": host.memory_limit_bytes,
        "device": host.device,
        "driver": host.driver,
        **{key: versions.get(key) for key in STABLE_VERSIONS},
    }
    return "; ".join(f"{key}={value}" for key, value in facts.items() if value is not None)


def conditions_of(manifest: Manifest, label: str) -> Conditions:
    """How the machine was during the run of this manifest; `label` names the run for people."""
    return conditions_between(manifest.host, manifest.host_before, manifest.host_after, label)


def conditions_between(
    host: MachineFacts, before: MachineState, after: MachineState, label: str
) -> Conditions:
    """How a machine was between two states; `label` names for people what ran meanwhile."""
    duration = _difference(before.sampled_s, after.sampled_s)
    capacity = duration * host.cores if duration and host.cores else None
    busy = _difference(before.busy_s, after.busy_s)
    own = _difference(before.own_cpu_s, after.own_cpu_s)
    steal = _difference(before.steal_s, after.steal_s)
    others = max(0.0, busy - own) if busy is not None and own is not None else None
    quota = _difference(before.quota_throttled_s, after.quota_throttled_s)
    throttled = _difference(before.throttle_count, after.throttle_count)
    temperatures = _known(before.temperature_celsius, after.temperature_celsius)
    frequencies = _known(before.frequency_hz, after.frequency_hz)
    return Conditions(
        label,
        cores=host.cores or None,
        load=before.load_average_1min,
        others=others / capacity if others is not None and capacity else None,
        steal=steal / capacity if steal is not None and capacity else None,
        quota=quota / duration if quota is not None and duration else None,
        frequency_hz=statistics.fmean(frequencies) if frequencies else None,
        temperature_celsius=max(temperatures) if temperatures else None,
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
    frequencies = [run.frequency_hz for run in runs if run.frequency_hz is not None]
    low, high = min(frequencies, default=0.0), max(frequencies, default=0.0)
    if frequencies and high - low > FREQUENCY_SPREAD * statistics.median(frequencies):
        warnings.append(
            f"the processor's frequency moved from {low / 1e6:.0f} to {high / 1e6:.0f} MHz between runs"
        )
    temperatures = [run.temperature_celsius for run in runs if run.temperature_celsius is not None]
    low, high = min(temperatures, default=0.0), max(temperatures, default=0.0)
    if high - low > TEMPERATURE_SPREAD_CELSIUS:
        warnings.append(f"the temperature moved from {low:.0f} to {high:.0f} °C between runs")
    throttled = [run.label for run in runs if run.throttled]
    if throttled:
        warnings.append(f"the processor was throttled for its temperature in {', '.join(throttled)}")
    return warnings


def was_busy(runs: Sequence[Conditions]) -> bool:
    """Whether others are known to have taken more of the machine than they may, during any of these runs."""
    limits = (("others", OTHERS_SHARE), ("steal", STEAL_SHARE), ("quota", QUOTA_SHARE))
    return any((getattr(run, name) or 0.0) > limit for run in runs for name, limit in limits)


def _limit(limit: float | NoLimit | None) -> str | None:
    return f"{limit:g}" if isinstance(limit, float) else limit


def _known(*values: float | None) -> list[float]:
    return [value for value in values if value is not None]


def _difference(before: float | None, after: float | None) -> float | None:
    return after - before if before is not None and after is not None else None
