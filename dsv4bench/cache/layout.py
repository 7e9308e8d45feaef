"""What a page of each cache group holds, and how many pages a request needs (docs/model.md, Cache groups)."""

from dataclasses import dataclass
from enum import IntEnum

from dsv4bench.errors import UsageError
from dsv4bench.model.config import PAGE_TOKENS, LayerType, ModelConfig

RING_HEADROOM = 256
"""Rows a ring holds beyond what a query reads back: one prefill tile and the speculative rows fit twice."""

HCA_STATE_TOKENS = 8
CSA_STATE_TOKENS = 4


class CacheGroup(IntEnum):
    """The seven groups in the order of the columns of the block counts."""

    ORI = 0
    CMP_C128 = 1
    CMP_C4 = 2
    IDX = 3
    HCA_STATE = 4
    CSA_STATE = 5
    CSA_INNER_STATE = 6


@dataclass(frozen=True)
class GroupLayout:
    """One cache group: a page covers `tokens_per_page` positions in every layer of the group.

    `width` counts float32 elements per row. `ring_blocks` is None where pages are kept for the whole context.
    """

    group: CacheGroup
    layers: int
    tokens_per_page: int
    rows_per_page: int
    width: int
    ring_blocks: int | None
    table_width: int

    def blocks_for(self, length: int) -> int:
        """Pages that a request of `length` positions needs: its pages, capped by the ring."""
        blocks = _ceil_div(length, self.tokens_per_page)
        return blocks if self.ring_blocks is None else min(blocks, self.ring_blocks)

    def pool_shape(self, pages: int) -> tuple[int, int, int, int]:
        """Shape [layers, pages, rows_per_page, width] of the group's float32 pool: layer-major."""
        return (self.layers, pages, self.rows_per_page, self.width)


@dataclass(frozen=True)
class CacheLayout:
    """The layout of all groups for requests of at most `max_model_len` positions, indexed by CacheGroup."""

    max_model_len: int
    mtp_layers: int
    groups: tuple[GroupLayout, ...]

    @classmethod
    def derive(cls, config: ModelConfig, max_model_len: int) -> "CacheLayout":
        """Derive the layout from the model (docs/model.md, Cache groups).

        Raises UsageError if `max_model_len` is not within 1..config.max_position_embeddings.
        """
        if not 1 <= max_model_len <= config.max_position_embeddings:
            raise UsageError(
                f"max_model_len must be within 1..{config.max_position_embeddings} for this model, "
                f"got {max_model_len}."
            )
        csa, hca = config.compress_rate_csa, config.compress_rate_hca
        csa_layers, hca_layers = len(config.layers_of(LayerType.CSA)), len(config.layers_of(LayerType.HCA))
        head, inner = config.head_dim, config.index_head_dim
        page = PAGE_TOKENS
        # A query at p reads back to p-window+1 while later rows of its call are written already; one more
        # page because that span need not start on a page boundary.
        ori_ring = _ceil_div(config.sliding_window - 1 + RING_HEADROOM, page) + 1
        hca_ring = _ceil_div(hca + RING_HEADROOM, HCA_STATE_TOKENS)
        csa_ring = _ceil_div(csa + RING_HEADROOM, CSA_STATE_TOKENS)
        shapes: list[tuple[CacheGroup, int, int, int, int, int | None]] = [
            (CacheGroup.ORI, config.num_hidden_layers, page, page, head, ori_ring),
            (CacheGroup.CMP_C128, hca_layers, page, page // hca, head, None),
            (CacheGroup.CMP_C4, csa_layers, page, page // csa, head, None),
            (CacheGroup.IDX, csa_layers, page, page // csa, inner, None),
            # A state row is kv and score side by side; CSA keeps two overlapping halves of each.
            (CacheGroup.HCA_STATE, hca_layers, HCA_STATE_TOKENS, HCA_STATE_TOKENS, 2 * head, hca_ring),
            (CacheGroup.CSA_STATE, csa_layers, CSA_STATE_TOKENS, CSA_STATE_TOKENS, 4 * head, csa_ring),
            (CacheGroup.CSA_INNER_STATE, csa_layers, CSA_STATE_TOKENS, CSA_STATE_TOKENS, 4 * inner, csa_ring),
        ]
        groups = []
        for group, layers, tokens, rows, width, ring in shapes:
            blocks = _ceil_div(max_model_len, tokens)
            table_width = blocks if ring is None else min(blocks, ring)
            groups.append(GroupLayout(group, layers, tokens, rows, width, ring, table_width))
        return cls(max_model_len, config.num_nextn_predict_layers, tuple(groups))

    def __getitem__(self, group: CacheGroup) -> GroupLayout:
        return self.groups[group]

    def blocks_for(self, length: int) -> tuple[int, ...]:
        """Pages per group for a request of `length` positions, in group order.

        Raises UsageError if `length` is not within 1..max_model_len.
        """
        if not 1 <= length <= self.max_model_len:
            raise UsageError(f"A request must have 1..{self.max_model_len} positions, got {length}.")
        return tuple(group.blocks_for(length) for group in self.groups)

    def mtp_pool_shape(self, pages: int) -> tuple[int, int, int, int]:
        """Shape of the MTP layers' sliding-window pool, which is addressed with the ORI group's page ids."""
        return (self.mtp_layers, *self.groups[CacheGroup.ORI].pool_shape(pages)[1:])


def _ceil_div(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)
