"""What the records of device phases cost a step: batches with and without them in turn on one engine, as ratios.

    python benchmarks/device_phases.py [--pairs 10] [--ranks 4] [--tokens 100]

Both batches of a pair are traced and have the same prompts, in alternating order (ABBA). Processor time is that of the
ranks and of the server that writes their logs; time a step is the median gap between a request's output events.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from itertools import pairwise
from pathlib import Path

from dsv4bench.engine.engine import Engine, EngineOptions
from dsv4bench.engine.requests import Request
from dsv4bench.model.checkpoint import ensure_checkpoint
from dsv4bench.model.config import preset
from dsv4bench.run.launch import cache_directory


def processor_s(pids: list[int]) -> float:
    """User and system time that the processes have used, in s."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def batch(engine: Engine, tokens: int) -> tuple[float, float]:
    """(processor time, median time a step) of one batch of a request a rank, in s."""
    ranks = list(engine.worker.rank_pids.values())
    parent = int(Path(f"/proc/{ranks[0]}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    before = processor_s([*ranks, parent])
    prompts = [[2 + (7 * request + 3 * i) % 1000 for i in range(32)] for request in range(len(ranks))]
    handles = [engine.submit(Request(f"r{i}", prompt, tokens)) for i, prompt in enumerate(prompts)]
    for handle in handles:
        handle.wait()
    engine.settle()
    gaps = [
        after - before for handle in handles for before, after in pairwise(sorted(set(handle.token_times_ns)))
    ]
    return processor_s([*ranks, parent]) - before, statistics.median(gaps) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=100)
    arguments = parser.parse_args()
    config = preset("tiny")
    checkpoint = ensure_checkpoint(config, 0, cache_directory() / "checkpoints", "bigram")
    times: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as directory:
        options = EngineOptions(
            config,
            checkpoint,
            ranks=arguments.ranks,
            rank_logs=tuple(Path(directory) / f"rank-{rank}.log" for rank in range(arguments.ranks)),
            server_log=Path(directory) / "server.log",
        )
        engine = Engine(options)
        try:
            batch(engine, 4)
            for pair in range(arguments.pairs):
                for phases in (False, True) if pair % 2 == 0 else (True, False):
                    engine.worker.device_phases = phases
                    times[phases].append(batch(engine, arguments.tokens))
        finally:
            engine.close()
    for index, name in enumerate(("processor time", "time a step")):
        ratios = sorted(
            with_[index] / without[index] for with_, without in zip(times[True], times[False], strict=True)
        )
        print(
            f"{name}, with device phases / without: median {statistics.median(ratios):.3f}, {ratios[0]:.3f} to "
            f"{ratios[-1]:.3f}"
        )


if __name__ == "__main__":
    main()
