"""Pages of prompts that requests of one rank share: found by what they hold, counted by who reads them.

A prefix page is `stride` positions of a prompt: those of one page, or a few, in every group that is kept for the whole
context. It is full, and nobody writes to it. The rings are written over as a request goes on; what they held at the end
of a prefix page is kept beside it, as a snapshot. A request can begin behind a page only where there is one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dsv4bench.cache.allocator import BlockAllocator, Blocks
from dsv4bench.cache.layout import CacheLayout


@dataclass(eq=False)
class Snapshot:
    """Everything that a request needs beside its prefix pages to begin behind them; filled where it is taken."""

    content: npt.NDArray[np.uint8] | None = None


@dataclass(eq=False)
class PrefixPage:
    """Page `number` of a prompt. `key` stands for all tokens up to its end; `ids` are int32 per group, none of a ring.

    `users` counts the requests that hold it; `last_use` orders the pages of an index.
    """

    number: int
    key: bytes
    ids: Blocks
    users: int = 0
    last_use: int = 0
    snapshot: Snapshot | None = None


@dataclass(eq=False)
class RequestPrefix:
    """What ties a request to the index: the keys of its prompt's pages, and the pages that it holds.

    Its first `reused` positions lie in pages that others filled; `snapshot` is of that place. At each of `boundaries`
    its own prefill is to take one.
    """

    keys: Sequence[bytes] = ()
    reused: int = 0
    snapshot: Snapshot | None = None
    boundaries: Sequence[int] = ()
    pages: list[PrefixPage] = field(default_factory=list)


def prefix_keys(layout: CacheLayout, tokens: Sequence[int]) -> tuple[bytes, ...]:
    """One key a full page, each made of the key before it and the page's tokens.

    The last token belongs to no page: something is left to prefill, whatever is found.
    """
    stride = prefix_stride(layout)
    content = np.asarray(tokens, np.int64)
    keys: list[bytes] = []
    key = b""
    for end in range(stride, len(tokens), stride):
        key = hashlib.sha256(key + content[end - stride : end].tobytes()).digest()
        keys.append(key)
    return tuple(keys)


def prefix_stride(layout: CacheLayout) -> int:
    """Positions of a prefix page: those of the coarsest page, which all others divide."""
    return max(group.tokens_per_page for group in layout.groups)


class PrefixIndex:
    """The prefix pages of one rank. Their pages belong to the index until it gives them back to the allocator."""

    def __init__(self, layout: CacheLayout, allocator: BlockAllocator, snapshots: int) -> None:
        """Keep at most `snapshots` snapshots, those that were used last."""
        self.stride = prefix_stride(layout)
        self._allocator = allocator
        self._snapshots = snapshots
        # Pages of each group that make up a prefix page.
        self._sizes = [
            0 if group.ring_blocks is not None else self.stride // group.tokens_per_page
            for group in layout.groups
        ]
        self._pages: dict[bytes, PrefixPage] = {}
        self._clock = 0

    @property
    def pages(self) -> tuple[PrefixPage, ...]:
        """All prefix pages."""
        return tuple(self._pages.values())

    def reusable(self, keys: Sequence[bytes]) -> int:
        """Positions that a request with these keys need not prefill."""
        return self._match(keys)[0] * self.stride

    def begin(self, keys: Sequence[bytes]) -> tuple[RequestPrefix, Blocks]:
        """Take the longest reusable prefix for a request: its tie to the index, and its pages so far.

        It is to take a snapshot at the end of its last full page, where the next turn of its text would begin, and
        where its prompt leaves those that are known, if there is none: others may leave them there too.
        """
        reusable, known = self._match(keys)
        pages = [self._pages[key] for key in keys[:reusable]]
        self._clock += 1
        for page in pages:
            page.users += 1
            page.last_use = self._clock
        wanted = sorted({known, len(keys)})
        prefix = RequestPrefix(
            keys,
            reused=reusable * self.stride,
            snapshot=pages[-1].snapshot if pages else None,
            boundaries=[count * self.stride for count in wanted if count > reusable],
            pages=pages,
        )
        nothing = np.empty(0, np.int32)
        blocks = tuple(
            np.concatenate([nothing, *(page.ids[group] for page in pages)])
            for group in range(len(self._sizes))
        )
        return prefix, blocks

    def add(
        self, prefix: RequestPrefix, blocks: Blocks, start: int, end: int, snapshot: Snapshot | None
    ) -> None:
        """Take over the pages that a request, which holds `blocks`, completed by prefilling start..end - 1.

        `snapshot` was taken at `end`. Pages that are known already stay the request's own.
        """
        self._clock += 1
        for number in range(start // self.stride, min(end // self.stride, len(prefix.keys))):
            key = prefix.keys[number]
            if key not in self._pages:
                ids = tuple(
                    of_group[number * size : (number + 1) * size]
                    for of_group, size in zip(blocks, self._sizes, strict=True)
                )
                page = self._pages[key] = PrefixPage(number, key, ids, users=1)
                prefix.pages.append(page)
            self._pages[key].last_use = self._clock
        if snapshot is not None:
            self._keep(prefix.keys[end // self.stride - 1], snapshot)

    def end(self, prefix: RequestPrefix) -> None:
        """A request lets go of its prefix pages; they stay until somebody needs the room."""
        for page in prefix.pages:
            page.users -= 1
        prefix.pages = []

    def private(self, prefix: RequestPrefix, blocks: Blocks) -> Blocks:
        """Those of a request's pages that are nobody else's."""
        if not prefix.pages:
            return blocks
        return tuple(
            ids[~np.isin(ids, np.concatenate([page.ids[group] for page in prefix.pages]))]
            for group, ids in enumerate(blocks)
        )

    def reclaim(self, short: Sequence[int]) -> bool:
        """Give back as many pages as each group is short of, those used longest ago first and ends before beginnings.

        Only pages that no request holds. False, with nothing given back, where they would not do.
        """
        needed = 0
        for count, size in zip(short, self._sizes, strict=True):
            if count and not size:
                return False
            if count:
                needed = max(needed, -(-count // size))
        idle = [page for page in self._pages.values() if not page.users]
        if needed > len(idle):
            return False
        idle.sort(key=lambda page: (page.last_use, -page.number))
        for page in idle[:needed]:
            del self._pages[page.key]
            self._allocator.release(page.ids)
        return True

    def _match(self, keys: Sequence[bytes]) -> tuple[int, int]:
        """How many pages can be reused, and how many are known."""
        known = reusable = 0
        for key in keys:
            page = self._pages.get(key)
            if page is None:
                break
            known += 1
            if page.snapshot is not None:
                reusable = known
        return reusable, known

    def _keep(self, key: bytes, snapshot: Snapshot) -> None:
        self._pages[key].snapshot = snapshot
        kept = [page for page in self._pages.values() if page.snapshot is not None]
        if len(kept) > self._snapshots:
            min(kept, key=lambda page: page.last_use).snapshot = None
