"""A ticket waits once, in one span, and repeats its outcome."""

import threading
from typing import Any

import pytest

from dsv4bench.engine.tickets import Ticket
from dsv4bench.tracing.recorder import NullRecorder
from dsv4bench.worker.handle import DispatchHandle


class FakeWorker:
    def __init__(self, submit_error: Exception | None = None) -> None:
        self.submit_error = submit_error
        self.handle = DispatchHandle(5, "decode")

    def submit(self, program: str, arguments: list[Any], *, slot_id: int, generation: int) -> Any:
        if self.submit_error:
            raise self.submit_error
        return self.handle


class SpanNames(NullRecorder):
    def __init__(self) -> None:
        self.names: list[Any] = []

    def span(self, name: str, category: str, *, level: Any = "e2e", **args: Any) -> Any:
        self.names.append((name, args))
        return super().span(name, category, level=level, **args)


def submit(worker: Any, recorder: Any) -> Any:
    return Ticket.submit(worker, "decode", [], recorder, {"step_id": 9}, slot_id=1, generation=1)


def test_success_waits_in_one_span() -> None:
    worker, recorder = FakeWorker(), SpanNames()
    ticket = submit(worker, recorder)
    worker.handle.complete()
    ticket.wait()
    ticket.wait()
    assert recorder.names == [
        ("decode.worker_submit", {"step_id": 9}),
        ("decode.worker_wait", {"step_id": 9, "dispatch_id": 5}),
    ]


def test_a_failed_dispatch_repeats_its_error_without_another_span() -> None:
    worker, recorder = FakeWorker(), SpanNames()
    ticket = submit(worker, recorder)
    failure = ValueError("rank 3 raised")
    worker.handle.complete(failure)
    for _ in range(3):
        with pytest.raises(ValueError, match="rank 3 raised") as caught:
            ticket.wait()
        assert caught.value is failure
    assert len(recorder.names) == 2


def test_a_failed_submit_raises() -> None:
    with pytest.raises(KeyError, match="no such program"):
        submit(FakeWorker(submit_error=KeyError("no such program")), SpanNames())


@pytest.mark.parametrize("error", [None, ValueError("rank 3 raised")])
def test_settling_lasts_until_the_wait_of_another_thread_is_over_and_repeats_no_error(
    error: Exception | None,
) -> None:
    worker = FakeWorker()
    ticket = submit(worker, SpanNames())
    worker.handle.complete(error)
    settling = threading.Thread(target=ticket.settle)
    settling.start()
    settling.join(0.05)
    assert settling.is_alive()
    if error is None:
        ticket.wait()
    else:
        with pytest.raises(ValueError, match="rank 3 raised"):
            ticket.wait()
    settling.join(5)
    assert not settling.is_alive()
