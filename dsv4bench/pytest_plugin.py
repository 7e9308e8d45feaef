"""The pytest plugin: measure runs in tests and gate them on TPOT (docs/gating.md, In pytest).

Fixtures `dsv4_run` and `dsv4_gate`, the marker `tpot`, and options to save a baseline and to compare with one. A run is
a process of its own, so that this module imports neither torch nor numpy until a test measures something.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from analyzers.gate.model import GateResult, MetricPolicy, Samples
    from analyzers.report.model import Report

DEFAULT_RUNS = 10
"""Runs of a measurement that is gated; a measurement that is not gated is one run."""

_SUMMARY = "dsv4bench"
_OUTPUT_LINES = 20


@dataclass(frozen=True)
class Measurement:
    """Runs of one profile, one after the other, and what each of them measured."""

    profile: str
    overrides: Mapping[str, Any]
    directories: list[Path]
    """The run directories."""
    samples: Samples
    """One value a run for every metric."""

    @property
    def report(self) -> Report:
        """The report of the last run."""
        from analyzers.analysis import analyze_recording
        from analyzers.recording.recording import load_recording

        return analyze_recording(load_recording([self.directories[-1]]))

    def values(self, metric: str) -> list[float | None]:
        """The values of one metric, one a run.

        Raises:
            KeyError: the runs have no such metric; names those that they have.
        """
        if metric not in self.samples.metrics:
            raise KeyError(f"no metric {metric!r}; there are {', '.join(sorted(self.samples.metrics))}")
        return self.samples.metrics[metric]


@dataclass
class _TestState:
    """What one test measured, and whether it gated it itself."""

    measurements: list[Measurement] = field(default_factory=list)
    gated: set[int] = field(default_factory=set)


_STATE: pytest.StashKey[_TestState] = pytest.StashKey()

Run = Callable[..., Measurement]
Gate = Callable[..., "GateResult | None"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; all begin with --dsv4."""
    group = parser.getgroup("dsv4bench", "gating DeepSeek-V4 decoding on TPOT")
    group.addoption(
        "--dsv4-baseline", metavar="DIR", help="Compare measurements with those that --dsv4-save left in DIR."
    )
    group.addoption(
        "--dsv4-save", metavar="DIR", help="Save the measurements of every test in DIR, as a baseline."
    )
    group.addoption(
        "--dsv4-runs",
        metavar="N",
        type=int,
        help=f"Runs of a gated measurement, whatever the test says; {DEFAULT_RUNS} where it says nothing.",
    )
    group.addoption(
        "--dsv4-command",
        metavar="CMD",
        help="How to call dsv4bench, for example that of another environment; this one's if not given.",
    )
    group.addoption(
        "--dsv4-allow-different",
        action="store_true",
        help="Compare with a baseline of another configuration or machine too; differences become warnings.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker; refuse options that cannot work before any test has run."""
    config.addinivalue_line(
        "markers",
        f"tpot(max_regression=0.02, limit=None, excluded=0.1, runs={DEFAULT_RUNS}): gate what the test measures with "
        "dsv4_run on its time per output token: a share that it may be slower than the baseline, an absolute limit in "
        "ms, and the regression that a PASS must exclude",
    )
    runs = config.getoption("--dsv4-runs")
    if runs is not None and runs < 1:
        raise pytest.UsageError(f"--dsv4-runs {runs}: expected a whole number of at least 1")
    baseline = config.getoption("--dsv4-baseline")
    if baseline is not None and not Path(baseline).is_dir():
        raise pytest.UsageError(
            f"--dsv4-baseline {baseline}: no such directory; make one with --dsv4-save {baseline}"
        )


@pytest.fixture
def dsv4_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a profile and measure it: `dsv4_run("smoke", engine={"depth": 1}, runs=3)` returns a `Measurement`.

    Overrides are keys of the profile, as tables (`engine={"depth": 1}`) or dotted (`**{"engine.depth": 1}`). Without
    `runs` a test with the marker `tpot` measures as many as the marker says, any other test one. `server_kind` starts a
    server of that kind for every run (`dsv4bench servers`), whose keys are overrides of `server`. No two measurements of
    this user run at once, under xdist neither.
    """
    config, node = request.config, request.node
    state = _state(node)

    def run(
        profile: str = "smoke", *, runs: int | None = None, server_kind: str | None = None, **overrides: Any
    ) -> Measurement:
        root = tmp_path_factory.mktemp("dsv4")
        settings = dict(_flat(overrides))
        with _measuring_alone():
            count = runs or _wanted_runs(node)
            directories = [
                _run_once(config, profile, server_kind, settings, root / f"run-{index}")
                for index in range(count)
            ]
        from analyzers.gate.samples import samples_of_runs

        measurement = Measurement(profile, settings, directories, samples_of_runs(directories))
        state.measurements.append(measurement)
        _save(node, len(state.measurements), measurement)
        return measurement

    return run


@pytest.fixture
def dsv4_gate(request: pytest.FixtureRequest) -> Gate:
    """Gate a measurement against the baseline: `dsv4_gate(measurement, tpot=0.02, step_time=0.05)`.

    Each keyword is a metric and the share by which it may be worse; a PASS excludes a regression of 10 %. The test
    fails unless the verdict is PASS; the
    `GateResult` is returned. With --dsv4-save alone nothing is compared, and the result is None.
    """
    node = request.node
    state = _state(node)

    def gate(measurement: Measurement, **max_regressions: float) -> GateResult | None:
        from analyzers.gate.model import MetricPolicy

        index = state.measurements.index(measurement)
        state.gated.add(index)
        metrics = {name: MetricPolicy(share) for name, share in max_regressions.items()}
        return _gate(node, index + 1, measurement, metrics or {"tpot": MetricPolicy()})

    return gate


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """After a test with the marker `tpot`, gate every measurement that the test did not gate itself."""
    outcome = yield
    marker = item.get_closest_marker("tpot")
    if marker is None:
        return outcome
    from analyzers.gate.model import MetricPolicy

    state = _state(item)
    if not state.measurements:
        pytest.fail(
            "the marker tpot gates what dsv4_run measures, but this test measured nothing", pytrace=False
        )
    policy = MetricPolicy(
        max_regression=_marker_value(item, marker, "max_regression", 0.02),
        limit=_marker_value(item, marker, "limit", None),
        excluded=_marker_value(item, marker, "excluded", None),
    )
    for index, measurement in enumerate(state.measurements):
        if index not in state.gated:
            _gate(item, index + 1, measurement, {"tpot": policy})
    return outcome


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line for every gated or saved measurement, those of xdist's workers too."""
    lines = [
        str(text)
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, text in report.user_properties
        if name == _SUMMARY
    ]
    if lines:
        terminalreporter.section("dsv4bench")
        for line in lines:
            terminalreporter.line(line)


def _state(node: pytest.Item) -> _TestState:
    return node.stash.setdefault(_STATE, _TestState())


def _marker_value(item: pytest.Item, marker: pytest.Mark, name: str, default: float | None) -> float | None:
    known = ("max_regression", "limit", "excluded", "runs")
    if marker.args or set(marker.kwargs) - set(known):
        given = [*map(repr, marker.args), *(name for name in marker.kwargs if name not in known)]
        pytest.fail(
            f"{item.nodeid}: the marker tpot takes {', '.join(known)} by name; got {', '.join(given)}",
            pytrace=False,
        )
    value: float | None = marker.kwargs.get(name, default)
    return value


def _wanted_runs(item: pytest.Item) -> int:
    marker = item.get_closest_marker("tpot")
    if marker is None and "dsv4_gate" not in getattr(item, "fixturenames", ()):
        return 1
    asked: int | None = item.config.getoption("--dsv4-runs")
    if asked is not None:
        return asked
    return int(marker.kwargs.get("runs", DEFAULT_RUNS)) if marker else DEFAULT_RUNS


def _flat(tables: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """`section.key` and value of every override."""
    for name, value in tables.items():
        if isinstance(value, Mapping):
            for key, inner in value.items():
                yield f"{name}.{key}", inner
        else:
            yield name, value


@contextmanager
def _measuring_alone() -> Iterator[None]:
    """Wait until no other measurement of this user runs on the machine: two at once would slow each other."""
    path = Path(tempfile.gettempdir()) / f"dsv4bench-measurement-{os.getuid()}.lock"
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run_once(
    config: pytest.Config,
    profile: str,
    server_kind: str | None,
    overrides: Mapping[str, Any],
    directory: Path,
) -> Path:
    from dsv4bench.profile import toml_value

    command = config.getoption("--dsv4-command")
    words = shlex.split(command) if command else [sys.executable, "-m", "dsv4bench"]
    words += ["run", profile, "--out", str(directory)]
    words += ["--server", server_kind] if server_kind is not None else []
    for key, value in overrides.items():
        words += ["--set", f"{key}={toml_value(value)}"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise pytest.UsageError(f"--dsv4-command {command!r} cannot be run: {error.strerror}") from error
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-_OUTPUT_LINES:])
        pytest.fail(f"{shlex.join(words)} ended with exit code {done.returncode}:\n{tail}", pytrace=False)
    return directory


def _samples_file(directory: str, item: pytest.Item, position: int) -> Path:
    """The file of one measurement: readable, and unique through the hash of the test's whole name."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", item.nodeid).strip("-")[-80:]
    unique = hashlib.sha256(f"{item.nodeid} {position}".encode()).hexdigest()[:8]
    return Path(directory) / f"{readable}-{unique}.json"


def _save(item: pytest.Item, position: int, measurement: Measurement) -> None:
    directory = item.config.getoption("--dsv4-save")
    if directory is None:
        return
    from analyzers.gate.samples import write_samples

    path = _samples_file(directory, item, position)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_samples(path, measurement.samples)
    runs = len(measurement.directories)
    _tell(item, f"saved    {item.nodeid}: {runs} run{'s' if runs != 1 else ''} in {path}")


def _gate(
    item: pytest.Item, position: int, measurement: Measurement, metrics: Mapping[str, MetricPolicy]
) -> GateResult | None:
    """Judge one measurement, tell the summary, and fail the test unless the verdict is PASS."""
    from analyzers.gate.model import GatePolicy, Leniency
    from analyzers.gate.samples import read_samples
    from analyzers.gate.verdict import decide

    directory = item.config.getoption("--dsv4-baseline")
    if directory is None:
        if item.config.getoption("--dsv4-save") is not None:
            return None
        pytest.fail(
            "nothing to compare with: give --dsv4-baseline DIR, or make a baseline with --dsv4-save DIR",
            pytrace=False,
        )
    path = _samples_file(directory, item, position)
    if not path.is_file():
        pytest.fail(
            f"{directory} holds no measurement of this test ({path.name}); save one with --dsv4-save {directory}",
            pytrace=False,
        )
    result = decide(
        read_samples([path]),
        measurement.samples,
        GatePolicy(dict(metrics)),
        Leniency(allow_different=item.config.getoption("--dsv4-allow-different")),
        method="stored runs",
        stored=True,
    )
    _tell(item, f"{result.verdict:<8} {item.nodeid}: {result.headline}")
    if result.verdict != "PASS":
        pytest.fail(_explain(result), pytrace=False)
    return result


def _explain(result: GateResult) -> str:
    """The failure as pytest shows it: the sentence, then every metric, then what makes the comparison doubtful."""
    lines = [f"dsv4bench gate: {result.verdict}: {result.headline}"]
    lines += [f"  {entry.name}: {entry.reason}" for entry in result.metrics if entry.judged]
    lines += [f"  warning: {warning}" for warning in result.warnings]
    return "\n".join(lines)


def _tell(item: pytest.Item, line: str) -> None:
    item.user_properties.append((_SUMMARY, line))
