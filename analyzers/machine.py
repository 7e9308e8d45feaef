"""What a run says of its machine: what it is, and how it was at a moment. Part of the manifest (analyzers/rundir.py)."""

from __future__ import annotations

from typing import Literal

import msgspec

NoLimit = Literal["none"]
"""A container without that limit; what nobody knows is null."""


class MachineFacts(msgspec.Struct, frozen=True):
    """What the machine is; None is a fact that is not known."""

    hostname: str | None = None
    processor: str | None = None
    """Model of the processor, as the kernel names it."""
    architecture: str | None = None
    cores: int | None = None
    """Logical processors that the run may use."""
    memory_bytes: int | None = None
    governor: str | None = None
    """How the processor's frequency is chosen; `none` where nobody does."""
    kernel: str | None = None
    cpu_limit_cores: float | NoLimit | None = None
    """Most processors that the container may use at a time."""
    memory_limit_bytes: int | NoLimit | None = None
    """Most memory that the container may use."""
    device: str | None = None
    """The accelerators, `2 x NAME`; `none` without one."""
    driver: str | None = None


class MachineState(msgspec.Struct, frozen=True):
    """How the machine is at a moment; None is a figure that it does not give.

    Seconds count from some fixed point, so that the difference of two states is what passed between them.
    """

    sampled_s: float | None = None
    """When: the monotonic clock."""
    load_average_1min: float | None = None
    """Tasks that run or wait to, averaged over a minute."""
    load_average_5min: float | None = None
    load_average_15min: float | None = None
    busy_s: float | None = None
    """Processor time in which the cores of the run were busy, whoever used them."""
    own_cpu_s: float | None = None
    """Processor time that the run used itself."""
    steal_s: float | None = None
    """Processor time that the hypervisor gave to others."""
    frequency_hz: float | None = None
    """Of the processors, their mean."""
    temperature_celsius: float | None = None
    """The hottest place."""
    throttle_count: int | None = None
    """How often the processors slowed down for their temperature."""
    quota_throttled_s: float | None = None
    """Time in which the container's processor limit held its tasks back."""
    cpu_pressure_s: float | None = None
    """Time in which some task waited for a processor."""
