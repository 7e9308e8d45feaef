"""Shared memory without a name: regions that the engine and its rank processes map, and that vanish with them.

A region is a memfd: it has no entry in /dev/shm, so nothing can be left behind, however a process dies. It is
sparse: pages are backed by memory when they are first touched.
"""

from __future__ import annotations

import math
import mmap
import os
import threading

import numpy as np
from numpy.typing import DTypeLike, NDArray

ALIGNMENT = 64


def align(nbytes: int) -> int:
    """Round `nbytes` up to the alignment of every allocation (64 bytes, a cache line)."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class SharedRegion:
    """A memfd mapped into this process. `bytes` is its content as uint8 [size]."""

    def __init__(self, fd: int, size: int) -> None:
        self.fd = fd
        self.size = size
        self._mapping = mmap.mmap(fd, size)
        self.bytes: NDArray[np.uint8] = np.frombuffer(self._mapping, dtype=np.uint8)

    @classmethod
    def create(cls, label: str, size: int) -> SharedRegion:
        """Make a new region of `size` bytes; `label` shows in /proc/<pid>/maps."""
        fd = os.memfd_create(f"dsv4bench-{label}")
        os.ftruncate(fd, size)
        return cls(fd, size)

    @property
    def address(self) -> int:
        """Where the region lies in this process."""
        return int(self.bytes.ctypes.data)

    def close_fd(self) -> None:
        """Close the descriptor; the mapping stays valid as long as arrays refer to it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class HostArena:
    """Hands out host tensors in one shared region, allocated before the ranks start and visible to all of them.

    Tensors live as long as the arena: slot buffers are made once and filled in place.
    """

    def __init__(self, region: SharedRegion) -> None:
        self.region = region
        self._next = 0
        self._lock = threading.Lock()

    def allocate(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[np.generic]:
        """Return a zeroed array of `shape` and `dtype` in shared memory.

        Raises:
            MemoryError: the arena is full; the message names the extents.
        """
        wanted = np.dtype(dtype)
        nbytes = math.prod(shape) * wanted.itemsize
        with self._lock:
            offset = self._next
            if offset + nbytes > self.region.size:
                raise MemoryError(
                    f"host arena: {nbytes} bytes wanted, {self.region.size - offset} of {self.region.size} left"
                )
            self._next = offset + align(nbytes)
        return self.region.bytes[offset : offset + nbytes].view(wanted).reshape(shape)

    def offset_of(self, array: NDArray[np.generic]) -> int:
        """Byte offset of `array` in the arena.

        Raises:
            TypeError: the array does not lie in the arena, or is not contiguous.
        """
        offset = int(array.ctypes.data) - self.region.address
        if not 0 <= offset <= self.region.size - array.nbytes:
            raise TypeError(
                f"a host tensor of a dispatch must be allocated by the worker's alloc_host (shared memory that "
                f"exists before the ranks start); got an ordinary array of shape {array.shape}"
            )
        if not array.flags.c_contiguous:
            raise TypeError(f"a host tensor of a dispatch must be contiguous; got strides {array.strides}")
        return offset
