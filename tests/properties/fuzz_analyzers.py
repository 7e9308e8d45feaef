"""Fuzz every reader of the analyzers with damaged inputs, as many as asked for.

    .venv/bin/python -m tests.properties.fuzz_analyzers --count 100000 --seed 1

Inputs are the cases, pieces of the captures, and a recorded run: its files one by one, and the whole directory with
one of its files damaged. Each is read in process; every tenth is analysed, rendered and drawn as well, and every tenth is
read once more in pieces of a few bytes, which must make no difference. The gate judges every damaged samples file
against the whole one, as either side. Found is an input that raises anything but `AnalyzerError`, warns, takes longer
than ten seconds of the processor, or damages a trace without a word in the load report: the seed
is printed with the cause, and the input kept.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import FrameType
from typing import NamedTuple

from analyzers.analysis import judge, report_of
from analyzers.errors import AnalyzerError
from analyzers.gate.check import check_runs
from analyzers.gate.model import GatePolicy
from analyzers.gate.render.json import render_json as render_verdict
from analyzers.gate.render.junit import render_junit
from analyzers.gate.render.markdown import render_markdown
from analyzers.measurement import measure
from analyzers.readers import content, event_stream, files
from analyzers.recording.recording import Recording, load_runs
from analyzers.report.json import render_json
from analyzers.swimlane import timeline_of
from analyzers.swimlane.chrome import write_chrome
from analyzers.swimlane.perfetto import write_perfetto
from tests.builders.places import CASES, SMOKE_RUN, TRACES
from tests.properties.mutations import mutate

LONGEST_S = 10
_SUFFIXES = (".json", ".jsonl", ".log", ".prom")

_REQUEST = (
    b'{"request_id":"r","rank":0,"prompt_token_ids":[1],"output_token_ids":[5,6,7],"send_ns":10,'
    b'"token_times_ns":[20,30,30],"finish_reason":"length","accepted":1,"proposed":1,"steps":1}\n'
)
_RECORD = (
    b"[STRACE] v=1 pid=10 tid=10 inv=4 hid=abc depth=0 name=chip.run ts=100 dur=50 slot_id=1 note=a%20b\n"
)
_GUIDELLM = (
    b'{"benchmarks":[{"requests":{"successful":[{"request_id":"a","request_start_time":1750000000.25,'
    b'"time_to_first_token_ms":100,"inter_token_latency_ms":10.0,"time_per_output_token_ms":19.0,'
    b'"output_tokens":10}],"errored":[{"request_id":"b","error":"x"}]}}]}'
)
_SWEEP = (
    b'{"benchmarks":[{"requests":{"successful":[{"request_id":"a","request_start_time":1.5,'
    b'"time_to_first_token_ms":100,"inter_token_latency_ms":10.0,"output_tokens":10}]}},{"requests":{'
    b'"incomplete":[{"request_id":"a","request_start_time":3600,"output_tokens":4}]}}]}'
)
_PLAIN = (
    b'{"id":1,"submit_ms":0,"tokens_at":[[100,1],[300,11],[600,31]]}\n'
    b'{"id":2.0,"ttft_us":100,"e2e_s":0.6,"output_tokens":3,"toks":[4]}\n'
    b'{"id":2,"ttft_us":100,"e2e_s":0.6,"output_tokens":3}\n'
    b'{"id":"3","send_ns":5,"chunks":[{"t_ns":9,"tokens":2},{"t_ns":1000000009,"tokens":1}]}\n'
)
_EVENT = b'{"name":"d.worker_%s","cat":"kernel","ph":"X","ts":%d,"dur":2,"pid":1,"tid":1,"args":{"dispatch_id":%d}}'

_ODD_EVENTS = [
    b'{"ph":"M","name":"process_name","pid":7,"ts":-90,"args":{"name":"loader"}}',
    b'{"ph":"X","name":"C:\\W","pid":7,"tid":1,"ts":-80,"dur":5,"args":{"C:\\Users":"\\u12z4 \\n"}}',
    b'{"ph":"M","name":"process_name","pid":7,"ts":20,"args":{"name":"engine"}}',
    b'{"ph":"B","name":"outer","pid":7,"tid":1,"ts":10}',
    b'{"ph":"X","name":"inner","pid":7,"tid":1,"ts":12,"dur":19}',
    b'{"ph":"E","pid":7,"tid":1,"ts":30}',
    b'{"ph":"b","name":"task","cat":"q","id":"0x9","pid":7,"tid":1,"ts":31}',
    b'{"ph":"b","name":"task","cat":"q","id":9,"pid":8,"tid":1,"ts":32}',
    b'{"ph":"e","name":"task","cat":"q","id":"9","pid":7,"tid":1,"ts":40}',
    b'{"ph":"e","name":"task","cat":"q","id":"0x9","pid":8,"tid":1,"ts":50}',
    b'{"ph":"b","name":"own","id2":{"local":"0x1"},"pid":8,"tid":1,"ts":51}',
    b'{"ph":"e","name":"own","id2":{"local":"0x1"},"pid":8,"tid":1,"ts":52}',
    b'{"ph":"X","name":"boom","pid":8,"tid":1,"ts":53,"dur":10800000000}',
]
"""Events that say what cannot be, or may mean two things."""


class Seed(NamedTuple):
    """One valid input."""

    suffix: str
    content: bytes
    place: str = ""
    """Where in a run directory it lies, when the rest of the run is read with it."""
    gated: bool = False
    """Whether it is a samples file for the gate."""


def seeds() -> list[Seed]:
    """Every valid input that is damaged."""
    found = [Seed(".jsonl", _REQUEST * 2), Seed(".json", _GUIDELLM), Seed(".json", _SWEEP)]
    found += [Seed(".jsonl", _PLAIN), Seed(".jsonl", _PLAIN * 2)]
    events = [
        _EVENT % (role, 10 * n + after, n) for n in range(4) for role, after in ((b"submit", 0), (b"wait", 4))
    ]
    found += [
        Seed(".jsonl", b"\n".join(events) + b"\n"),
        Seed(".json", b'{"baseTimeNanoseconds":5,"traceEvents":[\n' + b",\n".join(events) + b"\n]}\n"),
        Seed(".json", b"[\n  " + b",\n  ".join(events) + b"\n]"),
        Seed(".json", b'{"traceEvents":[' + b",".join(events) + b'],"distributedInfo":{"rank":0}}'),
        Seed(".jsonl", b"\n".join(_ODD_EVENTS)),
        Seed(".json", b"[\n" + b",\n".join(_ODD_EVENTS) + b"\n]"),
        Seed(".json", b'{"traceName":"D:\\p","traceEvents":[' + b",".join(_ODD_EVENTS) + b'],"x":"\\q"}'),
        Seed(".log", b"\x1b[32m" + _RECORD * 2 + b"\x1b[0m 5%|# |\r" + _RECORD),
    ]
    for path in sorted(CASES.glob("*/*")):
        if path.is_file() and path.suffix in (*_SUFFIXES, ".gz") and path.stat().st_size < 4_000:
            found.append(Seed(path.suffix, path.read_bytes(), gated="-gate-" in path.parent.name))
    for path in sorted(TRACES.glob("*.log")):
        lines = path.read_bytes().splitlines(keepends=True)
        middle = len(lines) // 2
        found += [Seed(".log", b"".join(lines[:12])), Seed(".log", b"".join(lines[middle : middle + 12]))]
    for path in sorted(SMOKE_RUN.rglob("*")):
        if path.is_file():
            # Its first lines, and what was written last.
            lines = path.read_bytes().splitlines(keepends=True)
            kept = lines if len(lines) < 60 else [*lines[:25], *lines[-15:]]
            found.append(Seed(path.suffix, b"".join(kept)))
            found += [Seed(path.suffix, b"".join(kept), str(path.relative_to(SMOKE_RUN)))] * 2
    return found


def is_silent(recording: Recording) -> bool:
    """Whether every reader says that nothing was wrong."""
    return not any(report.issues for report in recording.reports)


def is_sound_json(text: bytes) -> bool:
    """Whether Python reads `text` as JSON values, one after the other.

    Raises:
        ValueError: it does not.
    """
    if text.startswith(b"\x1f\x8b"):
        text = _unpacked(text)
    # Between events the reader takes these two for white space as well.
    decoded = re.sub(r"(?<=[\[,}\s])[\v\f]+(?=[\s,{\]])", " ", text.decode("utf-8-sig")).strip()
    position = 0
    while position < len(decoded):
        _, position = json.JSONDecoder(parse_int=str).raw_decode(decoded, position)
        position += len(decoded[position:]) - len(decoded[position:].lstrip())
    return True


def _unpacked(packed: bytes) -> bytes:
    unpacked = b""
    while packed:
        stream = zlib.decompressobj(wbits=31)
        unpacked += stream.decompress(packed)
        if not stream.eof:
            raise ValueError("truncated gzip")
        packed = stream.unused_data.lstrip(b"\0")
    return unpacked


def check(path: Path, damaged: bytes, *, whole: bool, in_pieces: bool) -> str:
    """Read one input, a file or the run directory around it; the outcome in a word.

    Raises:
        Exception: whatever a user must never see.
    """
    try:
        recordings = load_runs([path]).recordings
    except AnalyzerError as error:
        if in_pieces:
            with pieces_of(7), contextlib.suppress(AnalyzerError):
                load_runs([path])
                raise AssertionError("read in pieces, refused at once") from error
        return "refused"
    for recording in recordings:
        for report in recording.reports:
            assert report.records >= report.parsed >= 0
            assert report.lost >= 0
        if path.is_file() and recording.reports[0].format == "chrome_trace" and is_silent(recording):
            assert is_sound_json(damaged)
        if whole:
            measured = measure(recording)
            analysed = report_of(measured)
            assert judge(analysed, strict=True).exit_code in (0, 1, 3, 4)
            render_json(analysed).encode()
            drawing = timeline_of(measured)
            write_perfetto(drawing, io.BytesIO())
            write_chrome(drawing, io.BytesIO())
    if in_pieces:
        with pieces_of(7):
            assert list(map(summary, load_runs([path]).recordings)) == list(map(summary, recordings))
    return "analysed" if whole else "read"


def check_gate(whole: Path, damaged: Path) -> str:
    """Judge samples against the same ones damaged, and the other way round; the outcome in a word.

    Raises:
        Exception: whatever a user must never see.
    """
    outcome = "refused"
    for candidate, baseline in ((damaged, whole), (whole, damaged)):
        with contextlib.suppress(AnalyzerError):
            result = check_runs([candidate], str(baseline), GatePolicy())
            assert result.exit_code in (0, 1, 3, 4, 5)
            assert (result.exit_code == 0) == (result.verdict == "PASS")
            for render in (render_verdict, render_junit, render_markdown):
                render(result).encode()
            outcome = "judged"
    return outcome


@contextlib.contextmanager
def pieces_of(size: int) -> Iterator[None]:
    """Read files a few bytes at a time."""
    sizes = [(files, "PIECE"), (files, "_COMPRESSED_PIECE"), (content, "PIECE"), (event_stream, "PIECE")]
    before = [getattr(module, name) for module, name in sizes]
    for module, name in sizes:
        setattr(module, name, size)
    try:
        yield
    finally:
        for (module, name), value in zip(sizes, before, strict=True):
            setattr(module, name, value)


def summary(recording: Recording) -> tuple[object, ...]:
    """What must not depend on how a recording was read."""
    spans = recording.spans
    rows = [(spans.name_of(row), str(spans.args(row))) for row in range(len(spans))]
    times = list(zip(spans.start_ns.tolist(), spans.duration_ns.tolist(), spans.rank.tolist(), strict=True))
    issues = [sorted((issue.kind, issue.count, issue.lost) for issue in r.issues) for r in recording.reports]
    lanes = [(spans.lane_of(row), spans.thread_names.get(spans.lane_of(row))) for row in range(len(spans))]
    return rows, times, lanes, spans.process_names, issues, recording.requests, len(recording.invalid)


def fuzz(count: int, seed: int) -> Counter[str]:
    """Check `count` damaged inputs; how many had which outcome, `found` among them."""
    inputs = seeds()
    outcomes: Counter[str] = Counter()
    signal.signal(signal.SIGVTALRM, _too_long)
    with tempfile.TemporaryDirectory() as scratch:
        run, intact = Path(scratch) / "run", Path(scratch) / "intact.json"
        shutil.copytree(SMOKE_RUN, run)
        for number in range(count):
            random = Random(f"{seed}:{number}")
            suffix, valid, place, gated = random.choice(inputs)
            damaged = mutate(valid, random)
            path = run / place if place else Path(scratch) / f"damaged{suffix}"
            original = path.read_bytes() if place else b""
            path.write_bytes(damaged)
            signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST_S)
            try:
                outcome = check(
                    run if place else path, damaged, whole=number % 10 == 0, in_pieces=number % 10 == 5
                )
                if gated:
                    intact.write_bytes(valid)
                    outcome = check_gate(intact, path)
                outcomes[outcome] += 1
            except Exception:  # noqa: BLE001 - whatever it is, it is found
                outcomes["found"] += 1
                kept = Path(tempfile.gettempdir()) / f"fuzz-{seed}-{number}{suffix}"
                kept.write_bytes(damaged)
                print(f"seed {seed}, input {number}, {place or 'alone'}: kept as {kept}", file=sys.stderr)
                traceback.print_exc()
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
                if place:
                    path.write_bytes(original)
    return outcomes


def _too_long(_signal: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"longer than {LONGEST_S} s")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("error")
    started = time.perf_counter()
    outcomes = fuzz(options.count, options.seed)
    words = ", ".join(f"{outcome} {number}" for outcome, number in sorted(outcomes.items()))
    print(f"{options.count} inputs in {time.perf_counter() - started:.0f} s: {words}")
    sys.exit(1 if outcomes["found"] else 0)


if __name__ == "__main__":
    main()
