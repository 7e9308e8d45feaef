"""One transformer layer: attention and experts, each between residual streams (docs/model.md, Residual streams)."""

from collections.abc import Mapping

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from dsv4bench.model.attention import Attention, make_branch
from dsv4bench.model.batch import CachePools
from dsv4bench.model.config import LayerType, ModelConfig
from dsv4bench.model.exchange import ExpertExchange
from dsv4bench.model.hyper_connections import HyperConnection
from dsv4bench.model.moe import MoE
from dsv4bench.model.plan import CompressionPlan, QueryPlan, WindowPlan


class Block:
    """A main or MTP layer."""

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        prefix: str,
        config: ModelConfig,
        exchange: ExpertExchange,
        layer_type: LayerType,
        place: int,
    ) -> None:
        """`prefix` is "layers.N." or "mtp.N."; `place` the layer's index in its type's pools."""
        branch = make_branch(weights, f"{prefix}attn.", config, layer_type, place)
        self.attention = Attention(weights, f"{prefix}attn.", config, branch)
        self.moe = MoE(weights, f"{prefix}ffn.", config, exchange)
        self.attention_site = HyperConnection(weights, f"{prefix}hc_attn_", config)
        self.moe_site = HyperConnection(weights, f"{prefix}hc_ffn_", config)
        self.attention_norm = weights[f"{prefix}attn_norm.weight"]
        self.moe_norm = weights[f"{prefix}ffn_norm.weight"]
        self.width, self.norm_eps = (config.hidden_size,), config.rms_norm_eps

    def __call__(
        self,
        streams: Tensor,
        token_ids: Tensor,
        cache: Tensor,
        query: QueryPlan,
        window: WindowPlan,
        compression: CompressionPlan | None,
        pools: CachePools,
    ) -> Tensor:
        """Streams float32 [T, n, D] -> [T, n, D]; `cache` is the layer's flat sliding-window pool."""
        x, post, mix = self.attention_site.collapse(streams)
        x = F.rms_norm(x, self.width, self.attention_norm, self.norm_eps)
        x = self.attention(x, cache, query, window, compression, pools)
        streams = self.attention_site.expand(x, streams, post, mix)
        x, post, mix = self.moe_site.collapse(streams)
        x = self.moe(F.rms_norm(x, self.width, self.moe_norm, self.norm_eps), token_ids)
        return self.moe_site.expand(x, streams, post, mix)

    def idle(self, token_ids: Tensor) -> None:
        """Join the layer's expert exchanges without rows of one's own (`token_ids` is empty)."""
        self.moe(token_ids.new_empty((0, *self.width), dtype=self.moe_norm.dtype), token_ids)
