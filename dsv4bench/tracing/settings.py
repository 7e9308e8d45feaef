"""What tracing is asked for: the SA_PROFILE environment variables, the levels, and where the files go."""

from __future__ import annotations

import os
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


@dataclass(frozen=True)
class TraceSettings:
    """Where the span recorder writes (a directory or a `*.json` file) and which levels it keeps."""

    output: Path
    levels: frozenset[Level]


def settings_from_environment(environment: Mapping[str, str] | None = None) -> TraceSettings | None:
    """Return what `SA_PROFILE_OUTPUT` and `SA_PROFILE_LEVEL` ask for, or None when neither is set.

    An empty variable counts as unset. Raises UsageError for an unknown level.
    """
    variables = os.environ if environment is None else environment
    output = variables.get(OUTPUT_VARIABLE, "")
    levels = variables.get(LEVEL_VARIABLE, "")
    if not output and not levels:
        return None
    return TraceSettings(
        output=Path(output) if output else DEFAULT_OUTPUT,
        levels=parse_levels(levels, source=LEVEL_VARIABLE) if levels else DEFAULT_LEVELS,
    )


def parse_levels(text: str, *, source: str) -> frozenset[Level]:
    """Parse a comma list of levels; `verbose` includes all. `source` names the setting in the UsageError."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in LEVELS:
            raise UsageError(
                f"{source}: unknown trace level {name!r} in {text!r}; use a comma list of {', '.join(LEVELS)}"
            )
    if "verbose" in names:
        return frozenset(LEVELS)
    return frozenset(level for level in LEVELS if level in names)


def fragments_directory(output: Path) -> Path:
    """Return where the fragments of `output` lie: `D/fragments/` or, for a `x.json`, `x.json.fragments/`."""
    if output.suffix == ".json":
        return output.with_name(output.name + ".fragments")
    return output / "fragments"


def merged_trace(output: Path) -> Path:
    """Return the merged trace of `output`: `D/trace.json`, or the `*.json` file itself."""
    return output if output.suffix == ".json" else output / "trace.json"
