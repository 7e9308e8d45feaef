"""One rank's device memory, as the engine reaches it: checked pointers in front of the rank's shared region."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsv4bench.worker.arena import SharedRegion
from dsv4bench.worker.memory import DeviceMemory


class Device:
    """The memory of rank `rank`: `size` bytes that the rank process maps too."""

    def __init__(self, rank: int, size: int) -> None:
        self.memory = DeviceMemory(rank, size)
        self.region = SharedRegion.create(f"device-{rank}", size)

    def write(self, operation: str, base: int, byte_offset: int, source: NDArray[Any], nbytes: int) -> None:
        """Copy the first `nbytes` of `source` to `byte_offset` inside the allocation at `base`.

        Raises:
            ValueError: the pointer or the extent is refused (see `DeviceMemory.resolve`), or `source` is too short or
                not contiguous; nothing is written.
        """
        start = self.memory.resolve(operation, base, nbytes, byte_offset)
        content = _as_bytes(operation, source, nbytes)
        self.region.bytes[start : start + nbytes] = content[:nbytes]

    def read(
        self, operation: str, base: int, target: NDArray[Any], nbytes: int, byte_offset: int = 0
    ) -> None:
        """Copy `nbytes` from `byte_offset` inside the allocation at `base` to `target`; raises like `write`."""
        start = self.memory.resolve(operation, base, nbytes, byte_offset)
        content = _as_bytes(operation, target, nbytes)
        content[:nbytes] = self.region.bytes[start : start + nbytes]


def _as_bytes(operation: str, array: NDArray[Any], nbytes: int) -> NDArray[np.uint8]:
    if not array.flags.c_contiguous:
        raise ValueError(f"{operation}: the host tensor must be contiguous, got strides {array.strides}")
    if array.nbytes < nbytes:
        raise ValueError(f"{operation}: {nbytes} bytes exceed the host tensor's {array.nbytes}")
    return array.reshape(-1).view(np.uint8)
