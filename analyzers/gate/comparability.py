"""What two samples must share to be compared: the configuration of their runs, and the machine (docs/gating.md)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from analyzers.gate.machine import fingerprint
from analyzers.gate.model import Difference, Samples
from analyzers.rundir import Manifest

CONFIG_SECTIONS = ("model", "engine", "load", "trace")
"""Sections of a profile that decide what a run measures."""

_BEFORE_THE_KEY = {
    "trace.device_phases": False,
    "load.prefix_groups": 0,
    "load.prefix_tokens": 0,
    "load.arrivals": "poisson",
    "load.burstiness": 1.0,
    "load.timetable_speed": 1.0,
    "load.timeout_s": 600.0,
}
"""Keys that older runs do not name, and what held for them: naming it makes no difference."""

UNKNOWN = "unknown"


def run_config(manifest: Manifest) -> dict[str, Any]:
    """The configuration of a run: its profile's name, the keys of the sections that decide what it measures, and the
    server kind where a server was measured.
    """
    config: dict[str, Any] = {"profile": manifest.profile.get("name")}
    for section in CONFIG_SECTIONS:
        table = manifest.profile.get(section)
        if isinstance(table, dict):
            config.update({f"{section}.{key}": value for key, value in table.items() if value is not None})
    if manifest.server is not None:
        # Its version is what is compared; where it listens, nobody chose.
        config["server"] = manifest.server.kind
        config.update({f"server.{key}": value for key, value in _flat(manifest.server.settings)})
    return {key: value for key, value in config.items() if _BEFORE_THE_KEY.get(key, ...) != value}


def _flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.")
        elif value is not None:
            yield f"{above}{key}", value


def machine_name(manifest: Manifest) -> str | None:
    """The machine of a run by the facts that make it the same one, `key=value; ...`; None where none is known.

    `short_machine` is the same for people. Facts of the machine as it was just then do not count.
    """
    return fingerprint(manifest.host, manifest.versions) or None


def short_machine(machine: str | None) -> str:
    """A machine for people: processor, cores and a short hash of all its facts; a plain name as it stands."""
    if machine is None:
        return UNKNOWN
    facts = _facts(machine)
    if facts is None:
        return machine
    readable = facts.get("processor", facts.get("machine", UNKNOWN))
    cores = f", {facts['cores']} cores" if "cores" in facts else ""
    return f"{readable}{cores} [{hashlib.sha256(machine.encode()).hexdigest()[:8]}]"


def differences(base: Samples, head: Samples) -> list[Difference]:
    """Every configuration key, and the facts of the machine, in which two sides differ.

    What only one side names is `unknown` on the other, and a difference too.
    """
    return [*_differing(base.config, head.config), *_machines(base.machine, head.machine)]


def _machines(base: str | None, head: str | None) -> list[Difference]:
    if base == head:
        return []
    base_facts, head_facts = _facts(base), _facts(head)
    if base_facts is not None and head_facts is not None:
        return [
            Difference(f"machine {item.key}", item.base, item.head)
            for item in _differing(base_facts, head_facts)
        ]
    return [Difference("machine", short_machine(base), short_machine(head))]


def _differing(base: Mapping[str, Any], head: Mapping[str, Any]) -> list[Difference]:
    return [
        Difference(key, said(base, key), said(head, key))
        for key in dict.fromkeys([*base, *head])
        if key not in base or key not in head or base[key] != head[key]
    ]


def _facts(machine: str | None) -> dict[str, str] | None:
    """The facts in a machine's name; None for a plain name."""
    pairs = [part.partition("=") for part in (machine or "").split("; ")]
    return {key: value for key, _, value in pairs} if all(equals for _, equals, _ in pairs) else None


def describe(found: list[Difference]) -> str:
    """`batch 16 vs 32, machine a vs b`."""
    return ", ".join(f"{item.key} {item.base} vs {item.head}" for item in found)


def said(config: Mapping[str, Any], key: str) -> str:
    """The value of a configuration key for people."""
    if key not in config:
        return UNKNOWN
    value = config[key]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
