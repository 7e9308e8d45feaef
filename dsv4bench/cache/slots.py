"""Where a position lives in a pool: slot arithmetic on tensors (docs/model.md, Cache groups)."""

from torch import Tensor

from dsv4bench.cache.layout import GroupLayout


def slots(layout: GroupLayout, table: Tensor, counts: Tensor, sequences: Tensor, positions: Tensor) -> Tensor:
    """Row of the group's flat pool [pages * rows_per_page, width] that holds each position.

    `table` is int [B, width]; `positions` int64 of any shape, all >= 0; `sequences` (row of the table) and
    `counts` (that row's entries, > 0) are int64 and broadcast against it. Formula (docs/model.md, Cache groups), with b
    tokens and r rows per page: table[(p // b) % count] * r + (p % b) // (b // r). For a compressed group
    (b // r tokens per row) this is the row of the entry whose window contains p. Returns int64 in the shape
    of `positions`.
    """
    block = positions // layout.tokens_per_page % counts
    page = table.take(block + sequences * table.shape[1]).long()
    tokens_per_row = layout.tokens_per_page // layout.rows_per_page
    return page * layout.rows_per_page + positions % layout.tokens_per_page // tokens_per_row
