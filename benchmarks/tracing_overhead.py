"""What tracing costs the traced thread: ns a span with the recorder on and off, ns a STRACE record.

Run: `.venv/bin/python benchmarks/tracing_overhead.py`. Prints the best of several rounds, encoding and
writing included, so that the figure is the cost of the code and not of a busy machine.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns

from dsv4bench.tracing import NullRecorder, Recorder, SpanRecorder, StraceEmitter
from dsv4bench.tracing.append import open_append

SPANS = 20_000
ROUNDS = 7


def best_ns_per_call(round_of_calls: Callable[[], None]) -> float:
    durations = []
    for _ in range(ROUNDS):
        start_ns = perf_counter_ns()
        round_of_calls()
        durations.append(perf_counter_ns() - start_ns)
    return min(durations) / SPANS


def spans(recorder: Recorder) -> Callable[[], None]:
    def trace() -> None:
        for step in range(SPANS):
            with recorder.span("decode.l3_dispatch", "executor", level="kernel", step_id=step, slot=step % 2):
                pass

    return trace


def records(emitter: StraceEmitter) -> Callable[[], None]:
    def trace() -> None:
        for step in range(SPANS):
            emitter.record(
                "chip.run.runner_run",
                step,
                100,
                invocation=step,
                hid="00f1e2d3c4b5a697",
                depth=1,
                attributes={"dispatch_id": step, "slot_id": step % 2},
            )

    return trace


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        recorder = SpanRecorder(Path(directory), ["verbose"], "overhead")
        filtered = SpanRecorder(Path(directory), ["e2e"], "overhead")
        emitter = StraceEmitter(open_append(Path(directory) / "strace.log"))
        for label, calls in (
            ("recorder on, flushes included", spans(recorder)),
            ("recorder on, level not kept", spans(filtered)),
            ("recorder off (NullRecorder)", spans(NullRecorder())),
            ("STRACE record", records(emitter)),
            ("STRACE off", records(StraceEmitter(enabled=False))),
        ):
            print(f"{label:32} {best_ns_per_call(calls):8.0f} ns")
        recorder.close()
        filtered.close()


if __name__ == "__main__":
    main()
