"""The three lanes of a step (prepare, device, output), each a thread, joined by queues in submission order."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from dsv4bench.engine.runner import DispatchedDecode, ModelRunner, PreparedDecode
from dsv4bench.engine.steps import DecodeStep, Outcome, PrefillOutput, PrefillStep, Step
from dsv4bench.errors import EngineError
from dsv4bench.tracing.recorder import Recorder

Failure = BaseException

# What travels between lanes: a step and how far it got. A failure keeps its step's place in the queue.
_Prepared = tuple[Step, PreparedDecode | Failure | None]
_Dispatched = tuple[Step, DispatchedDecode | PrefillOutput | Failure]


class Lanes:
    """Carries steps from the scheduler to outcomes; `deliver` is called on the output lane, in submission order.

    The first failure fails every step behind it too: a step must not run on the state that a failed one left.
    `serialised` tells whether a fault makes the device lane wait for each dispatch before it submits the next.
    """

    def __init__(
        self,
        runner: ModelRunner,
        recorder: Recorder,
        deliver: Callable[[Outcome], None],
        *,
        serialised: Callable[[], bool] = lambda: False,
    ) -> None:
        self._runner = runner
        self._recorder = recorder
        self._deliver = deliver
        self._serialised = serialised
        self._ahead: DispatchedDecode | None = None
        self._failure: Failure | None = None
        self._commands: queue.SimpleQueue[Step | None] = queue.SimpleQueue()
        self._prepared: queue.SimpleQueue[_Prepared | None] = queue.SimpleQueue()
        self._dispatched: queue.SimpleQueue[_Dispatched | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=target, name=f"{name} lane", daemon=True)
            for name, target in (
                ("prepare", self._prepare_lane),
                ("device", self._device_lane),
                ("output", self._output_lane),
            )
        ]
        for thread in self._threads:
            thread.start()

    def put(self, step: Step) -> None:
        """Queue a step."""
        self._commands.put(step)

    def close(self) -> None:
        """Let the steps on the way come out, then end the threads."""
        self._commands.put(None)
        for thread in self._threads:
            thread.join()

    def _prepare_lane(self) -> None:
        self._recorder.name_thread("prepare")
        while (step := self._commands.get()) is not None:
            if isinstance(step, PrefillStep):
                self._prepared.put((step, None))
                continue
            try:
                self._prepared.put((step, self._runner.prepare_decode(step)))
            except Exception as error:  # noqa: BLE001 - travels to the outcome, in order
                self._prepared.put((step, error))
        self._prepared.put(None)

    def _device_lane(self) -> None:
        self._recorder.name_thread("device")
        while (item := self._prepared.get()) is not None:
            step, prepared = item
            outcome: DispatchedDecode | PrefillOutput | Failure
            if self._failure is not None:
                if isinstance(prepared, PreparedDecode):
                    self._runner.release_unsubmitted(prepared)
                outcome = self._failure
            else:
                try:
                    outcome = self._run(step, prepared)
                except Exception as error:  # noqa: BLE001 - travels to the outcome, in order
                    outcome = self._failure = error
            self._dispatched.put((step, outcome))
        self._dispatched.put(None)

    def _run(self, step: Step, prepared: PreparedDecode | Failure | None) -> DispatchedDecode | PrefillOutput:
        if isinstance(step, PrefillStep):
            return self._runner.execute_prefill(step)
        if isinstance(prepared, PreparedDecode):
            if self._ahead is not None and self._serialised():
                self._ahead.ticket.settle()
            self._ahead = self._runner.dispatch_decode(prepared)
            return self._ahead
        raise prepared or EngineError(f"step {step.step_id} was not prepared: the engine is closing")

    def _output_lane(self) -> None:
        self._recorder.name_thread("output")
        while (item := self._dispatched.get()) is not None:
            step, result = item
            if isinstance(result, DispatchedDecode):
                assert isinstance(step, DecodeStep)
                try:
                    self._deliver(Outcome(step, self._runner.reclaim_decode(result)))
                except Exception as error:  # noqa: BLE001 - delivered as the step's outcome
                    self._failure = self._failure or error
                    self._deliver(Outcome(step, None, error))
            elif isinstance(result, PrefillOutput):
                self._deliver(Outcome(step, result))
            else:
                self._deliver(Outcome(step, None, result))
