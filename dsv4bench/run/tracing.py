"""How a run is traced: what its flags, `--set`, the environment and the profile say, in this order of weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analyzers.rundir import TracingSetting, TracingSource
from dsv4bench.profile import TRACE_OFF, Profile, load_profile
from dsv4bench.tracing.settings import (
    DEFAULT_LEVELS,
    DEVICE_PHASES_VARIABLE,
    LEVEL_VARIABLE,
    OUTPUT_VARIABLE,
    RUNTIME_LOG_VARIABLE,
    levels_text,
    tracing_environment,
)

_KEY_OF_VARIABLE = {
    LEVEL_VARIABLE: "sa_profile",
    RUNTIME_LOG_VARIABLE: "strace",
    DEVICE_PHASES_VARIABLE: "device_phases",
}


@dataclass(frozen=True)
class RunTracing:
    """Where the serving trace goes beside the run directory, if anywhere, and what the manifest says of all settings."""

    output: Path | None = None
    settings: Mapping[str, TracingSetting] = field(default_factory=dict)


def load_traced_profile(
    name_or_path: str, sets: Sequence[str], flags: Sequence[str], variables: Mapping[str, str]
) -> tuple[Profile, RunTracing]:
    """The profile with the environment `variables` over its `[trace]`, then the overrides `sets` and `flags`.

    Raises:
        UsageError: `load_profile` names the causes; or an unknown level in the environment.
    """
    asked = tracing_environment(variables)
    table: dict[str, Any] = {"strace": asked.strace, "device_phases": asked.device_phases}
    table["sa_profile"] = levels_text(asked.levels) if asked.levels is not None else None
    environment = {key: value for key, value in table.items() if value is not None}
    overrides = [*sets, *flags]
    profile = load_profile(name_or_path, overrides, environment=environment)
    by_override = _trace_keys(overrides)
    switched_on = asked.output is not None and "sa_profile" not in by_override | environment.keys()
    if switched_on and profile.trace.sa_profile == TRACE_OFF:
        environment["sa_profile"] = levels_text(DEFAULT_LEVELS)
        profile = load_profile(name_or_path, overrides, environment=environment)

    def source(key: str) -> TracingSource:
        if key in _trace_keys(flags):
            return "flag"
        if key in _trace_keys(sets):
            return "--set"
        return "environment" if key in environment else "profile"

    output = asked.output if profile.trace.levels is not None else None
    settings = {
        variable: TracingSetting(getattr(profile.trace, key), source(key))
        for variable, key in _KEY_OF_VARIABLE.items()
    }
    settings[OUTPUT_VARIABLE] = (
        TracingSetting(str(output.absolute()), "environment")
        if output is not None
        else TracingSetting(None, source("sa_profile"))
    )
    return profile, RunTracing(output, settings)


def _trace_keys(overrides: Sequence[str]) -> set[str]:
    """The keys of `[trace]` that overrides `section.key=value` set."""
    names = [override.partition("=")[0].strip() for override in overrides]
    return {name.removeprefix("trace.") for name in names if name.startswith("trace.")}
