"""Manifests of runs (run.json)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from analyzers.machine import MachineFacts
from analyzers.rundir import (
    SCHEMA_VERSION,
    Manifest,
    RankProcess,
    RunDirectory,
    RunTiming,
    write_json_atomically,
)


def manifest(**fields: Any) -> Manifest:
    """The manifest of a complete run at depth two that says nothing else, with `fields` in place of its own."""
    plain = Manifest(
        schema_version=SCHEMA_VERSION,
        tool_version="0",
        status="complete",
        profile={"name": "test", "engine": {"depth": 2}},
        argv=[],
        versions={},
        host=MachineFacts(),
        git={},
        device_map=[],
        clocks={},
        timing=RunTiming(started_ns=0),
    )
    return msgspec.structs.replace(plain, **fields)


def device_map(ranks: Iterable[int], *, first_pid: int = 10) -> list[RankProcess]:
    """Rank r is process `first_pid` + r on the CPU."""
    return [RankProcess(rank, first_pid + rank, f"cpu:{rank}") for rank in ranks]


def write_manifest(run: RunDirectory, **fields: Any) -> None:
    """Write the manifest of `run`."""
    write_json_atomically(run.manifest, manifest(**fields))
