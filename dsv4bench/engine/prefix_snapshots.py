"""Snapshots of what a prefill leaves where its request will write over it: taken from one request, given to another."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dsv4bench.cache.layout import CacheGroup, CacheLayout
from dsv4bench.engine.requests import ActiveRequest
from dsv4bench.engine.steps import PrefillStep
from dsv4bench.model.config import ModelConfig
from dsv4bench.worker.protocol import DeviceTensor, StackedDeviceTensor, Worker
from dsv4bench.worker.task_args import DeviceState, Pools, values

_Extent = tuple[int, int, int]
"""(base of the allocation, byte offset, bytes)."""


class SnapshotCopies:
    """Copies between a request's device memory and a snapshot's host memory. Belongs to the device lane.

    A snapshot at position n, the end of a page, holds what rows from n on read of the rings (docs/model.md, Cache groups):
    the sliding window before n, and the one window before n of the compressors whose windows overlap. An HCA window
    ends at n. It also holds the request's last 128 hidden rows: MTP prefill, which runs over the last 128 positions of
    a prompt, so finds its inputs, and fills the MTP layer's cache, as if the request had prefilled all of it.
    """

    def __init__(
        self,
        worker: Worker,
        config: ModelConfig,
        layout: CacheLayout,
        pools: Pools[StackedDeviceTensor],
        state: DeviceState[StackedDeviceTensor],
    ) -> None:
        self._worker = worker
        self._layout = layout
        self._hidden = state.prefill_hidden
        self._rings = [
            (group, values(pools)[group], reach)
            for group, reach in (
                (CacheGroup.ORI, config.sliding_window - 1),
                (CacheGroup.CSA_STATE, config.compress_rate_csa),
                (CacheGroup.CSA_INNER_STATE, config.compress_rate_csa),
            )
        ]

    def restore(self, step: PrefillStep) -> None:
        """Give each request of the step that begins behind a reused prefix what its snapshot holds."""
        for chunks in step.chunks:
            for chunk in chunks:
                request, snapshot = chunk.request, chunk.request.prefix.snapshot
                if snapshot is None or chunk.start != request.prefix.reused:
                    continue
                assert snapshot.content is not None, "steps run in order: the snapshot was taken before"
                first = 0
                for base, offset, nbytes in self._extents(request, chunk.start):
                    content = snapshot.content[first : first + nbytes]
                    self._worker.copy_to_offset(base, offset, content, nbytes, worker_id=request.rank)
                    first += nbytes

    def take(self, step: PrefillStep) -> None:
        """Take the snapshots that are due behind the step's chunks, which have run."""
        for chunks in step.chunks:
            for chunk in chunks:
                if chunk.snapshot is None:
                    continue
                extents = list(self._extents(chunk.request, chunk.end))
                content = np.empty(sum(nbytes for _, _, nbytes in extents), np.uint8)
                first = 0
                for base, offset, nbytes in extents:
                    part = content[first : first + nbytes]
                    self._worker.copy_from_offset(part, base, offset, nbytes, worker_id=chunk.request.rank)
                    first += nbytes
                chunk.snapshot.content = content

    def _extents(self, request: ActiveRequest, position: int) -> Iterator[_Extent]:
        """Where a request keeps what a snapshot at `position` holds, always in the same order and sizes."""
        for group, tensor, reach in self._rings:
            shard = tensor.shards[request.rank]
            layers, pages, *_ = shard.shape
            page_bytes = _bytes(shard) // max(1, layers * pages)
            tokens, table = self._layout[group].tokens_per_page, request.blocks[group]
            for number in range(max(0, position - reach) // tokens, position // tokens):
                page = int(table[number % len(table)])
                for layer in range(layers):
                    yield shard.pointer, (layer * pages + page) * page_bytes, page_bytes
        hidden = self._hidden.shards[request.rank]
        slot_bytes = _bytes(hidden) // hidden.shape[0]
        yield hidden.pointer, request.state_slot * slot_bytes, slot_bytes


def _bytes(tensor: DeviceTensor) -> int:
    return int(np.prod(tensor.shape)) * tensor.dtype.itemsize
