"""Profile windows: /start_profile opens one, /stop_profile closes it and merges the serving trace."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path

from dsv4bench.serving.bridge import EngineBridge
from dsv4bench.tracing.merge import merge_fragments
from dsv4bench.tracing.recorder import Recorder

_SETTLE_S = 10.0
"""How long a window waits for the last step of requests that have ended."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TracingPlan:
    """What is traced, and when. `output` is where serving spans go; None: the server has no profile windows.

    `strace` says whether there are runtime records: always, in profile windows alone, or never.
    """

    output: Path | None
    strace: bool
    strace_always: bool
    device_phases: bool


class ProfileControl:
    """Opens and closes profile windows of one engine, one at a time."""

    def __init__(self, plan: TracingPlan, recorder: Recorder, bridge: EngineBridge) -> None:
        self._plan = plan
        self._recorder = recorder
        self._bridge = bridge
        self._lock = asyncio.Lock()
        self._open = False
        self._recorded = False
        self._set_strace(plan.strace_always)

    async def start(self) -> None:
        """Open a window; one that is open goes on."""
        async with self._lock:
            if self._open:
                return
            # A step that was submitted before the window and ends in it would be half a step in the trace.
            await self._settle()
            if not self._plan.strace_always:
                self._set_strace(self._plan.strace)
            self._recorder.start()
            self._open = self._recorded = True
            _log.info("profile window opened")

    @property
    def is_open(self) -> bool:
        """Whether a window is open."""
        return self._open

    async def stop(self) -> int | None:
        """Close the window and write the trace of all windows until now; returns its number of events.

        None where there has been no window.
        """
        async with self._lock:
            if not self._recorded:
                return None
            if self._open:
                await self._settle()
                self._recorder.stop()
                self._set_strace(self._plan.strace_always)
                self._open = False
            assert self._plan.output is not None
            merged = await asyncio.to_thread(merge_fragments, self._plan.output)
            _log.info("profile window closed; merged %d events into %s", merged.events, merged.path)
            return merged.events

    def _set_strace(self, on: bool) -> None:
        worker = self._bridge.engine.worker
        worker.tracing = on and self._plan.strace
        worker.device_phases = worker.tracing and self._plan.device_phases

    async def _settle(self) -> None:
        """Let steps come out that run behind the end of the last request, if all requests have ended."""
        if self._bridge.streams or self._bridge.engine.failure is not None:
            return
        try:
            await asyncio.wait_for(asyncio.to_thread(self._bridge.engine.settle), _SETTLE_S)
        except TimeoutError:
            _log.warning(
                "requests came in while a profile window waited for the engine: its edge may cut a step"
            )
