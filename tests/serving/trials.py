"""Trials of a run against a server that fails in one way or another: how it ends, what it leaves, and that nothing is left.

`python -m tests.serving.trials --count 100 --seed 1` makes many at random; the tests make each one once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_LIMIT_S = 60.0
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Trial:
    """One way to fail, and how the run must end."""

    name: str
    stub: tuple[str, ...]
    exit_code: int
    says: str = ""
    """In what the run printed."""
    status: str = "complete"
    failed: int = 0
    """Measured requests that failed."""
    whole: int | None = 6
    """Measured requests that were answered; None where that is a matter of time."""
    end_by: signal.Signals | None = None
    """What dsv4bench gets while it measures."""
    take_port: bool = False
    missing_trace: bool = False
    sets: tuple[str, ...] = ()


TRIALS = (
    Trial("none", (), 0),
    Trial("exit at start", ("--fault", "exit-at-start"), 1, "no such device", "incomplete", whole=0),
    Trial(
        "never healthy",
        ("--fault", "never-healthy"),
        1,
        "HTTP 503",
        "incomplete",
        whole=0,
        sets=("server.health.timeout_s=1",),
    ),
    Trial("port taken", (), 1, "is taken", "incomplete", whole=0, take_port=True),
    Trial("exit in prefill", ("--fault", "exit-in-prefill"), 1, "out of memory", "incomplete", whole=None),
    Trial(
        "exit mid-stream", ("--fault", "exit-mid-stream"), 1, "exited with status 3", "incomplete", whole=None
    ),
    Trial(
        "stall",
        ("--fault", "stall"),
        1,
        "every request failed",
        failed=6,
        whole=0,
        sets=("load.timeout_s=1",),
    ),
    Trial("reset", ("--fault", "reset"), 1, "every request failed", failed=6, whole=0),
    Trial("cut", ("--fault", "cut"), 1, "every request failed", failed=6, whole=0),
    Trial("error event", ("--fault", "error-event"), 1, "every request failed", failed=6, whole=0),
    Trial("every third 500", ("--fault", "every-third-500"), 0, "failed=2 of 6", failed=2, whole=4),
    Trial("refused field", ("--fault", "strict-fields"), 1, "server.endpoint.fields", failed=6, whole=0),
    Trial("busy", ("--fault", "busy"), 1, "Retry-After: 1", failed=6, whole=0),
    Trial("characters split", ("--split-bytes", "3"), 0),
    Trial("several tokens an event", ("--tokens-per-event", "3"), 0),
    Trial("no usage, no end", ("--no-usage", "--no-done"), 0),
    Trial(
        "stop_profile hangs",
        ("--fault", "stop-profile-hangs"),
        4,
        "no answer within 1 s",
        missing_trace=True,
        sets=("server.profiling.timeout_s=1",),
    ),
    Trial("stop_profile fails", ("--fault", "stop-profile-500"), 4, "the profiler broke", missing_trace=True),
    Trial(
        "trace never appears",
        ("--fault", "no-trace"),
        4,
        "no trace appeared",
        missing_trace=True,
        sets=("server.profiling.appears_s=1",),
    ),
    Trial("ignores its signal", ("--fault", "ignore-sigterm"), 0, sets=("server.stop.grace_s=0.5",)),
    Trial("grandchildren", ("--fault", "grandchildren"), 0),
    Trial(
        "exit with requests unsent",
        ("--fault", "exit-mid-stream"),
        1,
        "exited with status 3",
        "incomplete",
        failed=6,
        whole=0,
        sets=("load.concurrency=2",),
    ),
    Trial(
        "interrupted",
        ("--itl-ms", "500"),
        130,
        "what was measured so far",
        "interrupted",
        failed=6,
        whole=0,
        end_by=signal.SIGINT,
    ),
    Trial(
        "killed", ("--itl-ms", "500"), -signal.SIGKILL, status="running", whole=None, end_by=signal.SIGKILL
    ),
)


def run_trial(trial: Trial, directory: Path) -> list[str]:
    """Make one trial below `directory`; returns everything that is wrong with how it ended."""
    token = f"trial-{uuid.uuid4().hex}"
    kind = directory / "stub.toml"
    kind.write_text(kind_of(trial.stub, token), encoding="utf-8")
    out = directory / "run"
    sets = [word for item in (*_LOAD, *trial.sets) for word in ("--set", item)]
    command = [
        sys.executable,
        "-m",
        "dsv4bench",
        "run",
        "smoke",
        "--server",
        str(kind),
        "--out",
        str(out),
        *sets,
    ]
    with socket.socket() as taken:
        if trial.take_port:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            command += ["--set", f"server.port={taken.getsockname()[1]}"]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=directory,
            env=_environment(),
        )
        try:
            if trial.end_by is not None:
                _wait_for(out / "server.log", "stub: asked")
                process.send_signal(trial.end_by)
            printed, _ = process.communicate(timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return [f"{trial.name}: did not end within {_LIMIT_S:g} s", *_left_over(token, 5)]
    wrong = (
        []
        if process.returncode == trial.exit_code
        else [f"exit code {process.returncode}, not {trial.exit_code}"]
    )
    if trial.says not in " ".join(printed.split()):
        wrong.append(f"does not say {trial.says!r}")
    wrong += _wrong_directory(trial, out) + _left_over(token, 5)
    return [f"{trial.name}: {text}\n{printed[-3000:]}" for text in wrong]


_LOAD = (
    "load.requests=6",
    "load.output_tokens=8",
    "load.warmup_batches=0",
    "engine.ranks=1",
    "engine.requests_per_rank=6",
    "model.preset=tiny",
)


def kind_of(stub: Sequence[str], token: str) -> str:
    """A server kind for the stub with these flags."""
    command = ["{python}", "-m", "tests.serving.stub_server", "--port", "{port}", "--token", token, *stub]
    return f"""
name = "stub"
command = {json.dumps(command)}
environment = {{ PYTHONPATH = {json.dumps(str(ROOT))} }}
served_model_name = "stub"
health = {{ timeout_s = 30.0 }}
stop = {{ grace_s = 5.0 }}

[endpoint]
prompt = "text"
fields = {{ ignore_eos = true }}

[profiling]
start = "/start_profile"
stop = "/stop_profile"
output = "{{output}}/profile"
format = "sa_profile"
arguments = ["--profile-output", "{{output}}/profile"]

[metrics]
accepted = "stub:accepted_total"
proposed = "stub:drafts_total"
"""


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "120"}


def _wrong_directory(trial: Trial, out: Path) -> list[str]:
    manifest = json.loads((out / "run.json").read_text())
    wrong = []
    if manifest["status"] != trial.status:
        wrong.append(f"status {manifest['status']}, not {trial.status}")
    if not trial.take_port and not (out / "server.log").stat().st_size:
        wrong.append("the server's log is empty")
    if bool(manifest["server"]["missing_traces"]) != trial.missing_trace:
        wrong.append(f"missing traces: {manifest['server']['missing_traces']}")
    if trial.end_by == signal.SIGKILL:
        return wrong
    lines = (out / "requests.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    failed = sum(record.get("error") is not None for record in records)
    if trial.whole is not None and (failed, len(records) - failed) != (trial.failed, trial.whole):
        wrong.append(f"{failed} requests failed and {len(records) - failed} did not")
    return wrong


def _left_over(token: str, patience_s: float) -> list[str]:
    """Processes that bear the token after a while."""
    deadline = time.monotonic() + patience_s
    while True:
        found = [path.parent.name for path in Path("/proc").glob("[0-9]*/cmdline") if _bears(path, token)]
        if not found:
            return []
        if time.monotonic() > deadline:
            return [f"processes are left: {', '.join(found)}"]
        time.sleep(0.1)


def _bears(path: Path, token: str) -> bool:
    try:
        return token.encode() in path.read_bytes()
    except OSError:
        return False  # it has ended


def _wait_for(path: Path, text: str) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not (path.exists() and text in path.read_text(errors="replace")):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} never says {text!r}")
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    wrong = 0
    for number in range(1, options.count + 1):
        trial = draw.choice(TRIALS)
        with tempfile.TemporaryDirectory() as directory:
            problems = run_trial(trial, Path(directory))
        wrong += bool(problems)
        print(f"{number}/{options.count} {trial.name}: {'; '.join(problems) or 'as it should'}", flush=True)
    print(f"{options.count - wrong} passed, {wrong} failed")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
