"""The DeepSeek-V4 forward pass over paged caches."""

from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from dsv4bench.cache.layout import CacheGroup
from dsv4bench.errors import UsageError
from dsv4bench.model.batch import BlockTables, CachePools, Rows, pad_rows
from dsv4bench.model.block import Block
from dsv4bench.model.checkpoint import tensor_shapes
from dsv4bench.model.config import LayerType, ModelConfig
from dsv4bench.model.exchange import ExpertExchange
from dsv4bench.model.hyper_connections import HyperHead
from dsv4bench.model.mtp import MtpLayer
from dsv4bench.model.plan import Planner


class DeepSeekV4:
    """One rank's model: everything but the routed experts whole, those shared over the exchange's ranks.

    All state between calls lives in the cache pools, addressed by position. A call writes its rows' cache
    entries and then reads; a query at p sees window positions p-window+1..p and compressed entries w <
    floor((p+1)/ratio), never later rows of its call. Positions may be fed again with other tokens: the
    result is that of never having fed the earlier ones. Every rank must make the same calls, with T = 0
    rows if it has nothing to do.
    """

    def __init__(self, config: ModelConfig, weights: Mapping[str, Tensor], exchange: ExpertExchange) -> None:
        """Take float32 tensors under the released names (see `tensor_shapes`); embedding and head are not copied.

        Raises UsageError if a tensor is missing or misshapen, or if the ranks cannot share the experts
        equally.
        """
        _check_weights(config, weights)
        self.config = config
        self.embedding, self.head = weights["embed.weight"], weights["head.weight"]
        self.hyper_head, self.norm = HyperHead(weights, "", config), weights["norm.weight"]
        self.planner = Planner(config)
        self.layers = []
        for index, layer_type in enumerate(config.layer_types):
            place = config.layers_of(layer_type).index(index)
            self.layers.append(Block(weights, f"layers.{index}.", config, exchange, layer_type, place))
        self.mtp_layers = [
            MtpLayer(weights, f"mtp.{index}.", config, exchange)
            for index in range(config.num_nextn_predict_layers)
        ]

    @torch.inference_mode()
    def forward(self, rows: Rows, tables: BlockTables, pools: CachePools) -> Tensor:
        """Run the main model on T rows: float32 streams [T, hc_mult, hidden] after the last layer, before hc_head."""
        total = len(rows.positions)
        if not total:
            for layer in self.layers:
                layer.idle(rows.token_ids)
            return self.embedding.new_empty((0, self.config.hc_mult, self.config.hidden_size))
        rows = pad_rows(rows)
        plan = self.planner.build(rows, tables)
        embedded = self.embedding.index_select(0, rows.token_ids)
        streams = embedded.unsqueeze(1).expand(-1, self.config.hc_mult, -1).contiguous()
        shared = {
            LayerType.SLIDING: (plan.plain, plan.window, None),
            LayerType.CSA: (plan.compressed, plan.window, plan.csa),
            LayerType.HCA: (plan.compressed, plan.window, plan.hca),
        }
        caches = pools.flat[CacheGroup.ORI]
        for layer, layer_type, cache in zip(self.layers, self.config.layer_types, caches, strict=True):
            streams = layer(streams, rows.token_ids, cache, *shared[layer_type], pools)
        return streams[:total]

    @torch.inference_mode()
    def logits(self, streams: Tensor) -> Tensor:
        """Main logits: streams float32 [T, hc_mult, hidden] -> [T, vocab]."""
        padded = pad_rows(streams)
        hidden = F.rms_norm(self.hyper_head(padded), self.norm.shape, self.norm, self.config.rms_norm_eps)
        return F.linear(hidden, self.head)[: len(streams)]

    @torch.inference_mode()
    def mtp(
        self, next_token_ids: Tensor, rows: Rows, hidden: Tensor, tables: BlockTables, pools: CachePools
    ) -> Tensor:
        """Run the MTP layer on T rows: float32 streams Y [T, hc_mult, hidden], before its hc_head.

        A row is (t_{p+1}, p, X_p): `next_token_ids` int64 [T], position and sequence from `rows` (its token
        ids are not read), `hidden` float32 [T, hc_mult, hidden] from `forward`, or Y_p to draft one token
        more at p + 1.
        """
        layer, total = self.mtp_layers[0], len(next_token_ids)
        if not total:
            layer.block.idle(next_token_ids)
            return torch.empty_like(hidden)
        rows = pad_rows(Rows(next_token_ids, rows.positions, rows.sequences))
        embedded = self.embedding.index_select(0, rows.token_ids)
        query, window = self.planner.queries(rows), self.planner.window(rows, tables)
        cache = pools.flat_mtp[0]
        streams = layer(embedded, rows.token_ids, pad_rows(hidden), cache, query, window, pools)
        return streams[:total]

    @torch.inference_mode()
    def mtp_logits(self, streams: Tensor) -> Tensor:
        """Draft logits, for t_{p+2}: MTP streams float32 [T, hc_mult, hidden] -> [T, vocab]."""
        return F.linear(self.mtp_layers[0].collapse(pad_rows(streams)), self.head)[: len(streams)]


def load_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name, mapped rather than copied: forked ranks share their pages.

    Raises UsageError if the file is missing or not a safetensors file.
    """
    try:
        return dict(load_file(path))
    except (OSError, SafetensorError) as error:
        raise UsageError(f"Cannot read the checkpoint {path}: {error}.") from error


def _check_weights(config: ModelConfig, weights: Mapping[str, Tensor]) -> None:
    for name, shape in tensor_shapes(config):
        if name not in weights:
            raise UsageError(f"The checkpoint does not fit the model: tensor {name} is missing.")
        if tuple(weights[name].shape) != shape:
            raise UsageError(
                f"The checkpoint does not fit the model: {name} is {list(weights[name].shape)}, "
                f"the configuration needs {list(shape)}."
            )
