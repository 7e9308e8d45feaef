"""The board: a few shared words that tell how far each rank has come, and that the barriers count in.

Ranks write, the engine reads: when a dispatch does not complete, the board says which rank the others wait for.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

_LINE = 64  # one cache line: no two ranks write the same one


class Progress(IntEnum):
    """Words of a rank's line."""

    BOUND = 0
    """Dispatches bound."""
    COMPLETED = 1
    """Dispatches completed."""
    EXCHANGES = 2
    """Expert exchanges entered."""


class Board:
    """A view of the first `Board.size(ranks)` bytes of a region that the engine and all ranks map."""

    def __init__(self, region: NDArray[np.uint8], ranks: int) -> None:
        words = region[: self.size(ranks)].view(np.int64).reshape(-1, _LINE // 8)
        self.gate_arrivals = words[0, :2]
        """int64 [2]: ranks that have bound the next dispatch, by the parity of its id."""
        self.exchange_arrivals = words[1, :1]
        """int64 [1]: ranks that wait for the others in an exchange."""
        self.progress = words[2:]
        """int64 [ranks, 8], see `Progress`."""

    @staticmethod
    def size(ranks: int) -> int:
        """Bytes of the board."""
        return _LINE * (2 + ranks)

    def furthest_behind(self, candidates: set[int]) -> list[int]:
        """Of the ranks that have not completed, those that the others wait for.

        A rank that has not bound holds all others at the gate; then the one that entered the fewest exchanges holds
        the others there.
        """
        order = {
            rank: (int(self.progress[rank, Progress.BOUND]), int(self.progress[rank, Progress.EXCHANGES]))
            for rank in candidates
        }
        last = min(order.values())
        return sorted(rank for rank, position in order.items() if position == last)
