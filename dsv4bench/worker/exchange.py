"""The expert exchange among rank processes: two implementations of `model.exchange.ExpertExchange`.

Both move rows exactly (no arithmetic), so their results are equal bit for bit.
"""

from __future__ import annotations

from multiprocessing.context import ForkContext
from multiprocessing.synchronize import Semaphore

import numpy as np
import torch
import torch.distributed
from numpy.typing import NDArray
from torch.distributed import Store  # type: ignore[attr-defined]

from dsv4bench.worker.board import Progress


class ProcessBarrier:
    """A barrier among forked processes on semaphores: nobody spins, the last to arrive wakes the others.

    Each rank sleeps on a semaphore of its own, so that a rank that is already at the next barrier cannot take
    the wake-up of one that has not left this one.
    """

    def __init__(self, context: ForkContext, ranks: int, arrivals: NDArray[np.int64]) -> None:
        """`arrivals` is one int64 in memory that all ranks share, 0 at the start."""
        self._mutex: Semaphore = context.Semaphore(1)
        self._wake: list[Semaphore] = [context.Semaphore(0) for _ in range(ranks)]
        self._arrivals = arrivals
        self._ranks = ranks

    def wait(self, rank: int) -> None:
        """Return once every rank has called."""
        self._mutex.acquire()
        self._arrivals[0] += 1
        last = self._arrivals[0] == self._ranks
        if last:
            self._arrivals[0] = 0
        self._mutex.release()
        if not last:
            self._wake[rank].acquire()
            return
        for other, semaphore in enumerate(self._wake):
            if other != rank:
                semaphore.release()


class DispatchGate:
    """Opens for a dispatch when every rank has bound it: one slow bind is not a late start on one rank.

    Binding runs ahead of running: ranks arrive for dispatch N + 1 while N runs, and none waits for another to finish
    N. Arrivals are counted by the parity of the dispatch id, since with two dispatches in flight no rank can bind
    N + 2 before all have bound, and even completed, N.
    """

    def __init__(self, context: ForkContext, ranks: int, arrivals: NDArray[np.int64]) -> None:
        """`arrivals` is int64 [2] in memory that all ranks share, 0 at the start."""
        self._mutex: Semaphore = context.Semaphore(1)
        self._open: list[Semaphore] = [context.Semaphore(0) for _ in range(ranks)]
        self._arrivals = arrivals
        self._ranks = ranks

    def arrive(self, dispatch_id: int) -> None:
        """This rank has bound the dispatch."""
        parity = dispatch_id & 1
        self._mutex.acquire()
        self._arrivals[parity] += 1
        last = self._arrivals[parity] == self._ranks
        if last:
            self._arrivals[parity] = 0
        self._mutex.release()
        if last:
            for semaphore in self._open:
                semaphore.release()

    def wait(self, rank: int) -> None:
        """Return once every rank has bound the next dispatch of `rank`."""
        self._open[rank].acquire()


class SharedMemoryExchange:
    """All-to-all through a region that every rank maps.

    Each rank writes its rows into an area of its own, all meet at a barrier, and each copies what is meant for it.
    Two areas a rank alternate: whoever writes an area again has passed a barrier that all ranks reached only after
    they had read it.

    Layout of the region: for each rank two areas of [counts: int64 x ranks, row width: int64][rows: float32].
    """

    def __init__(
        self,
        rank: int,
        ranks: int,
        region: NDArray[np.uint8],
        barrier: ProcessBarrier,
        progress: NDArray[np.int64],
    ) -> None:
        """`progress` is this rank's line of the board."""
        self.rank = rank
        self.ranks = ranks
        self._barrier = barrier
        self._progress = progress
        header = 8 * (ranks + 1)
        area_bytes = region.nbytes // (2 * ranks) // 64 * 64
        self._headers: list[list[NDArray[np.int64]]] = []
        self._rows: list[list[torch.Tensor]] = []
        for source in range(ranks):
            areas = [region[(2 * source + half) * area_bytes :][:area_bytes] for half in range(2)]
            self._headers.append([area[:header].view(np.int64) for area in areas])
            self._rows.append([torch.from_numpy(area[header:].view(np.float32)) for area in areas])

    def all_to_all(self, rows: torch.Tensor, counts: list[int]) -> tuple[torch.Tensor, list[int]]:
        """See `model.exchange.ExpertExchange.all_to_all`.

        Raises:
            ValueError: the rows do not fit the rank's area of the region.
        """
        half = int(self._progress[Progress.EXCHANGES]) & 1
        self._progress[Progress.EXCHANGES] += 1
        width = rows.shape[1]
        mine = self._rows[self.rank][half]
        if rows.numel() > mine.numel():
            raise ValueError(
                f"exchange: {rows.numel()} floats exceed the area of {mine.numel()} of rank {self.rank}"
            )
        header = self._headers[self.rank][half]
        header[:-1] = counts
        header[-1] = width
        mine[: rows.numel()].copy_(rows.reshape(-1))
        self._barrier.wait(self.rank)

        received: list[torch.Tensor] = []
        received_counts: list[int] = []
        for source in range(self.ranks):
            source_counts = self._headers[source][half]
            count = int(source_counts[self.rank])
            received_counts.append(count)
            if count:
                start = int(source_counts[: self.rank].sum()) * width
                received.append(self._rows[source][half][start : start + count * width].view(count, width))
        return (torch.cat(received) if received else rows.new_empty((0, width))), received_counts


class DistributedExchange:
    """All-to-all over a `torch.distributed` process group (gloo on CPUs; the same calls serve NCCL and HCCL)."""

    def __init__(
        self,
        rank: int,
        ranks: int,
        store: Store,
        progress: NDArray[np.int64],
        backend: str = "gloo",
    ) -> None:
        """`progress` is this rank's line of the board."""
        self.rank = rank
        self.ranks = ranks
        self._progress = progress
        torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=ranks)

    def all_to_all(self, rows: torch.Tensor, counts: list[int]) -> tuple[torch.Tensor, list[int]]:
        """See `model.exchange.ExpertExchange.all_to_all`."""
        self._progress[Progress.EXCHANGES] += 1
        sent = torch.tensor(counts, dtype=torch.int64)
        expected = torch.empty_like(sent)
        torch.distributed.all_to_all_single(expected, sent)
        received_counts: list[int] = expected.tolist()
        received = rows.new_empty((sum(received_counts), rows.shape[1]))
        torch.distributed.all_to_all_single(received, rows.contiguous(), received_counts, counts)
        return received, received_counts
