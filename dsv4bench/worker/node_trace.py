"""The engine's own STRACE records of a dispatch: `node.*` spans, written to the server log beside the ranks' records."""

from __future__ import annotations

import os
import time

from dsv4bench.tracing.strace import StraceEmitter


class NodeTrace:
    """Writes one record a scheduling phase; `fd` None writes nothing. Times are perf_counter ns.

    `node.*` records carry no invocation of their own (docs/formats.md, Runtime records): `inv` repeats the run id, as
    upstream's records do, and readers must not group by it.
    """

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        self._strace = StraceEmitter(fd if fd is not None else 2, enabled=fd is not None)
        self._strace.clock_anchor()

    def graph_build(self, start: int, end: int, run_id: int) -> None:
        """The arguments of a dispatch were encoded for every rank."""
        self._record("graph_build", start, end, run_id, "0", {"run_id": run_id, "role": "facade"})

    def submit(self, start: int, run_id: int, hid: str) -> None:
        """The dispatch was handed to every rank, the wait for a free frame included."""
        self._record(
            "submit", start, time.perf_counter_ns(), run_id, hid, {"run_id": run_id, "role": "facade"}
        )

    def frame_submit(self, start: int, run_id: int, rank: int, slot_id: int, generation: int) -> None:
        """One rank's frame was sent."""
        self._rank_record("frame_submit", start, run_id, rank, slot_id, generation, "worker")

    def complete(self, start: int, run_id: int, rank: int, slot_id: int, generation: int) -> None:
        """One rank's completion was taken in."""
        self._rank_record("complete", start, run_id, rank, slot_id, generation, "worker")

    def retirement(self, start: int, run_id: int, slot_id: int, generation: int) -> None:
        """The last rank had completed; the waiters were woken."""
        self._dispatch_record("post_fence_retirement", start, run_id, slot_id, generation, "facade")

    def close(self) -> None:
        """Close the log."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
            self._strace.enabled = False

    def _dispatch_record(
        self, span: str, start: int, run_id: int, slot_id: int, generation: int, role: str
    ) -> None:
        attributes: dict[str, int | str] = {
            "run_id": run_id,
            "dispatch_id": run_id,
            "slot_id": slot_id,
            "generation": generation,
            "role": role,
        }
        self._record(span, start, time.perf_counter_ns(), run_id, "0", attributes)

    def _rank_record(
        self, span: str, start: int, run_id: int, rank: int, slot_id: int, generation: int, role: str
    ) -> None:
        attributes: dict[str, int | str] = {
            "run_id": run_id,
            "worker_id": rank,
            "dispatch_id": run_id,
            "slot_id": slot_id,
            "generation": generation,
            "role": role,
        }
        self._record(span, start, time.perf_counter_ns(), run_id, "0", attributes)

    def _record(
        self, span: str, start: int, end: int, run_id: int, hid: str, attributes: dict[str, int | str]
    ) -> None:
        self._strace.record(
            f"node.{span}", start, end - start, invocation=run_id, hid=hid, depth=0, attributes=attributes
        )
