"""What a program's time on a rank consists of: the `clk=dev` records of embedded ranks (docs/engine.md, Device phases)."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter_ns

import torch

from dsv4bench.model.exchange import ExpertExchange

DEVICE_WALL = "chip.run.runner_run.device_wall"


class DevicePhases:
    """Stamps of the program that a rank runs, in ns of CLOCK_MONOTONIC; one program at a time, on one thread."""

    def __init__(self) -> None:
        self._start = self._end = 0
        self._fed: int | None = None
        self._exchanged: int | None = None

    def begin(self) -> None:
        """The program is called."""
        self._fed = self._exchanged = None
        self._start = perf_counter_ns()

    def fed(self) -> None:
        """Its arguments are checked and taken apart; the operators follow."""
        self._fed = perf_counter_ns()

    def exchanged(self) -> None:
        """It has what the other ranks sent it in an exchange; another one may follow."""
        self._exchanged = perf_counter_ns()

    def end(self) -> None:
        """It has returned."""
        self._end = perf_counter_ns()

    def spans(self) -> Iterator[tuple[str, int, int, int]]:
        """(name, start, end, depth) of each phase that was reached, in ns since the program was called."""
        start = self._start
        if self._fed is not None:
            yield f"{DEVICE_WALL}.orch", 0, self._fed - start, 3
            if self._exchanged is not None:
                yield f"{DEVICE_WALL}.sched", self._fed - start, self._exchanged - start, 3
        yield DEVICE_WALL, 0, self._end - start, 2


class StampedExchange:
    """An exchange with other ranks that stamps its ends."""

    def __init__(self, exchange: ExpertExchange, phases: DevicePhases) -> None:
        self.rank, self.ranks = exchange.rank, exchange.ranks
        self._exchange = exchange
        self._phases = phases

    def all_to_all(self, rows: torch.Tensor, counts: list[int]) -> tuple[torch.Tensor, list[int]]:
        """See `model.exchange.ExpertExchange.all_to_all`."""
        received = self._exchange.all_to_all(rows, counts)
        self._phases.exchanged()
        return received
