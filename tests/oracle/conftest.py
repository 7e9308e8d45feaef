"""A paged model to feed by hand, and the transformers model with the same weights."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from dsv4bench.cache.layout import CacheGroup, CacheLayout
from dsv4bench.model.batch import BlockTables, CachePools, Rows
from dsv4bench.model.checkpoint import ensure_checkpoint
from dsv4bench.model.config import ModelConfig, preset
from dsv4bench.model.exchange import ExpertExchange, LocalExchange
from dsv4bench.model.model import DeepSeekV4, load_weights

torch.set_num_threads(1)


@dataclass
class Paged:
    """A model with pools and block tables of its own: `sequences` requests of up to `length` positions.

    Pages are dealt out at random from pools with spare pages, and everything starts as NaN.
    """

    config: ModelConfig
    weights: dict[str, Tensor]
    sequences: int = 1
    length: int = 400
    seed: int = 0
    exchange: ExpertExchange = field(default_factory=LocalExchange)

    def __post_init__(self) -> None:
        layout = CacheLayout.derive(self.config, self.length)
        rng = np.random.default_rng(self.seed)
        needed = layout.blocks_for(self.length)
        pages = [self.sequences * blocks + 3 for blocks in needed]
        self.pools = CachePools.zeros(layout, pages)
        for pool in (*self.pools.groups, self.pools.mtp_kv):
            pool.fill_(torch.nan)
        tables = []
        for group in CacheGroup:
            ids = rng.permutation(pages[group])[: self.sequences * needed[group]]
            table = np.full((self.sequences, needed[group] + 2), 10**6)
            table[:, : needed[group]] = ids.reshape(self.sequences, -1)
            tables.append(torch.tensor(table, dtype=torch.int32))
        counts = torch.tensor([needed] * self.sequences, dtype=torch.int32)
        self.tables = BlockTables(tuple(tables), counts)
        self.model = DeepSeekV4(self.config, self.weights, self.exchange)

    @staticmethod
    def rows(parts: Sequence[tuple[int, int, Sequence[int]]]) -> Rows:
        """Rows of (sequence, first position, tokens) parts, in order."""
        tokens = [token for _, _, part in parts for token in part]
        positions = [first + step for _, first, part in parts for step in range(len(part))]
        sequences = [sequence for sequence, _, part in parts for _ in part]
        return Rows(*(torch.tensor(values, dtype=torch.int64) for values in (tokens, positions, sequences)))

    def feed(self, *parts: tuple[int, int, Sequence[int]]) -> Tensor:
        """One call; returns the streams."""
        return self.model.forward(self.rows(parts), self.tables, self.pools)

    def run(self, tokens: Sequence[int], chunk: int, first: int = 0, sequence: int = 0) -> Tensor:
        """Feed tokens from position `first` on, `chunk` rows a call; returns all logits."""
        streams = [
            self.feed((sequence, first + start, tokens[start : start + chunk]))
            for start in range(0, len(tokens), chunk)
        ]
        return self.model.logits(torch.cat(streams))


@pytest.fixture(scope="session")
def weights_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Tensor]]:
    """Weights of a preset, made once."""
    directory: Path = tmp_path_factory.mktemp("checkpoints")
    return lambda name: load_weights(ensure_checkpoint(preset(name), 3, directory))


@pytest.fixture(scope="session")
def paged() -> type[Paged]:
    return Paged


@pytest.fixture(scope="session")
def tokens_of() -> Callable[..., list[int]]:
    """`count` random token ids of a preset's vocabulary."""

    def draw(name: str, count: int, seed: int = 0) -> list[int]:
        return np.random.default_rng(seed).integers(2, preset(name).vocab_size, count).tolist()

    return draw
