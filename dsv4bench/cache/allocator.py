"""Who owns which cache page of one rank."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dsv4bench.cache.layout import CacheGroup, CacheLayout
from dsv4bench.errors import EngineError, UsageError

BlockIds = npt.NDArray[np.int32]


class OutOfBlocksError(EngineError):
    """A group has too few free pages for a request; nothing was allocated."""


class BlockOwnershipError(EngineError):
    """Pages were released that nobody holds, or the page ids given make no sense."""


@dataclass(frozen=True)
class Allocation:
    """The pages of one request: int32 ids per group, in group order; entry i covers the i-th page of positions."""

    length: int
    blocks: tuple[BlockIds, ...]


class BlockAllocator:
    """Free lists of the seven groups. Pages released last are handed out first: they are warm in the caches."""

    def __init__(self, layout: CacheLayout, pages: Sequence[int]) -> None:
        """Manage the pages 0..pages[g]-1 of each group g; scratch pages of a pool lie beyond and are not counted.

        Raises UsageError unless there is a page count for each group, none of them negative.
        """
        if len(pages) != len(CacheGroup) or any(count < 0 for count in pages):
            raise UsageError(f"{len(CacheGroup)} page counts of at least 0 are needed, got {list(pages)}.")
        self.layout = layout
        self.pages = tuple(pages)
        # Popped from the end, so that the first allocation gets 0, 1, 2, ...
        self._free = [list(range(count - 1, -1, -1)) for count in pages]
        self._held: list[set[int]] = [set() for _ in pages]

    @property
    def free(self) -> tuple[int, ...]:
        """Free pages per group."""
        return tuple(len(ids) for ids in self._free)

    def can_allocate(self, length: int) -> bool:
        """Whether a request of `length` positions would get its pages; UsageError as for `allocate`."""
        return self._lacking(self.layout.blocks_for(length)) is None

    def allocate(self, length: int) -> Allocation:
        """Pages for a request of `length` positions in every group, or none at all.

        Raises OutOfBlocksError naming the first group that has too few, and UsageError if `length` is not
        within 1..max_model_len.
        """
        needed = self.layout.blocks_for(length)
        lacking = self._lacking(needed)
        if lacking is not None:
            raise OutOfBlocksError(
                f"No room for a request of {length} positions: group {lacking.name} has {self.free[lacking]} of "
                f"{self.pages[lacking]} pages free and {needed[lacking]} are needed."
            )
        blocks = []
        for free, held, count in zip(self._free, self._held, needed, strict=True):
            taken = [free.pop() for _ in range(count)]
            held.update(taken)
            blocks.append(np.array(taken, dtype=np.int32))
        return Allocation(length, tuple(blocks))

    def release(self, allocation: Allocation) -> None:
        """Take all pages of `allocation` back.

        Raises BlockOwnershipError, with nothing released, if any of them is not held: released before, or
        never given out by this allocator.
        """
        released = [ids.tolist() for ids in allocation.blocks]
        for group, ids in zip(CacheGroup, released, strict=True):
            strangers = sorted(set(ids) - self._held[group])
            if strangers:
                raise BlockOwnershipError(
                    f"Pages {strangers} of group {group.name} are not held by any request."
                )
        for free, held, ids in zip(self._free, self._held, released, strict=True):
            held.difference_update(ids)
            free.extend(reversed(ids))

    def _lacking(self, needed: Sequence[int]) -> CacheGroup | None:
        return next((group for group in CacheGroup if len(self._free[group]) < needed[group]), None)
