"""The device boundary: what the engine asks of a worker, whichever backend runs the ranks.

It mirrors the public interface of `pypto.runtime.DistributedWorker` (docs/engine.md, The device boundary).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

HostTensor = NDArray[Any]


@dataclass(frozen=True)
class DeviceTensor:
    """A tensor in one rank's device memory; `pointer` is the base of its allocation."""

    pointer: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    rank: int


@dataclass(frozen=True)
class StackedDeviceTensor:
    """One tensor a rank, of equal shape and dtype: `shards[r]` lies on rank r."""

    shards: tuple[DeviceTensor, ...]


Argument = HostTensor | StackedDeviceTensor | int | float


class Handle(Protocol):
    """A dispatch in flight."""

    @property
    def dispatch_id(self) -> int:
        """Position of the dispatch in the worker's submission order, from 1."""
        ...

    def done(self) -> bool:
        """Whether the outcome is known."""
        ...

    def result(self, timeout: float | None = None) -> None:
        """Wait for the outcome; idempotent, thread-safe; raises the dispatch's error to every waiter.

        Raises:
            TimeoutError: still running after `timeout` seconds; the dispatch lives on.
            ValueError: a negative or non-finite timeout.
        """
        ...


class Worker(Protocol):
    """One long-lived worker that owns all ranks."""

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        ...

    def alloc_host(self, shape: tuple[int, ...], dtype: DTypeLike) -> HostTensor:
        """A zeroed host tensor in shared memory, usable as an argument of a dispatch."""
        ...

    def malloc(self, nbytes: int, *, worker_id: int) -> int:
        """Allocate device memory on rank `worker_id`; returns the base pointer."""
        ...

    def free(self, ptr: int, *, worker_id: int) -> None:
        """Free an allocation by its base pointer."""
        ...

    def copy_to(self, dst_ptr: int, src: HostTensor, nbytes: int, *, worker_id: int) -> None:
        """Copy the first `nbytes` of `src` to the start of a device allocation."""
        ...

    def copy_to_offset(
        self, dst_base: int, byte_offset: int, src: HostTensor, nbytes: int, *, worker_id: int
    ) -> None:
        """Copy the first `nbytes` of `src` to `byte_offset` bytes inside a device allocation."""
        ...

    def copy_from(self, dst: HostTensor, src_ptr: int, nbytes: int, *, worker_id: int) -> None:
        """Copy the first `nbytes` of a device allocation to `dst`."""
        ...

    def copy_from_offset(
        self, dst: HostTensor, src_base: int, byte_offset: int, nbytes: int, *, worker_id: int
    ) -> None:
        """Copy `nbytes` that lie `byte_offset` bytes inside a device allocation to the start of `dst`."""
        ...

    def alloc_tensor(
        self, shape: tuple[int, ...], dtype: DTypeLike, *, init: HostTensor | None = None, worker_id: int
    ) -> DeviceTensor:
        """Allocate a device tensor, optionally filled from `init`."""
        ...

    def free_tensor(self, tensor: DeviceTensor) -> None:
        """Free a device tensor."""
        ...

    def alloc_stacked_tensor(self, host: HostTensor) -> StackedDeviceTensor:
        """Allocate shard i of `host` [ranks, ...] on rank i."""
        ...

    def submit(
        self, program: str, arguments: Sequence[Argument], *, slot_id: int = 0, generation: int = 0
    ) -> Handle:
        """Start `program` on all ranks and return before it completes; a third in flight waits for the oldest."""
        ...

    def run(self, program: str, arguments: Sequence[Argument]) -> Handle:
        """Submit and wait; returns the completed handle."""
        ...

    def reset_windows(self) -> None:
        """Clear the communication windows, once nothing is in flight.

        They outlive requests: without this call nothing resets them.
        """
        ...

    def close(self) -> None:
        """Drain in order and end the ranks; idempotent; later calls are refused."""
        ...
