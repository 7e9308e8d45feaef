"""The lightning indexer: which compressed entries a CSA query attends to (docs/model.md, Indexer)."""

from collections.abc import Mapping

import torch
from torch import Tensor

from dsv4bench.model.compressor import Compressor
from dsv4bench.model.config import ModelConfig
from dsv4bench.model.plan import CompressionPlan
from dsv4bench.model.rope import rotate_


class Indexer:
    """Scores entries by small heads of their own and keeps the best `index_topk` of each query."""

    def __init__(self, weights: Mapping[str, Tensor], prefix: str, config: ModelConfig) -> None:
        """`prefix` ends before wq_b, weights_proj and compressor."""
        self.heads, self.head_dim, self.topk = config.index_n_heads, config.index_head_dim, config.index_topk
        self.compressor = Compressor(weights, f"{prefix}compressor.", self.head_dim, config.rms_norm_eps)
        self.query_projection = weights[f"{prefix}wq_b.weight"]
        # Both factors are positive: they pass through the ReLU and may as well be in the weights.
        scale = self.head_dim**-0.5 * self.heads**-0.5
        self.weight_projection = weights[f"{prefix}weights_proj.weight"] * scale

    def select(
        self, queries: Tensor, head_weights: Tensor, keys: Tensor, rotations: Tensor, plan: CompressionPlan
    ) -> Tensor:
        """Pick entries for T queries, each its best first.

        `queries` float32 [T, heads * head_dim] before RoPE, `head_weights` [T, heads], `keys` the flat pool
        of indexer keys, `rotations` complex64 [T, 1, r]. Returns entry numbers int64 [T, min(topk, E)]; a
        row that sees v entries has min(v, topk) valid ones, which come first. Ties go to the lowest entry.
        """
        query = rotate_(queries.reshape(-1, self.heads, self.head_dim), rotations)
        slots = plan.entries[1]
        key = keys.index_select(0, slots.flatten()).view(*slots.shape, self.head_dim)
        scores = torch.bmm(query, key.transpose(1, 2)).relu_()
        scores = torch.bmm(head_weights.unsqueeze(1), scores).squeeze(1)
        # Fills whatever unwritten keys gave, NaN included.
        scores.masked_fill_(plan.hidden, -torch.inf)
        order = scores.sort(dim=1, descending=True, stable=True).indices
        return order[:, : self.topk]
