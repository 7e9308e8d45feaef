"""Does depth two pay? Interleaved runs at depth one and two on the same machine, compared as ratios.

    python benchmarks/depth.py [--pairs 6] [--ranks 4] [--tokens 150]

Each pair runs both depths, in alternating order (ABBA), so that a drift of the machine hits both alike. Step time is
the median gap between output events of a request; throughput is that of the full-batch window (last request's first
token to first request's last), so that prefill and the drain at the end do not blur it.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from itertools import pairwise
from pathlib import Path

from dsv4bench.engine.engine import Engine, EngineOptions
from dsv4bench.engine.requests import Request
from dsv4bench.model.checkpoint import ensure_checkpoint
from dsv4bench.model.config import preset
from dsv4bench.run.launch import cache_directory


def step_time_ms(options: EngineOptions, tokens: int) -> tuple[float, float]:
    """(median step time in ms, tokens per second in the full-batch window) of one run."""
    engine = Engine(options)
    engine.worker.tracing = False
    try:
        batch = options.ranks * options.requests_per_rank
        prompts = [[2 + (7 * request + 3 * i) % 1000 for i in range(32)] for request in range(batch)]
        for warm_up in (4, tokens):
            handles = [engine.submit(Request(f"r{i}", prompt, warm_up)) for i, prompt in enumerate(prompts)]
            for handle in handles:
                handle.wait()
    finally:
        engine.close()
    events = [sorted(set(handle.token_times_ns)) for handle in handles]
    gaps = [after - before for times in events for before, after in pairwise(times)]
    begin, end = max(times[0] for times in events), min(times[-1] for times in events)
    inside = sum(begin < arrival <= end for handle in handles for arrival in handle.token_times_ns)
    return statistics.median(gaps) / 1e6, inside / ((end - begin) / 1e9)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--requests-per-rank", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=150)
    arguments = parser.parse_args()
    config = preset("tiny")
    checkpoint = ensure_checkpoint(config, 0, cache_directory() / "checkpoints", "bigram")
    times: dict[int, list[float]] = {1: [], 2: []}
    rates: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as directory:
        for pair in range(arguments.pairs):
            for depth in (1, 2) if pair % 2 == 0 else (2, 1):
                options = EngineOptions(
                    config,
                    checkpoint,
                    ranks=arguments.ranks,
                    requests_per_rank=arguments.requests_per_rank,
                    depth=depth,
                    server_log=Path(directory) / "server.log",
                )
                time_ms, rate = step_time_ms(options, arguments.tokens)
                times[depth].append(time_ms)
                rates[depth].append(rate)
            print(
                f"pair {pair + 1}: depth 1 {times[1][-1]:.2f} ms {rates[1][-1]:.1f} tokens/s, "
                f"depth 2 {times[2][-1]:.2f} ms {rates[2][-1]:.1f} tokens/s",
                flush=True,
            )
    for name, values in (("step time, depth 1 / depth 2", times), ("throughput, depth 2 / depth 1", rates)):
        first, second = (1, 2) if values is times else (2, 1)
        ratios = sorted(a / b for a, b in zip(values[first], values[second], strict=True))
        above = sum(ratio > 1 for ratio in ratios)
        print(
            f"{name}: median {statistics.median(ratios):.3f}, {ratios[0]:.3f} to {ratios[-1]:.3f}, "
            f"above 1 in {above} of {len(ratios)}"
        )


if __name__ == "__main__":
    main()
