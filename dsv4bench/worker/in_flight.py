"""The dispatches that were submitted and that not every rank has completed (docs/engine.md, The device boundary)."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from dsv4bench.worker.handle import DispatchHandle

MAX_IN_FLIGHT = 2


@dataclass
class InFlight:
    """One dispatch on its way."""

    handle: DispatchHandle
    trace: bool
    slot_id: int
    generation: int
    completed: set[int] = field(default_factory=set)
    """The ranks that are through with it."""
    head_since: float = math.inf
    """Since when it is the oldest, in seconds of `time.monotonic`."""


class InFlightTable:
    """At most two dispatches of `ranks` ranks, oldest first, and the failure that ended the worker. Thread-safe.

    `when_drained` is called once the worker has failed and the last dispatch before the failed one is out.
    """

    def __init__(self, ranks: int, when_drained: Callable[[], None]) -> None:
        self.error: BaseException | None = None
        """The first failure: what every dispatch from the failed one on gets, and every later one."""
        self._ranks = ranks
        self._when_drained = when_drained
        self._changed = threading.Condition()
        self._entries: dict[int, InFlight] = {}
        self._next_dispatch = 1

    def enter(self, program: str, *, trace: bool, slot_id: int, generation: int) -> InFlight:
        """A new dispatch; waits while two are in flight.

        Raises:
            RankError, EngineError: the worker has failed.
        """
        with self._changed:
            self._changed.wait_for(lambda: len(self._entries) < MAX_IN_FLIGHT or self.error is not None)
            self._raise_error()
            entry = InFlight(DispatchHandle(self._next_dispatch, program), trace, slot_id, generation)
            if not self._entries:
                entry.head_since = time.monotonic()
            self._entries[self._next_dispatch] = entry
            self._next_dispatch += 1
            return entry

    def drain(self) -> None:
        """Wait until none is in flight."""
        with self._changed:
            self._changed.wait_for(lambda: not self._entries)

    def drain_whole(self) -> None:
        """Wait until none is in flight.

        Raises:
            RankError, EngineError: the worker has failed.
        """
        self.drain()
        self._raise_error()

    def complete(self, rank: int, dispatch_id: int) -> InFlight | None:
        """A rank is through with a dispatch; None when that is in flight no longer. The last rank's completes it."""
        entry = self._entries.get(dispatch_id)
        if entry is None:
            return None
        entry.completed.add(rank)
        if self.is_complete(entry):
            with self._changed:
                del self._entries[dispatch_id]
                if (oldest := self.oldest()) is not None:
                    oldest.head_since = time.monotonic()
                drained = self.error is not None and not self._entries
                self._changed.notify_all()
            entry.handle.complete()
            if drained:
                self._when_drained()
        return entry

    def is_complete(self, entry: InFlight) -> bool:
        """Whether every rank is through with it."""
        return len(entry.completed) == self._ranks

    def fail(self, error: BaseException, first: int = 0) -> None:
        """Fail every dispatch from id `first` on, those to come included; the first error is what all of them get.

        Dispatches before it are on their way out.
        """
        with self._changed:
            self.error = self.error or error
            failed = [entry for dispatch_id, entry in self._entries.items() if dispatch_id >= first]
            for entry in failed:
                del self._entries[entry.handle.dispatch_id]
            drained = not self._entries
            self._changed.notify_all()
        for entry in failed:
            entry.handle.complete(self.error)
        if drained:
            self._when_drained()

    def oldest(self) -> InFlight | None:
        """The dispatch that is to complete next."""
        return next(iter(self._entries.values()), None)

    def program_of(self, dispatch_id: int) -> str:
        """The program of a dispatch in flight, for people."""
        entry = self._entries.get(dispatch_id)
        return entry.handle.program if entry else "unknown program"

    def first_incomplete(self, rank: int) -> int:
        """The first dispatch that a rank has not completed, in flight or to come."""
        pending = [number for number, entry in self._entries.items() if rank not in entry.completed]
        return min(pending, default=self._next_dispatch)

    def _raise_error(self) -> None:
        if self.error is not None:
            raise self.error
