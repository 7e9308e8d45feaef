"""The two sides: which runs they are made of, and whether these may be compared at all."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyzers.analysis import analyze_recording
from analyzers.compare.model import SideDescription, SideName
from analyzers.errors import UnusableInputError
from analyzers.gate.comparability import differences, machine_name, run_config
from analyzers.gate.machine import conditions_of, what_moved
from analyzers.gate.model import Difference, Samples
from analyzers.recording.benchmarks import is_there
from analyzers.recording.copies import Copy, copies_among, notes_on
from analyzers.recording.recording import load_recording
from analyzers.report.model import Report
from analyzers.rundir import Manifest, RunDirectory


@dataclass(frozen=True)
class Run:
    """One run: a run directory, or a trace, log or request file of which a report can be made."""

    path: str
    report: Report
    manifest: Manifest | None
    copies: str = ""
    """Which other paths hold it; "" where none does."""

    @property
    def samples(self) -> Samples:
        """Its configuration and machine, without figures."""
        if self.manifest is None:
            return Samples(metrics={}, config=_seen(self.report))
        return Samples(metrics={}, config=run_config(self.manifest), machine=machine_name(self.manifest))


def _seen(report: Report) -> dict[str, Any]:
    """What a recording without a manifest shows of its configuration."""
    return {"ranks": report.ranks.ranks} if report.ranks.ranks else {}


def load_side(name: SideName, patterns: Sequence[str]) -> list[Run]:
    """Read the runs that `patterns` (paths or globs) name: each path is one run, and copies of one are one.

    Raises:
        UnusableInputError: a path or pattern names nothing, a run is named twice, or a file cannot be read.
    """
    paths = expand(name, patterns)
    copies = copies_among(paths) if len(paths) > 1 else []
    left_out = {copy.path for copy in copies}
    return [
        _load(path, [copy for copy in copies if copy.of == path]) for path in paths if path not in left_out
    ]


def expand(name: SideName, patterns: Sequence[str]) -> list[Path]:
    """The runs that `patterns` name, those of a pattern or inside a directory in order of their names.

    Raises:
        UnusableInputError: a path or pattern names nothing, or a run is named twice.
    """
    paths = []
    for pattern in patterns:
        found = [pattern] if is_there(Path(pattern)) else sorted(glob.glob(pattern))  # noqa: PTH207 (Path.glob takes no absolute pattern)
        if not found:
            raise UnusableInputError(f"{pattern}: no such file or directory, and no pattern that matches any")
        paths += [run for path in found for run in _runs_in(Path(path))]
    places = [path.resolve() for path in paths]
    repeated = next((path for i, path in enumerate(paths) if places[i] in places[:i]), None)
    if repeated is not None:
        raise UnusableInputError(f"{repeated}: twice on side {name}: one run would count as two")
    return paths


def _runs_in(path: Path) -> list[Path]:
    """The run directories inside a directory that is none itself, by name; else `path`."""
    if not path.is_dir() or RunDirectory(path).manifest.is_file():
        return [path]
    return sorted(manifest.parent for manifest in path.glob("*/run.json")) or [path]


def _load(path: Path, copies: Sequence[Copy]) -> Run:
    recording = load_recording([path])
    return Run(str(path), analyze_recording(recording), recording.manifest, copies="".join(notes_on(copies)))


def same_runs(a: Sequence[Run], b: Sequence[Run]) -> list[str]:
    """What to say of the runs that both sides hold: a run cannot differ from itself."""
    shared = copies_among([Path(run.path) for run in (*a, *b)])
    return [f"{copy.of} of A and {copy.path} of B are one run" for copy in shared]


def find_differences(a: Sequence[Run], b: Sequence[Run]) -> list[Difference]:
    """What the settings of the runs differ in: within a side first, then between the sides.

    Every run is compared with the first of its side: a side whose runs differ is no sample of anything.
    """
    found = []
    for name, side in (("A", a), ("B", b)):
        for run in side[1:]:
            found += [
                Difference(f"{item.key} (within {name}: {run.path})", item.base, item.head)
                for item in differences(side[0].samples, run.samples)
            ]
    return found + differences(a[0].samples, b[0].samples)


def not_checked(a: Sequence[Run], b: Sequence[Run]) -> list[str]:
    """What nobody knows to be equal, for people."""
    runs = [*a, *b]
    without = [run.path for run in runs if run.manifest is None]
    if without:
        return [
            "profile, model, batch, lengths, depth, MTP K, backend and machine "
            f"(no run.json in {', '.join(dict.fromkeys(without))})"
        ]
    return ["machine (no run.json names it)"] if any(run.samples.machine is None for run in runs) else []


def describe_side(runs: Sequence[Run]) -> SideDescription:
    """The runs of a side, their machine, and what makes their figures doubtful."""
    revisions = {run.manifest.git.get("revision") if run.manifest is not None else None for run in runs}
    machines = {run.samples.machine for run in runs}
    conditions = [conditions_of(run.manifest, run.path) for run in runs if run.manifest is not None]
    return SideDescription(
        runs=[run.path for run in runs],
        machine=machines.pop() if len(machines) == 1 else None,
        revision=revisions.pop() if len(revisions) == 1 else None,
        pipeline=next((entry.statement for entry in runs[0].report.pipelines), None),
        warnings=[warning for run in runs for warning in _warnings(run)] + what_moved(conditions),
    )


def _warnings(run: Run) -> list[str]:
    """Why the figures of one run may not mean what they seem to."""
    report = run.report
    found = [run.copies] if run.copies else []
    if report.run is not None and report.run.status != "complete":
        found.append(f"{run.path}: the run is {report.run.status}, not complete")
    if report.run is not None and report.run.faults:
        found.append(f"{run.path}: faults were injected: {', '.join(report.run.faults)}")
    if report.run is not None and report.run.restarts:
        found.append(f"{run.path}: the engine was restarted {report.run.restarts} times")
    if run.manifest is not None and run.manifest.git.get("dirty") == "true":
        found.append(f"{run.path}: made from a source tree with uncommitted changes")
    if report.lost:
        found.append(f"{run.path}: records lost: {report.lost}")
    found += [f"{run.path}: {item.title}" for item in report.findings if item.code == "request_fields"]
    if report.lifecycle.faults:
        found.append(f"{run.path}: lifecycle faults: {len(report.lifecycle.faults)}")
    failed = sum(figures.failed for figures in report.requests if figures.phase == "measured")
    if failed:
        found.append(f"{run.path}: requests failed: {failed}")
    return found
