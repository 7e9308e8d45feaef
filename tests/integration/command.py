"""The `dsv4bench` command as a user runs it, and what it leaves behind."""

import subprocess
import sys
from pathlib import Path

import msgspec

from analyzers.rundir import Manifest, RequestRecord

# A small model and few ranks, for tests of the command and not of the model.
SMALL = [
    "--set",
    "model.preset=test-b",
    "--set",
    "load.prompt_tokens=12",
    "--set",
    "load.warmup_output_tokens=2",
    "--ranks",
    "4",
]


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "dsv4bench", *map(str, arguments)]


def run(
    environment: dict[str, str], *arguments: object, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), env=environment, capture_output=True, text=True, timeout=120, cwd=cwd
    )


def manifest_of(directory: Path) -> Manifest:
    return msgspec.json.decode((directory / "run.json").read_bytes(), type=Manifest)


def records_of(directory: Path) -> list[RequestRecord]:
    lines = (directory / "requests.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=RequestRecord) for line in lines]


def measured_of(directory: Path) -> list[RequestRecord]:
    return [record for record in records_of(directory) if record.phase == "measured"]


def shared_memory() -> set[str]:
    return {entry.name for entry in Path("/dev/shm").iterdir()}
