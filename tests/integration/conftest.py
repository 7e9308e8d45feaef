import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dsv4bench.model.checkpoint import ensure_checkpoint
from dsv4bench.model.config import preset
from dsv4bench.tracing.settings import TRACING_VARIABLES
from dsv4bench.worker.messages import ProgramSpec
from dsv4bench.worker.torch_worker import TorchWorker, WorkerOptions

TOY_PROGRAMS = ("add", "exchange", "sleep", "hold", "stamp", "fail", "die", "invalid")


@pytest.fixture
def toy_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., TorchWorker]]:
    """Starts workers that run tests/integration/toy_programs.py, and closes them."""
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])))
    workers: list[TorchWorker] = []

    def start(ranks: int, **options: Any) -> TorchWorker:
        specs = tuple(ProgramSpec(name, name, f"{index + 1:016x}") for index, name in enumerate(TOY_PROGRAMS))
        worker = TorchWorker(
            WorkerOptions(ranks, "toy_programs:setup", b"toy", specs, **({"device_bytes": 1 << 20} | options))
        )
        worker.tracing = False
        workers.append(worker)
        return worker

    yield start
    for worker in workers:
        worker.close()


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a command under test: checkpoints of its own, plain output, and tracing by the profile."""
    cache = tmp_path_factory.mktemp("cache")
    outside = {name: value for name, value in os.environ.items() if name not in TRACING_VARIABLES}
    return {**outside, "DSV4BENCH_CACHE": str(cache), "NO_COLOR": "1", "COLUMNS": "120"}


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A checkpoint of the preset test-b by its kind of weights; only read."""
    directory = tmp_path_factory.mktemp("checkpoints")
    return {kind: ensure_checkpoint(preset("test-b"), 3, directory, kind) for kind in ("random", "bigram")}


@pytest.fixture(scope="session")
def checkpoint(checkpoints: dict[str, Path]) -> Path:
    """The one whose drafts are often right."""
    return checkpoints["bigram"]


def children_of(pid: int) -> set[int]:
    """Every process whose parent chain leads to `pid`."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            state, parent = stat.rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[int(entry.name)] = int(parent)
    found: set[int] = set()
    grown = True
    while grown:
        grown = False
        for child, its_parent in parents.items():
            if child not in found and (its_parent == pid or its_parent in found):
                found.add(child)
                grown = True
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False
