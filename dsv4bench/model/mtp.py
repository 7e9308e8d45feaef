"""The multi-token-prediction layer: drafts the token after next (docs/model.md, Multi-token prediction)."""

from collections.abc import Mapping

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from dsv4bench.model.batch import CachePools
from dsv4bench.model.block import Block
from dsv4bench.model.config import LayerType, ModelConfig
from dsv4bench.model.exchange import ExpertExchange
from dsv4bench.model.hyper_connections import HyperHead
from dsv4bench.model.plan import QueryPlan, WindowPlan


class MtpLayer:
    """A sliding-window block with a learned router, its input projections and its own head collapse."""

    def __init__(
        self, weights: Mapping[str, Tensor], prefix: str, config: ModelConfig, exchange: ExpertExchange
    ) -> None:
        """`prefix` is "mtp.N."."""
        self.block = Block(weights, prefix, config, exchange, LayerType.SLIDING, 0)
        self.head, self.norm = HyperHead(weights, prefix, config), weights[f"{prefix}norm.weight"]
        self.token_projection = weights[f"{prefix}e_proj.weight"]
        self.hidden_projection = weights[f"{prefix}h_proj.weight"]
        self.token_norm = weights[f"{prefix}enorm.weight"]
        self.hidden_norm = weights[f"{prefix}hnorm.weight"]
        self.width, self.norm_eps = (config.hidden_size,), config.rms_norm_eps

    def __call__(
        self,
        embedded: Tensor,
        token_ids: Tensor,
        hidden: Tensor,
        cache: Tensor,
        query: QueryPlan,
        window: WindowPlan,
        pools: CachePools,
    ) -> Tensor:
        """Y_p from the embedding of t_{p+1} [T, D] and the main model's streams X_p [T, n, D]: [T, n, D].

        `token_ids` [T] are the t_{p+1}; `cache` is the layer's flat sliding-window pool.
        """
        token = F.rms_norm(embedded, self.width, self.token_norm, self.norm_eps)
        streams = F.rms_norm(hidden, self.width, self.hidden_norm, self.norm_eps)
        streams = F.linear(streams, self.hidden_projection)
        streams = streams + F.linear(token, self.token_projection).unsqueeze(1)
        return self.block(streams, token_ids, cache, query, window, None, pools)

    def collapse(self, streams: Tensor) -> Tensor:
        """What the shared LM head reads: streams [T, n, D] -> normalised [T, D]."""
        return F.rms_norm(self.head(streams), self.width, self.norm, self.norm_eps)
