"""The manifest of a run while it goes on: written at its start, at each milestone and at its end."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from analyzers.machine import MachineState
from analyzers.rundir import (
    DEVICE_VARIABLES,
    SCHEMA_VERSION,
    Manifest,
    RunDirectory,
    RunStatus,
    RunTiming,
    write_json_atomically,
)
from dsv4bench import __version__
from dsv4bench.profile import Profile, profile_as_dict
from dsv4bench.run.environment import git_facts, machine_facts, package_versions
from dsv4bench.run.machine import machine_state
from dsv4bench.run.tracing import RunTracing
from dsv4bench.tracing.settings import TRACING_VARIABLES

_KEPT_VARIABLES = (*DEVICE_VARIABLES, *TRACING_VARIABLES)


class RunManifest:
    """Holds what is known of a run so far, and writes it to `run.json`."""

    def __init__(
        self, profile: Profile, directory: RunDirectory, argv: Sequence[str], tracing: RunTracing
    ) -> None:
        """Reads both clocks and the state of the machine: make it when the run begins."""
        self._path = directory.manifest
        self.manifest = Manifest(
            schema_version=SCHEMA_VERSION,
            tool_version=__version__,
            status="running",
            profile=profile_as_dict(profile),
            argv=list(argv),
            versions=package_versions(),
            host=machine_facts(),
            host_before=machine_state(),
            host_after=MachineState(),
            git=git_facts(),
            device_map=[],
            clocks={"monotonic_ns": time.perf_counter_ns(), "wall_ns": time.time_ns()},
            timing=RunTiming(started_ns=time.perf_counter_ns()),
            environment={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
            tracing=dict(tracing.settings),
        )

    def stamp(self, *fields: str) -> None:
        """Set fields of `RunTiming` to now."""
        now = time.perf_counter_ns()
        self.set(timing=msgspec.structs.replace(self.manifest.timing, **dict.fromkeys(fields, now)))

    def set(self, **fields: Any) -> None:
        """Replace fields of the manifest; `write` makes them known."""
        self.manifest = msgspec.structs.replace(self.manifest, **fields)

    def write(self) -> None:
        """Write it as it is."""
        write_json_atomically(self._path, self.manifest)

    def finish(self, error: BaseException | None) -> RunStatus:
        """Write it for the last time, with how the run ended; returns that."""
        status: RunStatus = "complete"
        if error is not None:
            # A task that Ctrl-C cancelled ends the run as Ctrl-C does.
            status = "interrupted" if isinstance(error, KeyboardInterrupt) else "incomplete"
        self.stamp("finished_ns")
        described = None if error is None else str(error) or type(error).__name__
        self.set(status=status, error=described, host_after=machine_state())
        self.write()
        return status
