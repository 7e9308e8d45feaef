"""What a run leaves of the tracing that the environment asked for; its worker has no ranks."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from analyzers.analysis import analyze
from analyzers.rundir import Manifest, TracingSetting
from dsv4bench.engine import life
from dsv4bench.engine.engine import EngineProgress
from dsv4bench.errors import UsageError
from dsv4bench.run.launch import Launcher, RunResult, create_run_directory
from dsv4bench.run.tracing import load_traced_profile
from dsv4bench.tracing.settings import TRACING_VARIABLES
from tests.builders.scripted_worker import ScriptedWorker

SMALL = ["model.preset=test-b", "load.prompt_tokens=6", "load.output_tokens=5", "load.requests=2"]


class Quiet:
    def stage(self, text: str) -> None:
        pass

    def progress(self, done: EngineProgress, expected_tokens: int) -> None:
        pass


class Watched(ScriptedWorker):
    """Keeps what the last dispatch of the measured batch was to record."""

    asked: tuple[bool, bool]

    def close(self) -> None:
        Watched.asked = (self.tracing, self.device_phases)
        super().close()


@pytest.fixture(autouse=True)
def no_ranks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(life, "TorchWorker", Watched)
    monkeypatch.setenv("DSV4BENCH_CACHE", str(tmp_path / "cache"))
    for name in TRACING_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def launch(root: Path, monkeypatch: pytest.MonkeyPatch, **variables: str) -> tuple[RunResult, Manifest]:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    profile, tracing = load_traced_profile("gbs32-mtp1", [*SMALL, "engine.ranks=2"], [], variables)
    directory = create_run_directory(root, profile)
    result = Launcher(profile, directory, ["dsv4bench", "run"], Quiet(), (), tracing).run()
    return result, msgspec.json.decode((root / "run.json").read_bytes(), type=Manifest)


@pytest.mark.parametrize("name", ["out", "x.json"])
def test_the_trace_lies_in_the_run_directory_and_where_the_environment_wants_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    output, root = tmp_path / name, tmp_path / "run"
    result, manifest = launch(
        root, monkeypatch, SA_PROFILE_OUTPUT=str(output), SA_PROFILE_LEVEL="E2E,,Kernel"
    )
    assert result.error is None
    trace = output if name.endswith(".json") else output / "trace.json"
    assert trace.read_bytes() == (root / "sa_profile" / "trace.json").read_bytes()
    fragments = output.with_name("x.json.fragments") if name.endswith(".json") else output / "fragments"
    kept = root / "sa_profile" / "fragments"
    assert {path.name: path.read_bytes() for path in fragments.iterdir()} == {
        path.name: path.read_bytes() for path in kept.iterdir()
    }
    assert manifest.tracing == {
        "SA_PROFILE_LEVEL": TracingSetting("e2e,kernel", "environment"),
        "SA_PROFILE_OUTPUT": TracingSetting(str(output), "environment"),
        "PYPTO_RUNTIME_LOG": TracingSetting(True, "profile"),
        "SIMPLER_DEVICE_STRACE_ENABLE": TracingSetting(False, "profile"),
    }
    assert manifest.environment["SA_PROFILE_LEVEL"] == "E2E,,Kernel"
    report = analyze([root])
    assert report.run is not None
    assert report.run.tracing == manifest.tracing
    assert analyze([trace]).lifecycle.pairs == report.lifecycle.pairs > 0


@pytest.mark.parametrize(
    ("variables", "asked"),
    [
        ({}, (True, False)),
        ({"PYPTO_RUNTIME_LOG": "WARN"}, (False, False)),
        ({"PYPTO_RUNTIME_LOG": "v9", "SIMPLER_DEVICE_STRACE_ENABLE": "1"}, (True, True)),
        ({"SIMPLER_DEVICE_STRACE_ENABLE": "0"}, (True, False)),
    ],
)
def test_the_ranks_are_asked_for_the_records_that_the_settings_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], asked: tuple[bool, bool]
) -> None:
    _, manifest = launch(tmp_path / "run", monkeypatch, **variables)
    assert Watched.asked == asked
    recorded = manifest.tracing
    values = (recorded["PYPTO_RUNTIME_LOG"].value, recorded["SIMPLER_DEVICE_STRACE_ENABLE"].value)
    assert values == asked
    assert {name: manifest.environment.get(name) for name in variables} == variables


def test_a_second_place_that_fails_at_the_end_costs_nothing_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("mine")
    result, manifest = launch(tmp_path / "run", monkeypatch, SA_PROFILE_OUTPUT=str(in_the_way / "out"))
    assert isinstance(result.error, UsageError)
    assert "cannot write the serving trace" in str(result.error)
    assert (result.status, manifest.status, manifest.error) == ("complete", "complete", None)
    assert (tmp_path / "run" / "sa_profile" / "trace.json").exists()


def test_a_manifest_of_before_the_settings_were_recorded_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "run"
    launch(root, monkeypatch)
    document = msgspec.json.decode((root / "run.json").read_bytes())
    del document["tracing"]
    del document["profile"]["trace"]["device_phases"]
    (root / "run.json").write_bytes(msgspec.json.encode(document))
    report = analyze([root])
    assert report.run is not None
    assert report.run.tracing == {}
