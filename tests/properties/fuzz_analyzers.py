"""Fuzz every reader of the analyzers with damaged inputs, as many as asked for.

    .venv/bin/python tests/properties/fuzz_analyzers.py --count 100000 --seed 1

Each input is read in process; every tenth is analysed and rendered as well. A run stops at the first input that
raises anything but `AnalyzerError`, takes longer than ten seconds, or damages a trace without a word in the load
report; it prints the seed and keeps the input.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
import zlib
from collections import Counter
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent))

from mutations import mutate

from analyzers.analysis import analyze_recording, judge
from analyzers.errors import AnalyzerError
from analyzers.readers.recording import Recording, load_recording
from analyzers.report.json import render_json

CASES = Path(__file__).parents[1] / "cases" / "data"
LONGEST_S = 10
_SUFFIXES = (".json", ".jsonl", ".log", ".prom")

_REQUEST = (
    b'{"request_id":"r","rank":0,"prompt_token_ids":[1],"output_token_ids":[5,6,7],"send_ns":10,'
    b'"token_times_ns":[20,30,30],"finish_reason":"length","accepted":1,"proposed":1,"steps":1}\n'
)
_EVENT = b'{"name":"d.worker_%s","cat":"kernel","ph":"X","ts":%d,"dur":2,"pid":1,"tid":1,"args":{"dispatch_id":%d}}'


def seeds() -> list[tuple[str, bytes]]:
    """(suffix, content) of every valid input that is damaged."""
    found = [(".jsonl", _REQUEST * 2)]
    events = [
        _EVENT % (role, 10 * n + after, n) for n in range(4) for role, after in ((b"submit", 0), (b"wait", 4))
    ]
    found += [
        (".jsonl", b"\n".join(events) + b"\n"),
        (".json", b'{"baseTimeNanoseconds":5,"traceEvents":[\n' + b",\n".join(events) + b"\n]}\n"),
        (".json", b"[\n  " + b",\n  ".join(events) + b"\n]"),
    ]
    for path in sorted(CASES.glob("*/*")):
        if path.is_file() and path.suffix in _SUFFIXES and path.stat().st_size < 4_000:
            found.append((path.suffix, path.read_bytes()))
    log = (CASES / "traces" / "simpler-l3_multi_chip_dispatch.log").read_bytes()
    found.append((".log", log[:3_000]))
    return found


def is_silent(recording: Recording) -> bool:
    """Whether every reader says that nothing was wrong."""
    return not any(report.issues for report in recording.reports)


def is_sound_json(content: bytes) -> bool:
    """Whether Python reads `content` as JSON values, one after the other.

    Raises:
        ValueError: it does not.
    """
    if content.startswith(b"\x1f\x8b"):
        content = _unpacked(content)
    text = content.decode("utf-8-sig").strip()
    position = 0
    while position < len(text):
        _, position = json.JSONDecoder().raw_decode(text, position)
        position += len(text[position:]) - len(text[position:].lstrip())
    return True


def _unpacked(content: bytes) -> bytes:
    unpacked = b""
    while content:
        stream = zlib.decompressobj(wbits=31)
        unpacked += stream.decompress(content)
        if not stream.eof:
            raise ValueError("truncated gzip")
        content = stream.unused_data.lstrip(b"\0")
    return unpacked


def check(path: Path, content: bytes, *, whole: bool) -> str:
    """Read one input; the outcome in a word.

    Raises:
        Exception: whatever a user must never see.
    """
    path.write_bytes(content)
    try:
        recording = load_recording([path])
    except AnalyzerError:
        return "refused"
    if recording.reports and recording.reports[0].format == "chrome_trace" and is_silent(recording):
        assert is_sound_json(content)
    if whole:
        report = analyze_recording(recording)
        assert judge(report, strict=True).exit_code in (0, 1, 3, 4)
        render_json(report).encode()
        return "analysed"
    return "read"


def fuzz(count: int, seed: int) -> Counter[str]:
    """Check `count` damaged inputs; how many had which outcome."""
    inputs = seeds()
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(count):
            random = Random(f"{seed}:{number}")
            suffix, content = random.choice(inputs)
            damaged = mutate(content, random)
            path = Path(scratch) / f"damaged{suffix}"
            signal.alarm(LONGEST_S)
            try:
                outcomes[check(path, damaged, whole=number % 10 == 0)] += 1
            except BaseException:
                kept = Path(tempfile.gettempdir()) / f"fuzz-{seed}-{number}{suffix}"
                kept.write_bytes(damaged)
                print(f"seed {seed}, input {number}: kept as {kept}", file=sys.stderr)
                raise
            finally:
                signal.alarm(0)
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    started = time.perf_counter()
    outcomes = fuzz(options.count, options.seed)
    words = ", ".join(f"{outcome} {number}" for outcome, number in sorted(outcomes.items()))
    print(f"{options.count} inputs in {time.perf_counter() - started:.0f} s: {words}; nothing found")


if __name__ == "__main__":
    main()
