"""What a run leaves, from the launcher alone: the engine is a real one, its worker has no ranks."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from analyzers.rundir import Manifest, RunDirectory
from dsv4bench.engine import life
from dsv4bench.engine.engine import EngineOptions, EngineProgress
from dsv4bench.engine.settings import EngineSettings
from dsv4bench.model.config import preset
from dsv4bench.profile import Profile, load_profile
from dsv4bench.run.launch import Launcher, create_run_directory, engine_options
from tests.builders.scripted_worker import ScriptedWorker

SMALL = [
    "model.preset=test-b",
    "load.prompt_tokens=6",
    "load.output_tokens=5",
    "load.requests=3",
    "engine.ranks=2",
]


class Quiet:
    """An observer that keeps the stages."""

    def __init__(self) -> None:
        self.stages: list[str] = []

    def stage(self, text: str) -> None:
        self.stages.append(text)

    def progress(self, done: EngineProgress, expected_tokens: int) -> None:
        pass


@pytest.fixture(autouse=True)
def no_ranks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(life, "TorchWorker", ScriptedWorker)
    monkeypatch.setenv("DSV4BENCH_CACHE", str(tmp_path / "cache"))


def small(*overrides: str) -> Profile:
    return load_profile("gbs32-mtp1", [*SMALL, *overrides])


def launch(root: Path, *overrides: str) -> Manifest:
    profile = small(*overrides)
    result = Launcher(profile, create_run_directory(root, profile), ["dsv4bench", "run"], Quiet()).run()
    assert result.error is None
    return msgspec.json.decode((root / "run.json").read_bytes(), type=Manifest)


@pytest.mark.parametrize(("mtp", "programs"), [(0, 2), (1, 3), (2, 3)])
def test_the_manifest_counts_the_hits_of_this_start(tmp_path: Path, mtp: int, programs: int) -> None:
    cold = launch(tmp_path / "cold", f"engine.mtp={mtp}")
    warm = launch(tmp_path / "warm", f"engine.mtp={mtp}")
    assert cold.program_cache == {"hits": 0, "misses": programs}
    assert warm.program_cache == {"hits": programs, "misses": 0}
    # Prefill is compiled for other arguments if a rank holds another number of requests.
    other = launch(tmp_path / "other", f"engine.mtp={mtp}", "engine.requests_per_rank=1")
    assert other.program_cache == {"hits": 0, "misses": programs}


def test_the_manifest_holds_the_resolved_profile_and_the_times_in_order(tmp_path: Path) -> None:
    manifest = launch(tmp_path / "run", "engine.depth=1")
    assert (manifest.status, manifest.error, manifest.restarts, manifest.faults) == ("complete", None, 0, [])
    assert manifest.profile["engine"]["depth"] == 1
    assert manifest.profile["load"]["requests"] == 3
    timing = manifest.timing
    stamps = [timing.started_ns, timing.engine_ready_ns, timing.window_start_ns, timing.window_end_ns]
    assert [*stamps, timing.finished_ns] == sorted(
        [stamp or 0 for stamp in stamps] + [timing.finished_ns or 0]
    )
    assert manifest.argv == ["dsv4bench", "run"]


def test_every_key_of_the_engine_table_reaches_the_engine(tmp_path: Path) -> None:
    """A value other than the default for each key that has more than one: none is left behind on the way."""
    changed = {
        "ranks": 2,
        "depth": 1,
        "mtp": 3,
        "requests_per_rank": 2,
        "max_model_len": 300,
        "prefill_tokens": 77,
        "exchange": "torch-distributed",
        "dispatch_timeout_s": 7.5,
        "max_restarts": 3,
        "prefix_reuse": True,
        "prefix_snapshots": 5,
    }
    assert changed.keys() | {"backend"} == set(EngineSettings.__struct_fields__)
    default = EngineSettings()
    assert all(getattr(default, key) != value for key, value in changed.items())
    profile = small(*(f"engine.{key}={str(value).lower()}" for key, value in changed.items()))
    directory = RunDirectory(tmp_path / "run")
    options = engine_options(profile, preset("test-b"), Path("checkpoint"), directory)
    assert isinstance(options, EngineOptions)
    assert {key: getattr(options, key) for key in changed} == changed
    assert options.checkpoint == Path("checkpoint")
    assert options.rank_logs == (directory.rank_log(0), directory.rank_log(1))
