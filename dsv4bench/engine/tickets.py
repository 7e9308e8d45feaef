"""A ticket: one dispatch in flight, and its spans."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from dsv4bench.tracing.recorder import Recorder
from dsv4bench.worker.protocol import Argument, Handle, Worker


class Ticket:
    """Owns a handle. It has nothing else to give back: all arguments of a dispatch outlive it."""

    def __init__(
        self,
        handle: Handle,
        program: str,
        recorder: Recorder,
        span_args: dict[str, Any],
    ) -> None:
        self._handle = handle
        self._program = program
        self._recorder = recorder
        self._span_args = span_args
        self._lock = threading.Lock()
        self._waited = False
        self._settled = threading.Event()
        self._error: BaseException | None = None

    @classmethod
    def submit(
        cls,
        worker: Worker,
        program: str,
        arguments: Sequence[Argument],
        recorder: Recorder,
        span_args: dict[str, Any],
        *,
        slot_id: int,
        generation: int,
    ) -> Ticket:
        """Submit inside a `<program>.worker_submit` span."""
        with recorder.span(f"{program}.worker_submit", "kernel", level="kernel", **span_args) as span:
            handle = worker.submit(program, arguments, slot_id=slot_id, generation=generation)
            span.args["dispatch_id"] = handle.dispatch_id
        return cls(handle, program, recorder, {**span_args, "dispatch_id": handle.dispatch_id})

    def settle(self) -> None:
        """Return when another thread's `wait` has, whatever the outcome was."""
        self._settled.wait()

    def wait(self) -> None:
        """Wait for the dispatch, inside one `<program>.worker_wait` span; later calls repeat the outcome without one.

        Raises:
            The dispatch's error.
        """
        with self._lock:
            if not self._waited:
                self._waited = True
                try:
                    with self._recorder.span(
                        f"{self._program}.worker_wait", "kernel", level="kernel", **self._span_args
                    ) as span:
                        try:
                            self._handle.result()
                        except BaseException:
                            span.args["failed"] = True
                            raise
                except BaseException as error:  # noqa: BLE001 - kept for every waiter, raised below
                    self._error = error
                self._settled.set()
        if self._error is not None:
            raise self._error
