"""What tracing is asked for: the levels of serving spans, where their files go, and upstream's environment variables.

What the variables mean is upstream's: docs/formats.md, Tracing by the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from dsv4bench.errors import UsageError

Level = Literal["e2e", "kernel", "verbose"]

LEVELS: tuple[Level, ...] = get_args(Level)
DEFAULT_LEVELS: frozenset[Level] = frozenset({"e2e", "kernel"})
DEFAULT_OUTPUT = Path("profile_out")
OUTPUT_VARIABLE = "SA_PROFILE_OUTPUT"
LEVEL_VARIABLE = "SA_PROFILE_LEVEL"
RUNTIME_LOG_VARIABLE = "PYPTO_RUNTIME_LOG"
DEVICE_PHASES_VARIABLE = "SIMPLER_DEVICE_STRACE_ENABLE"
TRACING_VARIABLES = (OUTPUT_VARIABLE, LEVEL_VARIABLE, RUNTIME_LOG_VARIABLE, DEVICE_PHASES_VARIABLE)

_ABOVE_TIMING = frozenset({"warn", "warning", "error", "null"})
"""Levels of the runtime's log that hide STRACE records. Any other text, known or not, is TIMING or lets it through."""


@dataclass(frozen=True)
class TracingEnvironment:
    """What the environment asks for; None where it says nothing."""

    levels: frozenset[Level] | None = None
    output: Path | None = None
    """A directory or a `*.json` file; set where serving spans are asked for at all."""
    strace: bool | None = None
    device_phases: bool | None = None


def tracing_environment(variables: Mapping[str, str]) -> TracingEnvironment:
    """Read upstream's variables as upstream does: one that is set but empty is set.

    Raises UsageError for an unknown level.
    """
    output, levels = variables.get(OUTPUT_VARIABLE), variables.get(LEVEL_VARIABLE)
    runtime_log, device_phases = variables.get(RUNTIME_LOG_VARIABLE), variables.get(DEVICE_PHASES_VARIABLE)
    asked = output is not None or levels is not None
    return TracingEnvironment(
        levels=parse_levels(levels, source=LEVEL_VARIABLE) if levels is not None else None,
        output=(Path(output).expanduser() if output is not None else DEFAULT_OUTPUT) if asked else None,
        strace=runtime_log.lower() not in _ABOVE_TIMING if runtime_log is not None else None,
        device_phases=device_phases != "0" if device_phases is not None else None,
    )


def parse_levels(text: str, *, source: str) -> frozenset[Level]:
    """Parse a comma list of levels, in any letter case; `verbose` includes all, and a list that names none is e2e,kernel.

    `source` names the setting in the UsageError.
    """
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in LEVELS:
            raise UsageError(
                f"{source}: unknown trace level {name!r} in {text!r}; use a comma list of {', '.join(LEVELS)}"
            )
    if "verbose" in names:
        return frozenset(LEVELS)
    return frozenset(level for level in LEVELS if level in names) or DEFAULT_LEVELS


def levels_text(levels: frozenset[Level]) -> str:
    """The shortest list that `parse_levels` reads as these levels."""
    return "verbose" if "verbose" in levels else ",".join(level for level in LEVELS if level in levels)


def fragments_directory(output: Path) -> Path:
    """Return where the fragments of `output` lie: `D/fragments/` or, for a `x.json`, `x.json.fragments/`."""
    if output.suffix == ".json":
        return output.with_name(output.name + ".fragments")
    return output / "fragments"


def merged_trace(output: Path) -> Path:
    """Return the merged trace of `output`: `D/trace.json`, or the `*.json` file itself."""
    return output if output.suffix == ".json" else output / "trace.json"
