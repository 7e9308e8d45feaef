"""Compressors: pool a window of tokens into one cache entry (docs/model.md, Compressors)."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from dsv4bench.model.plan import CompressionPlan, StatePlan
from dsv4bench.model.rope import rotate_


class Compressor:
    """A gated pooling of `kv` over windows of tokens, for HCA, CSA (overlapping) or the indexer (overlapping).

    All state is addressed by position, so that feeding a position again, also one that ends a window, leaves
    exactly what feeding it once would have left.
    """

    def __init__(self, weights: Mapping[str, Tensor], prefix: str, head: int, norm_eps: float) -> None:
        """`prefix` ends before wkv, wgate, ape and norm; `head` is the width of an entry."""
        self.head, self.norm_eps = head, norm_eps
        self.norm = weights[f"{prefix}norm.weight"]
        # kv | score side by side, as in a state row; ape belongs to the score alone.
        self.projection = torch.cat((weights[f"{prefix}wkv.weight"], weights[f"{prefix}wgate.weight"]))
        ape = weights[f"{prefix}ape"]
        self.ape = torch.cat((torch.zeros_like(ape), ape), dim=1)

    def __call__(
        self, projected: Tensor, state: Tensor, entries: Tensor, plan: CompressionPlan, slots: StatePlan
    ) -> None:
        """Store the rows' state and (re)compute the entries of the windows that they end.

        `projected` is x @ projection^T, float32 [T, 2 * width]; `state` and `entries` are flat pools
        [slots, ...].
        """
        state.index_copy_(0, slots.write, projected + self.ape.index_select(0, plan.phase))
        if not plan.closing:
            return
        gathered = state.view(-1, self.head).index_select(0, slots.gather)
        kv, score = gathered.view(plan.closing, 2, -1, self.head).unbind(1)
        if plan.missing is not None:
            score = score.masked_fill(plan.missing, -torch.inf)
        pooled = (kv * score.softmax(1)).sum(1)
        entry = F.rms_norm(pooled, (self.head,), self.norm, self.norm_eps)
        entries.index_copy_(0, slots.entries, rotate_(entry, plan.first_rotations))
