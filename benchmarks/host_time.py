"""Host time of a decode step by phase, for 1, 8 and 32 requests, with each optimisation switched off in turn.

    python benchmarks/host_time.py [--steps 300] [--ranks 8]

The ranks are real processes whose programs compute nothing, so that the machine's cores are free for the host. Every
variant runs in this one process, interleaved round by round; figures are medians in microseconds, ratios are to the
variant with everything on.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dsv4bench.cache.allocator import pages_for
from dsv4bench.cache.layout import CacheLayout
from dsv4bench.engine.reach import reachable_headroom
from dsv4bench.engine.requests import Request, RequestHandle
from dsv4bench.engine.runner import ModelRunner
from dsv4bench.engine.scheduler import Scheduler
from dsv4bench.engine.steps import DecodeStep, Outcome, PrefillStep
from dsv4bench.model.config import preset
from dsv4bench.tracing.recorder import NullRecorder
from dsv4bench.worker.program_cache import ProgramCache
from dsv4bench.worker.signatures import ProgramSizes
from dsv4bench.worker.torch_worker import TorchWorker, WorkerOptions

PHASES = ("schedule", "prepare", "submit", "reclaim", "process")
ROUNDS = 5
LENGTH = 4000


@dataclass(frozen=True)
class Variant:
    """One way to run: `before_step` is called before each step is prepared, and is not timed."""

    name: str
    keep_encoded_arguments: bool = True
    before_step: Callable[[ModelRunner, int], None] | None = None


def rebuild_tables(runner: ModelRunner, slot: int) -> None:
    runner.slots[slot].buffers.forget()
    runner.slots[slot].forget_rows()


def rebuild_rows(runner: ModelRunner, slot: int) -> None:
    runner.slots[slot].forget_rows()


def rebuild_everything(runner: ModelRunner, slot: int) -> None:
    runner.slots[slot].forget()


VARIANTS = (
    Variant("all on"),
    Variant("rows packed anew", before_step=rebuild_rows),
    Variant("tables built anew", before_step=rebuild_tables),
    Variant("arguments encoded anew", keep_encoded_arguments=False),
    Variant("everything anew", keep_encoded_arguments=False, before_step=rebuild_everything),
)


class Host:
    """The host's side of an engine, driven step by step on one thread."""

    def __init__(self, variant: Variant, ranks: int, requests: int) -> None:
        config = preset("test-b")
        rows = max(1, -(-requests // ranks))
        self.variant = variant
        layout = CacheLayout.derive(config, LENGTH + reachable_headroom(1))
        pages = pages_for(layout, rows)
        sizes = ProgramSizes(ranks, rows, 1, layout.max_model_len, 1024, pages)
        self.worker = TorchWorker(
            WorkerOptions(
                ranks=ranks,
                setup="host_time_programs:setup",
                setup_argument=b"",
                programs=ProgramCache(None).programs(config, sizes),
                host_bytes=64 << 20,
                device_bytes=256 << 20,
                keep_encoded_arguments=variant.keep_encoded_arguments,
                server_log=Path(os.devnull),
            )
        )
        self.worker.tracing = False
        self.runner = ModelRunner(
            self.worker,
            config,
            layout,
            NullRecorder(),
            requests_per_rank=rows,
            pages=pages,
            prefill_tokens=1024,
            speculative_tokens=1,
        )
        self.scheduler = Scheduler(layout, ranks, rows, 1024, 1, config.eos_token_id, pages)
        for index in range(requests):
            request = Request(f"r{index}", list(range(2, 66)), LENGTH - 64)
            self.scheduler.add(RequestHandle(request, 0))
        step = self.scheduler.schedule()
        while isinstance(step, PrefillStep):
            self.scheduler.process(Outcome(step, self.runner.execute_prefill(step)), 0)
            step = self.scheduler.schedule()
        assert isinstance(step, DecodeStep)
        self._run(step)

    def step(self) -> dict[str, int]:
        """Run one step; host time by phase, in ns."""
        started = time.perf_counter_ns()
        step = self.scheduler.schedule()
        scheduled = time.perf_counter_ns()
        assert isinstance(step, DecodeStep)
        if self.variant.before_step is not None:
            self.variant.before_step(self.runner, step.slot)
        return {"schedule": scheduled - started, **self._run(step)}

    def _run(self, step: DecodeStep) -> dict[str, int]:
        clock = time.perf_counter_ns
        started = clock()
        prepared = self.runner.prepare_decode(step)
        ready = clock()
        assert prepared is not None
        dispatched = self.runner.dispatch_decode(prepared)
        submitted = clock()
        dispatched.ticket.wait()
        waited = clock()
        output = self.runner.reclaim_decode(dispatched)
        reclaimed = clock()
        self.scheduler.process(Outcome(step, output), 0)
        return {
            "prepare": ready - started,
            "submit": submitted - ready,
            "reclaim": reclaimed - waited,
            "process": clock() - reclaimed,
        }


def measure(ranks: int, requests: int, steps: int) -> None:
    hosts = [Host(variant, ranks, requests) for variant in VARIANTS]
    samples: dict[str, dict[str, list[int]]] = {
        variant.name: {phase: [] for phase in PHASES} for variant in VARIANTS
    }
    try:
        for _ in range(ROUNDS):
            for host in hosts:
                for _ in range(steps // ROUNDS):
                    for phase, nanoseconds in host.step().items():
                        samples[host.variant.name][phase].append(nanoseconds)
    finally:
        for host in hosts:
            host.worker.close()
    print(f"\n{requests} requests on {ranks} ranks, {steps} steps each, median us a step")
    print(
        f"{'variant':<26}"
        + "".join(f"{phase:>10}" for phase in PHASES)
        + f"{'sum':>10}{'prepare':>10}{'submit':>9}"
    )
    medians = {
        name: {phase: statistics.median(values) / 1e3 for phase, values in phases.items()}
        for name, phases in samples.items()
    }
    base = medians[VARIANTS[0].name]
    for name, phases in medians.items():
        ratios = f"{phases['prepare'] / base['prepare']:>9.1f}x{phases['submit'] / base['submit']:>8.1f}x"
        print(
            f"{name:<26}"
            + "".join(f"{phases[phase]:>10.1f}" for phase in PHASES)
            + f"{sum(phases.values()):>10.1f}{ratios}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--ranks", type=int, default=8)
    arguments = parser.parse_args()
    here = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    for requests in (1, 8, 32):
        measure(arguments.ranks, requests, arguments.steps)


if __name__ == "__main__":
    main()
