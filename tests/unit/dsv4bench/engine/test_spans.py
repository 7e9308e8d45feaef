"""Every span of a run: its name, category, lane and arguments, as docs/formats.md lists them."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from dsv4bench.engine import life
from dsv4bench.engine.engine import Engine, EngineOptions
from dsv4bench.engine.requests import Request
from dsv4bench.model.config import preset
from dsv4bench.tracing.recorder import SpanRecorder
from dsv4bench.worker.program_specs import MTP_PREFILL, PREFILL
from tests.builders.scripted_worker import ScriptedWorker

SCHEDULER, WORKER, EXECUTOR, KERNEL, SERVING = "scheduler", "worker", "executor", "kernel", "serving"
STEP = {"step_id"}
SLOTTED = {"step_id", "buffer_slot"}
DISPATCHED = {"step_id", "slot", "dispatch_id"}
BATCH = {"batch_size"}
RUNNER = "DeepSeekV4ModelRunner"


def decode_spans(program: str) -> dict[str, tuple[str, str, set[str]]]:
    """The spans of every decode step: lane, category and arguments."""
    return {
        "scheduler.schedule": ("engine", SCHEDULER, STEP),
        "scheduler.queue_worker_step": ("engine", SCHEDULER, STEP),
        "scheduler.wait_worker_output": ("engine", SCHEDULER, STEP),
        "scheduler.process_step_output": ("engine", SCHEDULER, STEP),
        "WorkerProcess.prepare_decode": ("prepare", WORKER, SLOTTED),
        "PyptoExecutor.prepare_decode": ("prepare", EXECUTOR, SLOTTED),
        f"{RUNNER}.decode.prepare_early": ("prepare", EXECUTOR, SLOTTED),
        f"{RUNNER}.decode.pack": ("prepare", EXECUTOR, STEP),
        f"{RUNNER}.decode.metadata": ("prepare", EXECUTOR, STEP),
        "WorkerProcess.dispatch_decode": ("device", WORKER, SLOTTED),
        "PyptoExecutor.dispatch_prepared_decode": ("device", EXECUTOR, SLOTTED),
        f"{RUNNER}.decode.l3_dispatch": ("device", EXECUTOR, SLOTTED),
        f"{program}.worker_submit": ("device", KERNEL, DISPATCHED),
        "WorkerProcess.reclaim_decode": ("output", WORKER, STEP),
        "PyptoExecutor.reclaim_prepared_decode": ("output", EXECUTOR, STEP),
        f"{program}.worker_wait": ("output", KERNEL, DISPATCHED),
        f"{RUNNER}.decode.mtp_reclaim": ("output", EXECUTOR, STEP),
    }


def prefill_spans(mtp: int) -> dict[str, tuple[str, str, set[str]]]:
    """The spans of every prefill step."""
    spans = {
        "WorkerProcess.execute_step": ("device", WORKER, BATCH),
        "PyptoExecutor.batch_prefill": ("device", EXECUTOR, BATCH),
        f"{RUNNER}.prefill.mtp_staging": ("device", EXECUTOR, BATCH),
    }
    for program in (PREFILL, MTP_PREFILL) if mtp else (PREFILL,):
        spans[program] = ("device", KERNEL, set())
        spans[f"{program}.worker_run"] = ("device", KERNEL, {"dispatch_id"})
    return spans


OF_A_PREFILL_TOO = {
    name: ("engine", SCHEDULER, {"prefill_id"})
    for name in (
        "scheduler.queue_worker_step",
        "scheduler.wait_worker_output",
        "scheduler.process_step_output",
    )
}

NESTED = (
    ("WorkerProcess.prepare_decode", "PyptoExecutor.prepare_decode", f"{RUNNER}.decode.prepare_early"),
    (f"{RUNNER}.decode.prepare_early", f"{RUNNER}.decode.pack"),
    (f"{RUNNER}.decode.prepare_early", f"{RUNNER}.decode.metadata"),
    (
        "WorkerProcess.dispatch_decode",
        "PyptoExecutor.dispatch_prepared_decode",
        f"{RUNNER}.decode.l3_dispatch",
    ),
    ("WorkerProcess.reclaim_decode", "PyptoExecutor.reclaim_prepared_decode", f"{RUNNER}.decode.mtp_reclaim"),
)
"""From the outermost inwards."""


class Recording:
    """The spans that an engine without ranks wrote while a batch ran, and the dispatches that it made."""

    def __init__(self, directory: Path, mtp: int, level: str = "verbose") -> None:
        recorder = SpanRecorder(directory, [cast(Any, level)], "engine")
        options = EngineOptions(
            preset("test-b"), Path("no checkpoint"), ranks=2, requests_per_rank=1, max_model_len=128, mtp=mtp
        )
        engine = Engine(options, recorder)
        try:
            for index in range(3):
                assert engine.submit(Request(f"r{index}", [5, 6, 7], 5)).wait(30)
            engine.settle()
            self.steps = engine.progress().decode_steps
            self.worker = cast(ScriptedWorker, engine.worker)
        finally:
            engine.close()
            recorder.close()
        text = b"".join(path.read_bytes() for path in (directory / "fragments").iterdir())
        events = [msgspec.json.decode(line) for line in text.splitlines()]
        lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
        self.spans: list[dict[str, Any]] = [
            {**event, "lane": lanes[event["tid"]]} for event in events if event["ph"] == "X"
        ]

    def of_step(self, step_id: int) -> dict[str, dict[str, Any]]:
        """The spans with this step's id, by name; each comes once, but the engine may have waited more than once."""
        found = [span for span in self.spans if span["args"].get("step_id") == step_id]
        counts = Counter(span["name"] for span in found)
        assert {name for name, count in counts.items() if count > 1} <= {"scheduler.wait_worker_output"}
        return {span["name"]: span for span in found}


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(life, "TorchWorker", ScriptedWorker)


def described(span: dict[str, Any]) -> tuple[str, str, set[str]]:
    return span["lane"], span["cat"], set(span["args"])


@pytest.mark.parametrize(
    ("mtp", "program"),
    [(0, "deepseek_v4_decode"), (1, "deepseek_v4_decode_mtp_fused"), (3, "deepseek_v4_mtp_decode")],
)
def test_every_decode_step_has_its_spans_with_their_arguments(tmp_path: Path, mtp: int, program: str) -> None:
    recording = Recording(tmp_path, mtp)
    decodes = recording.worker.decode_steps()
    assert recording.steps == len(decodes) >= 12
    for step_id, dispatch in enumerate(decodes):
        spans = recording.of_step(step_id)
        assert {name: described(span) for name, span in spans.items()} == decode_spans(program)
        for span in spans.values():
            assert span["args"].get("buffer_slot", step_id % 2) == step_id % 2
            assert span["args"].get("slot", step_id % 2) == step_id % 2
            assert span["args"].get("dispatch_id", dispatch.handle.dispatch_id) == dispatch.handle.dispatch_id
        for chain in NESTED:
            for outer, inner in pairwise(chain):
                assert spans[outer]["ts"] <= spans[inner]["ts"]
                assert end(spans[inner]) <= end(spans[outer])


def end(span: dict[str, Any]) -> int:
    return int(span["ts"] + span["dur"])


@pytest.mark.parametrize("mtp", [0, 1])
def test_every_prefill_has_its_spans_and_no_other_span_is_written(tmp_path: Path, mtp: int) -> None:
    recording = Recording(tmp_path, mtp)
    others = [span for span in recording.spans if "step_id" not in span["args"] and span["cat"] != SERVING]
    added = [span["args"] for span in recording.spans if span["name"] == "ReplicaEngineCore.add_request"]
    assert {frozenset(args) for args in added} == {frozenset({"request_id", "max_new_tokens"})}
    expected = {**prefill_spans(mtp), **OF_A_PREFILL_TOO, "scheduler.schedule": ("engine", SCHEDULER, set())}
    for span in others:
        assert described(span) == expected[span["name"]], span["name"]
    counts = Counter(span["name"] for span in others)
    # How often the scheduler looks in vain and the engine waits anew is for the order of events to say.
    loose = {"scheduler.schedule", "scheduler.wait_worker_output"}
    assert all(counts.pop(name) >= 3 for name in loose)
    assert counts == dict.fromkeys(expected.keys() - loose, 3)
    runs = sorted(
        (span["args"]["dispatch_id"], span["name"]) for span in others if span["name"].endswith(".worker_run")
    )
    assert runs == [
        (dispatch.handle.dispatch_id, f"{dispatch.program}.worker_run")
        for dispatch in recording.worker.dispatches
        if not dispatch.decodes
    ]
    prefills = {span["args"]["prefill_id"] for span in others if "prefill_id" in span["args"]}
    assert prefills == {0, 1, 2}


@pytest.mark.parametrize(
    ("level", "absent"),
    [("kernel", {SCHEDULER, WORKER, EXECUTOR, SERVING}), ("e2e", {KERNEL}), ("verbose", set())],
)
def test_a_level_keeps_its_own_spans(tmp_path: Path, level: str, absent: set[str]) -> None:
    categories = {span["cat"] for span in Recording(tmp_path, 1, level).spans}
    assert categories == {SCHEDULER, WORKER, EXECUTOR, KERNEL, SERVING} - absent
    verbose = any(span["name"].startswith(RUNNER) for span in Recording(tmp_path / "again", 1, level).spans)
    assert verbose == (level == "verbose")
