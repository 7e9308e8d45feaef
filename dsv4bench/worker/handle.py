"""The outcome of one dispatch, cached for every waiter."""

from __future__ import annotations

import math
import threading


class DispatchHandle:
    """A dispatch in flight. Completed exactly once by the worker; waited for by anyone, any number of times."""

    def __init__(self, dispatch_id: int, program: str) -> None:
        self.dispatch_id = dispatch_id
        self.program = program
        self._completed = threading.Event()
        self._error: BaseException | None = None

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._completed.is_set()

    def complete(self, error: BaseException | None = None) -> None:
        """Record the outcome; later calls change nothing."""
        if not self._completed.is_set():
            self._error = error
            self._completed.set()

    def result(self, timeout: float | None = None) -> None:
        """Wait for the outcome; see `protocol.Handle.result`."""
        if timeout is not None and (not math.isfinite(timeout) or timeout < 0):
            raise ValueError(f"timeout must be a finite number of seconds >= 0, got {timeout!r}")
        if not self._completed.wait(timeout):
            raise TimeoutError(
                f"dispatch {self.dispatch_id} ({self.program}) is still running after {timeout} s"
            )
        if self._error is not None:
            raise self._error

    wait = result
