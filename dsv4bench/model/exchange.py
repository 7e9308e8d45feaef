"""How MoE layers move token rows between expert-parallel ranks."""

from typing import Protocol

import torch


class ExpertExchange(Protocol):
    """An all-to-all among `ranks` peers, of which this one is `rank`.

    Every rank joins every exchange: twice per MoE layer (dispatch, return), also with no rows of its own.
    """

    rank: int
    ranks: int

    def all_to_all(self, rows: torch.Tensor, counts: list[int]) -> tuple[torch.Tensor, list[int]]:
        """Send `counts[r]` rows to each rank r and receive theirs.

        `rows` is float32 [N, W], grouped by destination rank, with sum(counts) = N. Returns the rows
        received, float32 [M, W] grouped by source rank, and how many came from each rank (sum M).
        """
        ...


class LocalExchange:
    """The exchange of a single rank: what it sends is what it receives."""

    rank = 0
    ranks = 1

    def all_to_all(self, rows: torch.Tensor, counts: list[int]) -> tuple[torch.Tensor, list[int]]:
        """Return the input; see ExpertExchange."""
        return rows, counts
