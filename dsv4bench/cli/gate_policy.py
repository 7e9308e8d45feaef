"""The policy of a `gate` command: `dsv4bench.toml`, the profile, the file that --config names, then the options."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analyzers.gate.model import GatePolicy
    from analyzers.gate.policy import PolicyOptions

_SECTION = "gate."


def gate_policy(
    profile: str | None, config: Path | None, options: PolicyOptions, overrides: Sequence[str] = ()
) -> GatePolicy:
    """What is judged, and how strictly; a later source wins key by key. `overrides` are those of the profile.

    Raises:
        UsageError: there is no such profile, or the profile or an override is wrong.
        UnusableInputError: a file or an option is.
    """
    from analyzers.gate.policy import load_policy, policy_of_table, working_directory_table
    from dsv4bench.profile import load_profile

    defaults = working_directory_table() if config is None else {}
    if profile is None:
        under = policy_of_table(defaults, "the gate")
    else:
        # The other keys are for the sides, which may be commands that run another profile.
        mine, _ = divided(overrides)
        under = load_profile(profile, mine, gate_defaults=defaults).gate
    return load_policy(under, config, options)


def policy_files(profile: str | None, config: Path | None) -> list[Path]:
    """The files that `gate_policy` reads where they are there."""
    from analyzers.gate.policy import DEFAULT_FILE

    own = [Path(profile)] if profile is not None and profile.endswith(".toml") else []
    return [DEFAULT_FILE if config is None else config, *own]


def divided(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """KEY=VALUE overrides that speak of the gate, and those that speak of the runs."""
    mine = [text for text in overrides if text.strip().startswith(_SECTION)]
    return mine, [text for text in overrides if text not in mine]
