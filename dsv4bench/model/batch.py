"""What a forward call works on: token rows, block tables and cache pools."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import torch
from torch import Tensor

from dsv4bench.cache.layout import CacheGroup, CacheLayout

ROW_MULTIPLE = 4
"""What row counts are padded to; see `pad_rows`."""


@dataclass(frozen=True)
class Rows:
    """A flat batch of T token rows, ragged over sequences; any mix of sequences and consecutive positions.

    token_ids, positions (0-based) and sequences (row of the block tables): int64 [T] each. The rows of one
    sequence have distinct positions; T may be 0 and is at most 128.
    """

    token_ids: Tensor
    positions: Tensor
    sequences: Tensor


@dataclass(frozen=True)
class BlockTables:
    """Page ids per sequence: per CacheGroup int [B, width], and how many entries count, int [B, 7].

    Position p lies in page `table[(p // tokens_per_page) % count]`; entries beyond the count are never read.
    """

    tables: tuple[Tensor, ...]
    counts: Tensor


@dataclass(frozen=True)
class CachePools:
    """All cache state of a rank: one float32 pool [layers, pages, rows_per_page, width] per CacheGroup.

    `mtp_kv` is the MTP layers' sliding-window pool, addressed with the ORI group's page ids. Pools may hold
    anything (NaN too) where nothing was written. The pools' memory must stay where it is: flat views of it
    are kept.
    """

    groups: tuple[Tensor, ...]
    mtp_kv: Tensor

    @classmethod
    def zeros(cls, layout: CacheLayout, pages: Sequence[int]) -> "CachePools":
        """Zero-filled pools with `pages[g]` pages in group g."""
        groups = tuple(torch.zeros(group.pool_shape(pages[group.group])) for group in layout.groups)
        return cls(groups, torch.zeros(layout.mtp_pool_shape(pages[CacheGroup.ORI])))

    @cached_property
    def flat(self) -> tuple[tuple[Tensor, ...], ...]:
        """Per group and layer, the pool as rows: float32 [pages * rows_per_page, width], a view."""
        return tuple(_flat_layers(pool) for pool in self.groups)

    @cached_property
    def flat_mtp(self) -> tuple[Tensor, ...]:
        """Per MTP layer, the sliding-window pool as rows, a view."""
        return _flat_layers(self.mtp_kv)


@overload
def pad_rows(rows: Rows) -> Rows: ...
@overload
def pad_rows(rows: Tensor) -> Tensor: ...
def pad_rows(rows: Rows | Tensor) -> Rows | Tensor:
    """Repeat the last row until the number of rows is a multiple of ROW_MULTIPLE; no rows stay none.

    Matrix products of few rows and vector loops' tails take other code paths, with other rounding: padded, a
    row's result does not depend on whether a draft or another sequence shares its call. The copies write what
    the last row writes.
    """
    if isinstance(rows, Rows):
        return Rows(pad_rows(rows.token_ids), pad_rows(rows.positions), pad_rows(rows.sequences))
    missing = -len(rows) % ROW_MULTIPLE
    return torch.cat((rows, rows[-1:].expand(missing, *rows.shape[1:]))) if missing else rows


def _flat_layers(pool: Tensor) -> tuple[Tensor, ...]:
    # A view, never the copy that flatten would make of a pool with gaps.
    return tuple(layer.view(pool.shape[1] * pool.shape[2], pool.shape[3]) for layer in pool.unbind(0))
