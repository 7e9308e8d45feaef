"""The block tables of a slot, built again only where pages changed (docs/engine.md, Preparing a step)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dsv4bench.cache.layout import CacheLayout
from dsv4bench.engine.requests import ActiveRequest
from dsv4bench.worker.task_args import Tables

Allocate = Callable[[tuple[int, ...], DTypeLike], NDArray[Any]]

Blocks = tuple[NDArray[np.int32], ...]


class TableBuffers:
    """Block tables in shared host memory, int32 [ranks, B, width] a group; one set a slot.

    The tables of a rank are keyed by the block ids of its rows, each group padded to the table's width. An unchanged
    key builds nothing; a changed one rebuilds that rank's rows of this slot alone. Entries behind a row's count keep
    what they held: nobody reads them. `builds` counts the ranks built so far.
    """

    def __init__(self, allocate: Allocate, layout: CacheLayout, ranks: int, rows: int) -> None:
        self.builds = 0
        self._widths = [group.table_width for group in layout.groups]
        self._groups = [allocate((ranks, rows, width), np.int32) for width in self._widths]
        self._block_counts = allocate((ranks, rows, len(self._groups)), np.int32)
        self.tables: Tables[NDArray[Any]] = Tables(*[*self._groups, self._block_counts])
        self._blocks: list[list[Blocks]] = [[] for _ in range(ranks)]
        self._keys: list[list[bytes]] = [[] for _ in range(ranks)]

    def update(self, rank: int, requests: Sequence[ActiveRequest]) -> None:
        """Make row i of `rank` the table of `requests[i]`.

        Block ids are compared by the identity of `ActiveRequest.blocks` first: it is replaced whenever they change.
        """
        known = self._blocks[rank]
        if len(known) == len(requests) and all(
            request.blocks is blocks for request, blocks in zip(requests, known, strict=True)
        ):
            return
        blocks = [request.blocks for request in requests]
        keys = [self._key(row) for row in blocks]
        if keys != self._keys[rank]:
            self._build(rank, blocks)
            self._keys[rank] = keys
        self._blocks[rank] = blocks

    def forget(self) -> None:
        """Drop every key, so that the next update builds anew: pools or buffers were made again."""
        for rank in range(len(self._keys)):
            self._keys[rank] = []
            self._blocks[rank] = []

    def _key(self, blocks: Blocks) -> bytes:
        padded = np.full(sum(self._widths), -1, np.int32)
        start = 0
        for ids, width in zip(blocks, self._widths, strict=True):
            padded[start : start + len(ids)] = ids
            start += width
        return padded.tobytes()

    def _build(self, rank: int, blocks: Sequence[Blocks]) -> None:
        self.builds += 1
        for row, groups in enumerate(blocks):
            for column, (table, ids) in enumerate(zip(self._groups, groups, strict=True)):
                table[rank, row, : len(ids)] = ids
                self._block_counts[rank, row, column] = len(ids)
