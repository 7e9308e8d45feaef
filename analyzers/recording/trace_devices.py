"""The devices of a foreign trace's processes: from the arguments of their events, or from what stands around them.

Kineto gives every device event the argument `device`, as its process counts devices, and lists the devices in
`deviceProperties`; profilers of Ascend devices write `device_id` or `Device Id`.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from analyzers.readers.chrome_trace import ChromeTrace
from analyzers.recording.devices import physical_devices
from analyzers.table.spans import ABSENT, Clock, DeviceIds, Process, SpanTable, as_id

_KEYS = ("device", "device_id", "device id", "Device Id", "deviceId")

_SAMPLES = 16
"""Events looked at of each thread: those of a device's stream all name it, and a thread that names two names none."""


def with_devices(trace: ChromeTrace) -> ChromeTrace:
    """`trace` with the device of each process, as far as it names one.

    A process without a device of its own drives that of its file, where all of it is of one: a rank's trace has the
    host's threads in one process and the device's streams in another.
    """
    spans = trace.spans
    if bool((spans.clock == Clock.HOST).all()):
        return trace  # the serving profiler's own: it knows no device
    named = _named_devices(spans)
    everywhere = {device for devices in named.values() for device in devices}
    if not everywhere and len(trace.envelope.devices) == 1:
        everywhere = set(trace.envelope.devices)
    physical_of = physical_devices(trace.envelope.environment)
    devices = {}
    for process in {lane.process for lane in spans.lanes}:
        own = named.get(process) or (everywhere if len(everywhere) == 1 else set())
        if len(own) == 1:
            logical = next(iter(own))
            devices[process] = DeviceIds(logical, physical_of.get(logical))
    return dataclasses.replace(trace, spans=spans.with_devices(devices)) if devices else trace


def _named_devices(spans: SpanTable) -> dict[Process, set[int]]:
    """Every device that the events of a process name."""
    rows = np.flatnonzero(spans.arguments != ABSENT)
    rows = rows[np.argsort(spans.lane[rows], kind="stable")]
    codes, firsts = np.unique(spans.lane[rows], return_index=True)
    bounds = [*firsts.tolist(), len(rows)]
    named: dict[Process, set[int]] = {}
    for code, begin, end in zip(codes.tolist(), bounds, bounds[1:], strict=False):
        chosen = np.unique(np.linspace(begin, end - 1, _SAMPLES).astype(np.intp))
        devices = {_device(spans, row) for row in rows[chosen].tolist()} - {ABSENT}
        if devices:
            named.setdefault(spans.lanes[code].process, set()).update(devices)
    return named


def _device(spans: SpanTable, row: int) -> int:
    arguments = spans.args(row)
    found = next((as_id(arguments[key]) for key in _KEYS if key in arguments), ABSENT)
    return found if 0 <= found < 2**31 else ABSENT
