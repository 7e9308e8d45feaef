"""Who owns which cache page of one rank."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dsv4bench.cache.layout import CacheGroup, CacheLayout
from dsv4bench.errors import EngineError, UsageError

BlockIds = npt.NDArray[np.int32]


class BlockOwnershipError(EngineError):
    """Pages were released that no request holds."""


class BlockAllocator:
    """Free lists of the seven groups. Pages released last are handed out first: they are warm in the caches."""

    def __init__(self, layout: CacheLayout, pages: Sequence[int]) -> None:
        """Manage the pages 0..pages[g]-1 of each group g; scratch pages of a pool lie beyond and are not counted.

        Raises UsageError unless there is a page count for each group, none of them negative.
        """
        if len(pages) != len(CacheGroup) or any(count < 0 for count in pages):
            raise UsageError(f"{len(CacheGroup)} page counts of at least 0 are needed, got {list(pages)}.")
        self._layout = layout
        # Popped from the end, so that the first allocation gets 0, 1, 2, ...
        self._free = [list(range(count - 1, -1, -1)) for count in pages]
        self._held: list[set[int]] = [set() for _ in pages]

    @property
    def free(self) -> tuple[int, ...]:
        """Free pages per group."""
        return tuple(len(ids) for ids in self._free)

    def allocate(self, length: int) -> tuple[BlockIds, ...] | None:
        """Pages for a request of `length` positions: int32 ids per group, in group order and order of positions.

        All or nothing: None if any group has too few free pages. Raises UsageError if `length` is not within
        1..max_model_len.
        """
        needed = self._layout.blocks_for(length)
        if any(len(free) < count for free, count in zip(self._free, needed, strict=True)):
            return None
        blocks = []
        for free, held, count in zip(self._free, self._held, needed, strict=True):
            taken = [free.pop() for _ in range(count)]
            held.update(taken)
            blocks.append(np.array(taken, dtype=np.int32))
        return tuple(blocks)

    def release(self, blocks: Sequence[BlockIds]) -> None:
        """Take all pages of an allocation back.

        Raises BlockOwnershipError, with nothing released, if any of them is not held: released before, named twice,
        or never given out.
        """
        released = [ids.tolist() for ids in blocks]
        for group, ids in zip(CacheGroup, released, strict=True):
            strangers = sorted(set(ids) - self._held[group])
            if strangers or len(set(ids)) != len(ids):
                raise BlockOwnershipError(
                    f"Cannot release pages {ids} of group {group.name}: "
                    + (f"{strangers} are not held by any request." if strangers else "a page is named twice.")
                )
        for free, held, ids in zip(self._free, self._held, released, strict=True):
            held.difference_update(ids)
            free.extend(reversed(ids))
