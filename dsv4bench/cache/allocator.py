"""Who owns which cache page of one rank."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dsv4bench.cache.layout import CacheGroup, CacheLayout
from dsv4bench.errors import EngineError, UsageError

BlockIds = npt.NDArray[np.int32]
Blocks = tuple[BlockIds, ...]


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

    def allocate(self, length: int) -> Blocks | None:
        """Pages for a new request of `length` positions; see `extend`."""
        nothing = np.empty(0, dtype=np.int32)
        return self.extend((nothing,) * len(CacheGroup), length)

    def extend(self, blocks: Blocks, length: int) -> Blocks | None:
        """Pages for a request that holds `blocks` and is to have `length` positions.

        Returns a new tuple, with int32 ids per group in group order and order of positions; `blocks` itself, which is
        never changed, when it holds enough. A ring stops at its size. All or nothing: None if any group has too few
        free pages. Raises UsageError if `length` is not within 1..max_model_len.
        """
        missing = self._missing(blocks, length)
        if not any(missing):
            return blocks
        if any(self.shortage(blocks, length)):
            return None
        extended = []
        for free, held, ids, count in zip(self._free, self._held, blocks, missing, strict=True):
            taken = [free.pop() for _ in range(count)]
            held.update(taken)
            extended.append(np.concatenate((ids, np.array(taken, dtype=np.int32))) if taken else ids)
        return tuple(extended)

    def shortage(self, blocks: Blocks, length: int) -> tuple[int, ...]:
        """How many more free pages of each group `extend` would need; raises like it."""
        missing = self._missing(blocks, length)
        return tuple(max(0, count - len(free)) for count, free in zip(missing, self._free, strict=True))

    def capacity(self, blocks: Blocks) -> int:
        """Positions that `blocks` hold; a full ring holds any number, but not every group is a ring."""
        return min(
            len(ids) * group.tokens_per_page
            for ids, group in zip(blocks, self._layout.groups, strict=True)
            if group.ring_blocks is None or len(ids) < group.ring_blocks
        )

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

    def _missing(self, blocks: Blocks, length: int) -> list[int]:
        needed = self._layout.blocks_for(length)
        return [max(0, count - len(ids)) for count, ids in zip(needed, blocks, strict=True)]


def pages_for(layout: CacheLayout, requests: int) -> tuple[int, ...]:
    """Pages per group with which `requests` requests can all grow to the layout's full length."""
    return tuple(requests * count for count in layout.blocks_for(layout.max_model_len))
