"""Programs small enough to know their answers by hand, for tests of the worker alone."""

import os
import signal
import time
from collections.abc import Callable

import torch
from torch import Tensor

from dsv4bench.worker.rank import RankContext


class ToyPrograms:
    def __init__(self, context: RankContext) -> None:
        self.context = context

    def add(self, host_in: Tensor, host_out: Tensor, device: Tensor, increment: int) -> None:
        """host_out[rank] = host_in[rank] + device + increment, and device += increment."""
        rank = self.context.rank
        host_out[rank] = host_in[rank] + device + increment
        device += increment

    def exchange(self, host_out: Tensor, seed: int) -> None:
        """Each rank r sends (r + 1) * (d + 1) rows [r, d, i] to rank d; host_out gets a digest of what came."""
        rank, ranks = self.context.rank, self.context.ranks
        rows = torch.tensor(
            [
                [rank * 1000 + seed, d * 100, i]
                for d in range(ranks)
                for i in range((rank + seed) % 3 * (d + 1))
            ],
            dtype=torch.float32,
        ).reshape(-1, 3)
        counts = [(rank + seed) % 3 * (d + 1) for d in range(ranks)]
        received, received_counts = self.context.exchange.all_to_all(rows, counts)
        expected = [
            [source * 1000 + seed, rank * 100, i]
            for source in range(ranks)
            for i in range((source + seed) % 3 * (rank + 1))
        ]
        same = received.tolist() == expected
        same = same and received_counts == [(source + seed) % 3 * (rank + 1) for source in range(ranks)]
        host_out[rank] += int(same)

    def sleep(self, milliseconds: int) -> None:
        time.sleep(milliseconds / 1e3)

    def hold(self, released: Tensor) -> None:
        """Run until the host sets released[rank]."""
        while not released[self.context.rank]:
            time.sleep(1e-3)

    def stamp(self, host_out: Tensor) -> None:
        """host_out[rank] = when this rank's runner began, in ns of CLOCK_MONOTONIC."""
        host_out[self.context.rank] = time.perf_counter_ns()

    def fail(self, failing_rank: int) -> None:
        if self.context.rank == failing_rank:
            raise ValueError("deliberate failure")
        self.context.exchange.all_to_all(torch.zeros(0, 1), [0] * self.context.ranks)

    def die(self, dying_rank: int, how: int) -> None:
        if self.context.rank == dying_rank:
            if how:
                os.kill(os.getpid(), how)
                signal.pause()
            os._exit(7)
        self.context.exchange.all_to_all(torch.zeros(0, 1), [0] * self.context.ranks)

    def invalid(self) -> Callable[[], None]:
        def validate() -> None:
            raise AssertionError("output out of range")

        return validate


def setup(argument: bytes) -> type[ToyPrograms]:
    assert argument == b"toy"
    return ToyPrograms
