"""Device memory with provenance: a pointer is accepted only as the base of a live allocation of its rank.

Addresses are never reused, even when the memory behind them is: a stale pointer stays invalid for good.
"""

from __future__ import annotations

import bisect
import threading
from dataclasses import dataclass

from dsv4bench.worker.arena import align

# Each rank has an address range of its own, so that a pointer names its rank.
_RANK_SHIFT = 44


@dataclass(frozen=True)
class Allocation:
    """One live allocation: its address, where its bytes lie in the rank's region, and how many there are."""

    base: int
    offset: int
    nbytes: int


class DeviceMemory:
    """The allocator of one rank's device memory; thread-safe."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self._first = self._next = (rank + 1) << _RANK_SHIFT
        self._live: dict[int, Allocation] = {}
        self._free: list[tuple[int, int]] = [(0, size)]  # (offset, nbytes), by offset, never adjacent
        self._lock = threading.Lock()
        self.frees = 0
        """How often memory was freed: what was live at an equal count is live still."""

    @property
    def allocated_bytes(self) -> int:
        """Bytes of all live allocations."""
        with self._lock:
            return sum(allocation.nbytes for allocation in self._live.values())

    def malloc(self, nbytes: int) -> int:
        """Allocate `nbytes` and return the base pointer.

        Raises:
            ValueError: `nbytes` is not positive.
            MemoryError: no free extent is large enough.
        """
        if nbytes <= 0:
            raise ValueError(f"malloc: nbytes must be positive, got {nbytes} (rank {self.rank})")
        extent = align(nbytes)
        with self._lock:
            index = next((i for i, (_, free) in enumerate(self._free) if free >= extent), None)
            if index is None:
                largest = max((free for _, free in self._free), default=0)
                raise MemoryError(
                    f"malloc: rank {self.rank} has no free extent of {nbytes} bytes (largest {largest} of {self.size})"
                )
            offset, free = self._free[index]
            if free == extent:
                del self._free[index]
            else:
                self._free[index] = (offset + extent, free - extent)
            base = self._next
            self._next += extent
            self._live[base] = Allocation(base, offset, nbytes)
            return base

    def free(self, pointer: int) -> None:
        """Release the allocation whose base is `pointer`.

        Raises:
            ValueError: `pointer` is not the base of a live allocation of this rank.
        """
        with self._lock:
            allocation = self._require_base("free", pointer)
            del self._live[pointer]
            self.frees += 1
            self._give_back(allocation.offset, align(allocation.nbytes))

    def resolve(self, operation: str, pointer: int, nbytes: int, byte_offset: int = 0) -> int:
        """Offset in the rank's region of `[pointer + byte_offset, + nbytes)`, after every check.

        Raises:
            ValueError: not a live base of this rank, or the extent leaves the allocation.
        """
        with self._lock:
            allocation = self._require_base(operation, pointer)
        if nbytes <= 0:
            raise ValueError(f"{operation}: nbytes must be positive, got {nbytes} (rank {self.rank})")
        if byte_offset < 0 or byte_offset + nbytes > allocation.nbytes:
            raise ValueError(
                f"{operation}: {nbytes} bytes at offset {byte_offset} exceed the {allocation.nbytes}-byte allocation "
                f"{pointer:#x} of rank {self.rank}"
            )
        return allocation.offset + byte_offset

    def _require_base(self, operation: str, pointer: int) -> Allocation:
        allocation = self._live.get(pointer)
        if allocation is None:
            raise ValueError(
                f"{operation}: pointer {pointer:#x} is not the base of a live allocation of rank {self.rank}: "
                f"{self._explain(pointer)}"
            )
        return allocation

    def _explain(self, pointer: int) -> str:
        owner = (pointer >> _RANK_SHIFT) - 1
        if owner != self.rank:
            return f"it belongs to rank {owner}" if owner >= 0 else "malloc never returned it"
        for allocation in self._live.values():
            if allocation.base < pointer < allocation.base + allocation.nbytes:
                inside = pointer - allocation.base
                return (
                    f"it lies {inside} bytes inside {allocation.base:#x} ({allocation.nbytes} bytes); pass the base, "
                    f"with copy_to_offset for a part of it"
                )
        return "it was freed" if self._first <= pointer < self._next else "malloc never returned it"

    def _give_back(self, offset: int, nbytes: int) -> None:
        index = bisect.bisect(self._free, (offset, nbytes))
        if index < len(self._free) and self._free[index][0] == offset + nbytes:
            nbytes += self._free.pop(index)[1]
        if index > 0 and sum(self._free[index - 1]) == offset:
            offset = self._free[index - 1][0]
            nbytes += self._free.pop(index - 1)[1]
            index -= 1
        self._free.insert(index, (offset, nbytes))
