"""Servers and clients that nobody of this project wrote, from an environment of their own (CONTRIBUTING.md)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

VARIABLE = "DSV4BENCH_FOREIGN"
START_S = 180.0
GRACE_S = 60.0
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


def foreign_environment() -> Path:
    """The virtual environment that `DSV4BENCH_FOREIGN` names; skips the test where it names none."""
    named = os.environ.get(VARIABLE)
    if not named:
        pytest.skip(f"{VARIABLE} names no environment with foreign servers and clients (CONTRIBUTING.md)")
    return Path(named)


def program(name: str) -> Path:
    """A program of that environment; skips the test where it is not there."""
    path = foreign_environment() / "bin" / name
    if not path.exists():
        pytest.skip(f"{path} is not there (CONTRIBUTING.md says how {VARIABLE} is made)")
    return path


def clean_environment(**more: str) -> dict[str, str]:
    """The environment of a foreign program: nothing of this project's on its import path."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "HF_HUB_OFFLINE")}
    return {**kept, **more}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def server(command: list[str], port: int, log: Path, environment: dict[str, str]) -> Iterator[str]:
    """Start a server in a process group of its own, wait until it is healthy, and give its URL; stopped at the end."""
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
    try:
        wait_until_healthy(process, f"{url}/health", log)
        yield url
    finally:
        stop(process)


def wait_until_healthy(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        assert process.poll() is None, (
            f"the server ended with {process.returncode}: {log.read_text()[-2000:]}"
        )
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            pass  # not yet
        time.sleep(0.2)
    raise AssertionError(f"the server did not get healthy within {START_S:g} s: {log.read_text()[-2000:]}")


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ask(command: list[str], **more: str) -> str:
    """Run a foreign client to its end; its standard output. Fails with what it printed where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(**more), timeout=400)
    assert done.returncode == 0, f"{command}: {done.returncode}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
    return done.stdout
