"""The pytest plugin as a stranger meets it: installed from the wheel, in a project that knows nothing of this one."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders.places import BUILDERS, REPOSITORY

FAKE = f"{sys.executable} {BUILDERS / 'fake_run.py'}"

PROJECT = '''
"""Two tests that gate and one that reads a report."""

import pytest


@pytest.mark.tpot(max_regression=0.02)
def test_decode_is_as_fast_as_before(dsv4_run):
    dsv4_run("smoke", engine={"ranks": 2}, load={"output_tokens": 12})


def test_more_than_one_metric(dsv4_run, dsv4_gate):
    dsv4_gate(dsv4_run("smoke", engine={"ranks": 2}, load={"output_tokens": 12}), tpot=0.05)


def test_every_token_arrives(dsv4_run):
    measurement = dsv4_run("smoke", engine={"ranks": 2}, load={"output_tokens": 12})
    assert measurement.report.run.status == "complete"
'''


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheel's files and its metadata, as pip lays them out."""
    root = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", root]
    subprocess.run([*map(str, build), str(REPOSITORY)], check=True, capture_output=True, text=True)
    (wheel,) = root.glob("dsv4bench-*.whl")
    site = root / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


@pytest.fixture
def project(installed: Path, tmp_path: Path) -> Callable[..., str]:
    """Run pytest in the sample project, with the plugin of the wheel."""
    (tmp_path / "test_tpot.py").write_text(PROJECT)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def run(*arguments: object, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(installed), **environment},
            capture_output=True,
            text=True,
        )
        return f"exit code {done.returncode}\n{done.stdout}{done.stderr}"

    return run


@pytest.mark.parametrize("package", ["dsv4bench", "analyzers", "profiles"])
def test_the_wheel_brings_every_file_of_its_packages(installed: Path, package: str) -> None:
    def files(root: Path) -> set[str]:
        found = (path.relative_to(root) for path in (root / package).rglob("*") if path.is_file())
        return {str(path) for path in found if "__pycache__" not in path.parts}

    assert files(installed) == files(REPOSITORY)


def test_the_wheel_brings_the_options_and_the_marker(project: Callable[..., str]) -> None:
    assert "--dsv4-baseline" in project("--help")
    assert "tpot(max_regression=0.02" in project("--markers")


def test_it_passes_and_fails_as_it_should_on_two_workers(project: Callable[..., str], tmp_path: Path) -> None:
    def measured(tpot_ms: str, *arguments: object) -> str:
        (tmp_path / "counter").unlink(missing_ok=True)
        command = f"{FAKE} --counter {tmp_path / 'counter'} --tpot {tpot_ms}"
        return project("--dsv4-command", command, "--dsv4-runs", "5", "-n", "2", *arguments)

    base = measured("10", "--dsv4-save", "base")
    assert base.startswith("exit code 0"), base
    assert "3 passed" in base
    same = measured("10", "--dsv4-baseline", "base")
    assert same.startswith("exit code 0"), same
    assert same.count("PASS ") == 2
    slower = measured("10.4", "--dsv4-baseline", "base")
    assert slower.startswith("exit code 1"), slower
    assert "1 failed, 2 passed" in slower  # one test allows 2 %, the other 5 %
    assert "FAIL " in slower


@pytest.mark.slow
def test_real_runs_pass_and_fail_as_they_should_on_two_workers(project: Callable[..., str]) -> None:
    runs = ["--dsv4-runs", "6", "-n", "2"]
    base = project(*runs, "--dsv4-save", "base")
    assert base.startswith("exit code 0"), base
    slow_rank = f"sh -c 'exec {sys.executable} -m dsv4bench \"$@\" --fault rank=1,kind=slow:60ms' dsv4bench"
    slower = project(*runs, "--dsv4-baseline", "base", "--dsv4-command", slow_rank)
    assert slower.startswith("exit code 1"), slower
    assert "2 failed, 1 passed" in slower
