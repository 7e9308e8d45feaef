"""One run as the history keeps it: what was run, where, of which revision, how it ended, and its figures."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import msgspec

from analyzers.analysis import analyze, judge
from analyzers.errors import UnusableInputError
from analyzers.gate.comparability import machine_name, run_config
from analyzers.gate.metrics import run_values
from analyzers.readers.manifest import read_manifest
from analyzers.recording.copies import digest_of, run_identity
from analyzers.rundir import Manifest, RunDirectory

UNKNOWN = "unknown"
COMPLETE = "complete"
_REVISION_DIGITS = 8


class Entry(msgspec.Struct, frozen=True):
    """One run. Only a complete one has figures; `note` says why another has none, or what else to know of it."""

    identity: str
    """SHA-256 of the manifest and the requests: the same wherever the directory lies."""
    origin: str
    """SHA-256 of what is fixed when a run starts: shared by the states of one run."""
    profile: str
    backend: str
    model: str
    machine: str
    config: dict[str, Any]
    """Every key that decides what a run measures, as `section.key`."""
    revision: str
    """Git revision of the tool; empty where it ran from no checkout."""
    dirty: bool
    """Whether the checkout had changes that no revision holds."""
    started_ns: int
    """Wall clock, ns since 1970 UTC."""
    status: str
    """That of the manifest; `failed` or `invalid` for a run that completed but whose report is not to be relied on."""
    note: str
    path: str
    """Where the directory lay when it was added."""
    tool_version: str
    figures: dict[str, float]
    """By metric, in the unit of `analyzers.gate.metrics.metric`; one that the run does not have is left out."""

    @property
    def label(self) -> str:
        """The revision for people, with `+` where the checkout had changes."""
        return (self.revision[:_REVISION_DIGITS] or UNKNOWN) + ("+" if self.dirty else "")


def read_entry(directory: Path) -> Entry:
    """Read a run directory and measure it, if it is complete.

    Raises:
        UnusableInputError: it is no run directory, or its manifest does not tell when it ran.
    """
    run = RunDirectory(directory)
    if not run.manifest.is_file():
        raise UnusableInputError(
            f"{directory}: no run directory: {run.manifest.name} is not in it; add what `dsv4bench run` wrote"
        )
    manifest = read_manifest(run.manifest)
    status, note, figures = _figures(directory, manifest)
    config = run_config(manifest)
    return Entry(
        identity=run_identity(run),
        origin=digest_of(
            [manifest.profile, manifest.host.hostname, manifest.clocks, manifest.timing.started_ns]
        ),
        profile=_text(config.get("profile")),
        backend=_text(config.get("engine.backend")),
        model=_text(config.get("model.preset")),
        machine=machine_name(manifest) or UNKNOWN,
        config=config,
        revision=manifest.git.get("revision", "").replace(UNKNOWN, ""),
        dirty=manifest.git.get("dirty") == "true",
        started_ns=_started_ns(manifest, run.manifest),
        status=status,
        note=note,
        path=os.fsencode(directory.resolve()).decode("utf-8", "replace"),
        tool_version=manifest.tool_version,
        figures=figures,
    )


def _figures(directory: Path, manifest: Manifest) -> tuple[str, str, dict[str, float]]:
    """Status, note and figures: a run that ended early, failed or lost records says nothing of a trend."""
    if manifest.status != COMPLETE:
        return manifest.status, manifest.error or "", {}
    report = analyze([directory])
    verdict = judge(report)
    if verdict.exit_code:
        return "failed" if verdict.exit_code == 1 else "invalid", verdict.reason, {}
    values = {
        name: value
        for name, value in run_values(report).items()
        if value is not None and math.isfinite(value)
    }
    return COMPLETE, f"faults injected: {'; '.join(manifest.faults)}" if manifest.faults else "", values


def _started_ns(manifest: Manifest, path: Path) -> int:
    try:
        started = manifest.clocks["wall_ns"] + manifest.timing.started_ns - manifest.clocks["monotonic_ns"]
    except KeyError as missing:
        raise UnusableInputError(
            f"{path}: clocks.{missing.args[0]} is missing, so that nothing tells when the run was made"
        ) from missing
    if not 0 <= started < 2**63:
        raise UnusableInputError(f"{path}: its clocks make no time: {started} ns since 1970")
    return started


def _text(value: object) -> str:
    return value if isinstance(value, str) and value else UNKNOWN
