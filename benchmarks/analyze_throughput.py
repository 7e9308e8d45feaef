"""How fast and in how much memory `dsv4bench analyze` reads large traces, against `orjson.loads` and against HTA.

    python -m benchmarks.analyze_throughput [--sizes 100000 300000 600000 1200000] [--repeat 3] [--keep DIR]
                                            [--hta-python PATH] [--rank-events 200000] [--ranks 2]

First `orjson.loads` of the same file. The trace has one event a line, each with arguments: the serving profiler's spans
of a step, the submits and waits that are to be paired, and operators of a foreign profiler.

Then, where `--hta-python` names an interpreter that has it, HolisticTraceAnalysis, on traces of one rank each that both
read (`benchmarks.kineto_traces`). Give HTA an environment of its own, it brings pandas and Jupyter:

    python -m venv /tmp/hta && /tmp/hta/bin/pip install HolisticTraceAnalysis

Both load every rank. HTA then breaks each rank's time down into idle, compute and other, and the time on the device by
kernel; `analyze` reports how busy each thread and stream of a rank was, every name's times, and how far apart the ranks
start each.

All sides run as processes of their own, in turn; wall time is the best of the repeats, memory is the peak resident size
that wait4 reports, of the largest process where there are several: HTA reads the ranks in as many processes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.kineto_traces import write_rank_traces

BYTES_AN_EVENT = 188
"""226 MB / 1.2 million."""

_CALLABLE = "deepseek_v4_decode_mtp_fused"
_SERVING = (
    ("scheduler.schedule", "scheduler", 11),
    ("WorkerProcess.prepare_decode", "worker", 12),
    ("PyptoExecutor.prepare_decode", "executor", 12),
    (f"{_CALLABLE}.worker_submit", "kernel", 13),
    (f"{_CALLABLE}.worker_wait", "kernel", 14),
    ("WorkerProcess.reclaim_decode", "worker", 14),
)
_OPERATORS = 9
_STEP_US = 60_000

_LOADS = "import sys, orjson; orjson.loads(open(sys.argv[1], 'rb').read())"
_ANALYZE = ("-m", "dsv4bench", "analyze")
_HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
if __name__ == "__main__":
    analysis = TraceAnalysis(trace_dir=sys.argv[1], include_last_profiler_step=True)
    print(analysis.get_temporal_breakdown(visualize=False))
    print(*analysis.get_gpu_kernel_breakdown(visualize=False))
"""


@dataclass(frozen=True)
class Cost:
    """What one process cost."""

    wall_s: float
    peak_bytes: int


def events(count: int) -> Iterator[str]:
    """`count` events of one line each, in the order of their ends, as profilers write them."""
    per_step = len(_SERVING) + _OPERATORS
    for number in range(count):
        step, part = divmod(number, per_step)
        start = 10_000_000 + step * _STEP_US
        if part < len(_SERVING):
            name, category, tid = _SERVING[part]
            pid, at, duration = 4000, start + 7_000 * part, 5_000
            ids = f'"step_id":{step},"slot":{step % 2},"dispatch_id":{step + 1}'
        else:
            operator = part - len(_SERVING)
            name, category, tid = f"aten::operator_{(number * 7) % 50}", "cpu_op", 20 + operator
            pid, at, duration = 5000, start + 6_000 * operator, 10 + number % 500
            ids = f'"External id":{number},"Input Dims":[[32,4096],[4096,7168]]'
        line = (
            f'{{"ph":"X","name":"{name}","cat":"{category}","pid":{pid},"tid":{tid},"ts":{at},"dur":{duration},'
            f'"args":{{{ids}'
        )
        padding = BYTES_AN_EVENT - len(line) - len(',"note":""}},\n')
        yield f'{line},"note":"{"x" * max(0, padding)}"}}}}'


def write_trace(path: Path, count: int) -> None:
    """Write a trace of `count` events to `path`."""
    with path.open("w") as file:
        file.write('{"displayTimeUnit":"ms","traceEvents":[\n')
        for number, line in enumerate(events(count)):
            file.write((",\n" if number else "") + line)
        file.write("\n]}\n")


def measure(command: Sequence[str]) -> Cost:
    """Run `command`; its output is thrown away.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.stderr.buffer.write(said)
        raise subprocess.CalledProcessError(process.returncode, command)
    return Cost(wall, usage.ru_maxrss * 1024)


def best(command: Sequence[str], repeat: int) -> Cost:
    """The least wall time and the largest peak of `repeat` runs."""
    costs = [measure(command) for _ in range(repeat)]
    return Cost(min(cost.wall_s for cost in costs), max(cost.peak_bytes for cost in costs))


def compare_with_loads(sizes: Sequence[int], directory: Path, repeat: int, *, keep: bool) -> None:
    """Print a line a size, and how the cost of an event grows from the smallest to the largest."""
    print("events     file MB  analyze s  orjson s  ratio  us/event  analyze MB  orjson MB")
    per_event = []
    for size in sorted(sizes):
        path = directory / f"trace-{size}.json"
        write_trace(path, size)
        loads = best([sys.executable, "-c", _LOADS, str(path)], repeat)
        ours = best([sys.executable, *_ANALYZE, str(path)], repeat)
        per_event.append(ours.wall_s / size)
        print(
            f"{size:<9}  {path.stat().st_size / 1e6:7.1f}  {ours.wall_s:9.2f}  {loads.wall_s:8.2f}  "
            f"{ours.wall_s / loads.wall_s:5.2f}  {1e6 * per_event[-1]:8.2f}  "
            f"{ours.peak_bytes / 1e6:10.0f}  {loads.peak_bytes / 1e6:9.0f}",
            flush=True,
        )
        if not keep:
            path.unlink()
    print(f"cost per event, largest to smallest trace: {per_event[-1] / per_event[0]:.2f}")


def compare_with_hta(python: Path, directory: Path, events: int, ranks: int, repeat: int) -> None:
    """Print what loading and summing up a directory of rank traces costs either tool."""
    paths = write_rank_traces(directory, events, ranks)
    script = directory.with_suffix(".py")
    script.write_text(_HTA)
    hta = best([str(python), str(script), str(directory)], repeat)
    ours = best([sys.executable, *_ANALYZE, *map(str, paths)], repeat)
    size = sum(path.stat().st_size for path in paths) / 1e6
    print(f"\n{ranks} ranks of {events} events, {size:.1f} MB")
    print("tool                     wall s  peak MB")
    print(f"dsv4bench analyze        {ours.wall_s:6.2f}  {ours.peak_bytes / 1e6:7.0f}")
    print(f"HolisticTraceAnalysis    {hta.wall_s:6.2f}  {hta.peak_bytes / 1e6:7.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="*", default=[100_000, 300_000, 600_000, 1_200_000])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="write the traces to this directory and keep them")
    parser.add_argument("--hta-python", type=Path, help="interpreter that has HolisticTraceAnalysis")
    parser.add_argument("--rank-events", type=int, default=200_000)
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory = options.keep or Path(scratch)
        directory.mkdir(parents=True, exist_ok=True)
        if options.sizes:
            compare_with_loads(options.sizes, directory, options.repeat, keep=options.keep is not None)
        if options.hta_python is not None:
            ranks = directory / "ranks"
            compare_with_hta(options.hta_python, ranks, options.rank_events, options.ranks, options.repeat)


if __name__ == "__main__":
    main()
