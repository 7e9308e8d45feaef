"""Experts shared by ranks give what one rank gives."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from dsv4bench.errors import UsageError
from dsv4bench.model.config import preset
from dsv4bench.model.model import DeepSeekV4
from tests.oracle.conftest import Paged


class Switchboard:
    """Where the threads of one group leave rows for each other."""

    def __init__(self, ranks: int) -> None:
        self.barrier = threading.Barrier(ranks, timeout=30)
        self.sent: list[tuple[Tensor, ...]] = [()] * ranks


class ThreadExchange:
    def __init__(self, board: Switchboard, rank: int) -> None:
        self.board, self.rank, self.ranks, self.calls = board, rank, len(board.sent), 0

    def all_to_all(self, rows: Tensor, counts: list[int]) -> tuple[Tensor, list[int]]:
        assert sum(counts) == len(rows)
        self.calls += 1
        self.board.sent[self.rank] = rows.split(counts)
        self.board.barrier.wait()
        received = [parts[self.rank] for parts in self.board.sent]
        self.board.barrier.wait()
        return torch.cat(received), [len(part) for part in received]


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_sharded_experts_equal_one_rank(
    ranks: int,
    weights_of: Callable[[str], dict[str, Tensor]],
    tokens_of: Callable[..., list[int]],
    paged: type[Paged],
) -> None:
    """Each rank prefills and decodes its own text; odd ranks have fewer rows, the last one none at all."""
    config, weights = preset("test-b"), weights_of("test-b")
    board = Switchboard(ranks)
    texts = [tokens_of("test-b", 40, seed=rank) for rank in range(ranks - 1)] + [[]]
    calls = [slice(0, 37), slice(37, 38), slice(38, 40)]

    def run(model: Paged, text: list[int]) -> tuple[Tensor, Tensor]:
        streams, drafts = [], []
        for call in calls:
            rows = model.rows([(0, call.start, text[call])])
            streams.append(model.model.forward(rows, model.tables, model.pools))
            drafts.append(model.model.mtp(rows.token_ids, rows, streams[-1], model.tables, model.pools))
        return torch.cat(streams), torch.cat(drafts)

    def rank_main(rank: int) -> tuple[tuple[Tensor, Tensor], int]:
        exchange = ThreadExchange(board, rank)
        return run(paged(config, weights, length=64, exchange=exchange), texts[rank]), exchange.calls

    with ThreadPoolExecutor(ranks) as pool:
        results = list(pool.map(rank_main, range(ranks)))
    for text, (got, exchanges) in zip(texts, results, strict=True):
        # Dispatch and return, in six layers and the MTP layer.
        assert exchanges == 2 * 7 * len(calls)
        want = run(paged(config, weights, length=64), text)
        assert torch.equal(got[0], want[0])
        assert torch.equal(got[1], want[1])


def test_ranks_that_cannot_share_equally_are_refused(weights_of: Callable[[str], dict[str, Tensor]]) -> None:
    with pytest.raises(UsageError, match=r"16 routed experts .* 3 ranks; .* work: 1, 2, 4, 8, 16\."):
        DeepSeekV4(preset("test-b"), weights_of("test-b"), ThreadExchange(Switchboard(3), 0))
