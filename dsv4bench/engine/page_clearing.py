"""Pages that change hands are cleared on the device before their new owner writes (docs/engine.md, Caches)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from dsv4bench.cache.dirty_pages import DirtyPages
from dsv4bench.cache.layout import CacheGroup, CacheLayout
from dsv4bench.engine.metadata import Blocks
from dsv4bench.engine.requests import ActiveRequest
from dsv4bench.worker.protocol import StackedDeviceTensor, Worker
from dsv4bench.worker.task_args import Pools, values

_FLOAT_BYTES = 4


@dataclass(frozen=True)
class _Pool:
    tensor: StackedDeviceTensor
    group: CacheGroup
    dirty: tuple[DirtyPages, ...]  # one a rank


class PageClearing:
    """Knows which pages were ever owned; `before_dispatch` clears those that a request of the step got anew.

    Belongs to the device lane. A page is free only when no step in flight refers to it, so that clearing it disturbs
    nobody.
    """

    def __init__(self, worker: Worker, pools: Pools[StackedDeviceTensor], layout: CacheLayout) -> None:
        self._worker = worker
        self._layout = layout
        groups = [*CacheGroup, CacheGroup.ORI]  # the MTP pool is addressed with the ids of ORI
        self._pools = [
            _Pool(tensor, group, tuple(_dirty_pages(shard.shape) for shard in tensor.shards))
            for tensor, group in zip(values(pools), groups, strict=True)
        ]
        self._owned: list[list[set[int]]] = [[set() for _ in layout.groups] for _ in range(worker.ranks)]
        self._seen: WeakKeyDictionary[ActiveRequest, Blocks] = WeakKeyDictionary()
        largest = max(int(np.prod(pool.tensor.shards[0].shape)) for pool in self._pools)
        self._zeros = np.zeros(largest, np.float32)
        self.cleared_bytes = 0

    def before_dispatch(self, requests: Sequence[Sequence[ActiveRequest]]) -> None:
        """Clear the re-assigned pages of a step's requests, given by rank."""
        for rank, of_rank in enumerate(requests):
            changed = False
            for request in of_rank:
                if self._seen.get(request) is not request.blocks:
                    changed |= self._take_over(rank, request)
            if changed:
                self._upload(rank)

    def _take_over(self, rank: int, request: ActiveRequest) -> bool:
        """Mark the pages that the request has not had before; whether any of them had another owner.

        Not those of its reused prefix: it reads what they hold.
        """
        before = self._seen.get(request)
        marked = False
        fresh: list[set[int]] = []
        for group, ids in zip(self._layout.groups, request.blocks, strict=True):
            shared = 0 if group.ring_blocks is not None else request.prefix.reused // group.tokens_per_page
            new = set(ids[shared:].tolist())
            if before is not None:
                new -= set(before[group.group].tolist())
            used = self._owned[rank][group.group]
            fresh.append(new & used)
            used |= new
        for pool in self._pools:
            if fresh[pool.group]:
                pool.dirty[rank].mark(fresh[pool.group])
                marked = True
        self._seen[request] = request.blocks
        return marked

    def _upload(self, rank: int) -> None:
        for pool in self._pools:
            base = pool.tensor.shards[rank].pointer
            for offset, nbytes in pool.dirty[rank].take():
                self._worker.copy_to_offset(base, offset, self._zeros, nbytes, worker_id=rank)
                self.cleared_bytes += nbytes


def _dirty_pages(shape: tuple[int, ...]) -> DirtyPages:
    layers, pages, rows, width = shape
    return DirtyPages(layers, pages, rows * width * _FLOAT_BYTES)
