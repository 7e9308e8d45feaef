"""The DeepSeek-V4 forward pass over paged caches."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from dsv4bench.model.batch import BlockTables, CachePools, Rows
from dsv4bench.model.config import ModelConfig
from dsv4bench.model.exchange import ExpertExchange


class DeepSeekV4:
    """One rank's model: attention and router whole, experts sharded over the exchange's ranks."""

    def __init__(
        self, config: ModelConfig, weights: Mapping[str, Tensor], exchange: ExpertExchange
    ) -> None:
        raise NotImplementedError

    def forward(self, rows: Rows, tables: BlockTables, pools: CachePools) -> Tensor:
        """Main model: float32 streams [T, hc_mult, hidden] after the last layer, before hc_head."""
        raise NotImplementedError

    def logits(self, streams: Tensor) -> Tensor:
        """Main logits: streams [T, hc_mult, hidden] -> float32 [T, vocab]."""
        raise NotImplementedError

    def mtp(
        self, next_token_ids: Tensor, rows: Rows, hidden: Tensor, tables: BlockTables, pools: CachePools
    ) -> Tensor:
        """MTP layer: float32 streams [T, hc_mult, hidden], before its hc_head; fed back for K > 1."""
        raise NotImplementedError

    def mtp_logits(self, streams: Tensor) -> Tensor:
        """Draft logits: MTP streams [T, hc_mult, hidden] -> float32 [T, vocab]."""
        raise NotImplementedError


def load_weights(path: Path) -> dict[str, Tensor]:
    """Tensors of a safetensors file, mapped from it rather than copied."""
    raise NotImplementedError
