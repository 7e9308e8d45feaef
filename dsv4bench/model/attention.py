"""Attention over a sliding window and compressed entries, one shared key/value head (docs/model.md, Attention)."""

from collections.abc import Mapping
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from dsv4bench.cache.layout import CacheGroup
from dsv4bench.model.batch import CachePools
from dsv4bench.model.compressor import Compressor
from dsv4bench.model.config import LayerType, ModelConfig
from dsv4bench.model.indexer import Indexer
from dsv4bench.model.plan import CompressionPlan, QueryPlan, WindowPlan
from dsv4bench.model.rope import rotate_


class Branch(Protocol):
    """The compressed side of a layer: keeps its caches and gives each query its compressed entries.

    `inputs` [a, hidden] and `queries` [b, q_lora] are projections that the layer makes along with its own.
    """

    inputs: Tensor
    queries: Tensor

    def attend(
        self, inputs: Tensor, queries: Tensor, query: QueryPlan, plan: CompressionPlan, pools: CachePools
    ) -> Tensor | None:
        """Entries float32 [T, E, d] for the columns of the plan's bias, 0 where hidden; None if no row sees any."""
        ...


class HcaBranch:
    """Heavily compressed attention: every visible entry."""

    def __init__(self, weights: Mapping[str, Tensor], prefix: str, config: ModelConfig, place: int) -> None:
        """`prefix` ends before compressor; `place` is the layer's index in its type's pools."""
        self.place, self.head = place, config.head_dim
        self.compressor = Compressor(weights, f"{prefix}compressor.", self.head, config.rms_norm_eps)
        self.inputs = self.compressor.projection
        self.queries = torch.empty((0, config.q_lora_rank))

    def attend(
        self, inputs: Tensor, queries: Tensor, query: QueryPlan, plan: CompressionPlan, pools: CachePools
    ) -> Tensor | None:
        """See Branch."""
        del queries, query
        entries = pools.flat[CacheGroup.CMP_C128][self.place]
        state = pools.flat[CacheGroup.HCA_STATE][self.place]
        self.compressor(inputs, state, entries, plan, plan.states[0])
        if not plan.hidden.shape[1]:
            return None
        return _gather(entries, plan.entries[0], plan.hidden)


class CsaBranch:
    """Compressed sparse attention: the entries that the indexer selects."""

    def __init__(self, weights: Mapping[str, Tensor], prefix: str, config: ModelConfig, place: int) -> None:
        """`prefix` ends before compressor and indexer; `place` is the layer's index in its type's pools."""
        self.place = place
        self.compressor = Compressor(weights, f"{prefix}compressor.", config.head_dim, config.rms_norm_eps)
        self.indexer = Indexer(weights, f"{prefix}indexer.", config)
        parts = (
            self.compressor.projection,
            self.indexer.compressor.projection,
            self.indexer.weight_projection,
        )
        self.inputs = torch.cat(parts)
        self.sizes = [len(part) for part in parts]
        self.queries = self.indexer.query_projection

    def attend(
        self, inputs: Tensor, queries: Tensor, query: QueryPlan, plan: CompressionPlan, pools: CachePools
    ) -> Tensor | None:
        """See Branch."""
        outer, inner, head_weights = torch.split_with_sizes(inputs, self.sizes, 1)
        entries = pools.flat[CacheGroup.CMP_C4][self.place]
        keys = pools.flat[CacheGroup.IDX][self.place]
        self.compressor(outer, pools.flat[CacheGroup.CSA_STATE][self.place], entries, plan, plan.states[0])
        inner_state = pools.flat[CacheGroup.CSA_INNER_STATE][self.place]
        self.indexer.compressor(inner, inner_state, keys, plan, plan.states[1])
        if not plan.hidden.shape[1]:
            return None
        chosen = self.indexer.select(queries, head_weights, keys, query.head_rotations, plan)
        # Visible entries sort before hidden ones, so the first places of `hidden` tell which choices are
        # real.
        hidden = plan.hidden[:, : chosen.shape[1]]
        return _gather(entries, plan.entries[0].gather(1, chosen), hidden)


class Attention:
    """One layer's attention: projections, window cache, optional compressed branch, grouped output."""

    def __init__(
        self, weights: Mapping[str, Tensor], prefix: str, config: ModelConfig, branch: Branch | None
    ) -> None:
        """`prefix` ends before wq_a and its siblings, for example "layers.0.attn."."""
        self.branch = branch
        self.heads, self.head, self.groups = config.num_attention_heads, config.head_dim, config.o_groups
        self.norm_eps, self.scale = config.rms_norm_eps, config.head_dim**-0.5
        own = (weights[f"{prefix}wq_a.weight"], weights[f"{prefix}wkv.weight"])
        inputs = own if branch is None else (*own, branch.inputs)
        self.input_projection = torch.cat(inputs)
        self.input_sizes = [len(part) for part in inputs]
        self.query_projection = weights[f"{prefix}wq_b.weight"]
        self.query_size = len(self.query_projection)
        if branch is not None:
            self.query_projection = torch.cat((self.query_projection, branch.queries))
        self.query_norm, self.kv_norm = weights[f"{prefix}q_norm.weight"], weights[f"{prefix}kv_norm.weight"]
        self.sink = weights[f"{prefix}attn_sink"].view(1, -1, 1)
        # Per group of heads [in, rank], for one batched product.
        self.output_a = (
            weights[f"{prefix}wo_a.weight"].view(self.groups, config.o_lora_rank, -1).transpose(1, 2)
        )
        self.output_b = weights[f"{prefix}wo_b.weight"]

    def __call__(
        self,
        x: Tensor,
        cache: Tensor,
        query_plan: QueryPlan,
        window: WindowPlan,
        compression: CompressionPlan | None,
        pools: CachePools,
    ) -> Tensor:
        """Normalised input float32 [T, D] -> [T, D]; writes the rows' cache entries, then attends.

        `cache` is the layer's flat sliding-window pool [slots, d].
        """
        projected = torch.split_with_sizes(F.linear(x, self.input_projection), self.input_sizes, 1)
        latent = F.rms_norm(projected[0], (self.input_sizes[0],), self.query_norm, self.norm_eps)
        queries = F.linear(latent, self.query_projection)
        query = queries[:, : self.query_size].view(-1, self.heads, self.head)
        query = rotate_(F.rms_norm(query, (self.head,), eps=self.norm_eps), query_plan.head_rotations)
        kv = rotate_(
            F.rms_norm(projected[1], (self.head,), self.kv_norm, self.norm_eps), query_plan.rotations
        )
        cache.index_copy_(0, window.write, kv)

        keys = cache.index_select(0, window.read).view(len(x), -1, self.head)
        bias = window.bias
        if self.branch is not None and compression is not None:
            inner = queries[:, self.query_size :]
            entries = self.branch.attend(projected[2], inner, query_plan, compression, pools)
            if entries is not None:
                keys = torch.cat((keys, entries), dim=1)
            bias = compression.bias
        return self._output(self._mix(query, keys, bias), query_plan)

    def _mix(self, query: Tensor, keys: Tensor, bias: Tensor) -> Tensor:
        """Softmax attention with a sink: query [T, H, d], keys = values [T, N, d], bias [T, 1, N] -> [T, H, d]."""
        scores = torch.baddbmm(bias, query, keys.transpose(1, 2), alpha=self.scale)
        # The sink is one more column that takes its share of the probability and has no value.
        sink = self.sink.expand(len(query), -1, 1)
        probabilities = torch.cat((scores, sink), dim=2).softmax(2)[:, :, :-1]
        return torch.bmm(probabilities, keys)

    def _output(self, mixed: Tensor, query_plan: QueryPlan) -> Tensor:
        """Undo the values' rotation, then project group by group and together: [T, H, d] -> [T, D]."""
        mixed = rotate_(mixed, query_plan.inverse)
        grouped = mixed.reshape(len(mixed), self.groups, -1).transpose(0, 1)
        return F.linear(torch.bmm(grouped, self.output_a).transpose(0, 1).flatten(1), self.output_b)


def make_branch(
    weights: Mapping[str, Tensor], prefix: str, config: ModelConfig, layer_type: LayerType, place: int
) -> Branch | None:
    """The compressed branch of a layer of this type, None for a sliding-window layer."""
    if layer_type is LayerType.CSA:
        return CsaBranch(weights, prefix, config, place)
    if layer_type is LayerType.HCA:
        return HcaBranch(weights, prefix, config, place)
    return None


def _gather(pool: Tensor, slots: Tensor, hidden: Tensor) -> Tensor:
    """Rows of a flat pool by slot [T, E] -> [T, E, d], 0 where hidden: what was never written may be NaN."""
    found = pool.index_select(0, slots.flatten()).view(*slots.shape, pool.shape[1])
    return found.masked_fill_(hidden.unsqueeze(2), 0)
