"""Reading what is judged and how strictly: the `[gate]` table of TOML files, and the command line (docs/gating.md)."""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from analyzers.errors import UnusableInputError
from analyzers.gate.model import GatePolicy, MetricPolicy

DEFAULT_FILE = Path("dsv4bench.toml")
"""Read where it exists in the working directory and no other file is named."""

DEFAULT_METRICS = {"tpot": MetricPolicy()}

_KEYS = ("stage_runs", "stage_one_p", "fail_p", "metrics")


def load_policy(
    profile: str | None, file: Path | None, overrides: Sequence[str] = (), limits: Sequence[str] = ()
) -> GatePolicy:
    """The policy of `[gate]` tables, with `overrides` (`tpot`, `step_time=0.05`) and `limits` (`tpot=60`) applied.

    Tables are read in this order, a later one replacing an earlier one key by key: that of `dsv4bench.toml` in the
    working directory (only where `file` is None), of the TOML file `profile`, of `file`. Overrides name all metrics
    that are judged; a limit is one more thing asked of its metric. Without any metric named, tpot may regress by 2 %.

    Raises:
        UnusableInputError: a file cannot be read, or a key or value is not allowed.
    """
    sources = [DEFAULT_FILE] if file is None and DEFAULT_FILE.is_file() else []
    sources += [Path(profile)] if profile is not None else []
    sources += [file] if file is not None else []
    table: dict[str, Any] = {}
    for source in sources:
        table |= _gate_table(source)
    named = table.pop("metrics", None)
    metrics: dict[str, MetricPolicy] = dict(DEFAULT_METRICS if named is None else named)
    if overrides:
        metrics = dict(_override(text, metrics) for text in overrides)
    for text in limits:
        name, limit = _limit(text)
        known = metrics.get(name, MetricPolicy(max_regression=None))
        metrics[name] = msgspec.structs.replace(known, limit=limit)
    return GatePolicy(metrics=metrics, judge_others=named is None and not overrides, **table)


def _gate_table(source: Path) -> dict[str, Any]:
    """The checked `[gate]` table of a TOML file: keys of GatePolicy; empty where the file has none."""
    try:
        document = tomllib.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnusableInputError(f"{source}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise UnusableInputError(f"{source}: not valid TOML: {error}") from error
    table = document.get("gate", {})
    if not isinstance(table, dict):
        raise UnusableInputError(f"{source}: gate = {table!r}: expected a table [gate]")
    for key in table:
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise UnusableInputError(
                f"{source}: unknown key {key!r} in [gate]{hint}; known: {', '.join(_KEYS)}"
            )
    try:
        policy = msgspec.convert({"metrics": {}} | table, GatePolicy)
    except msgspec.ValidationError as error:
        raise UnusableInputError(f"{source}: [gate]: {error}") from error
    if policy.stage_runs < 1 or not (0 < policy.fail_p <= policy.stage_one_p < 1):
        raise UnusableInputError(
            f"{source}: [gate]: stage_runs must be at least 1, and 0 < fail_p <= stage_one_p < 1"
        )
    for name, asked in policy.metrics.items():
        _check(asked, f"{source}: [gate.metrics.{name}]")
    return {key: getattr(policy, key) for key in table}


def _check(asked: MetricPolicy, where: str) -> None:
    threshold, limit = asked.max_regression, asked.limit
    if threshold is not None and not (math.isfinite(threshold) and threshold >= 0):
        raise UnusableInputError(
            f"{where}: max_regression = {threshold}: expected a share of 0 or more, as 0.02"
        )
    if limit is not None and not (math.isfinite(limit) and limit > 0):
        raise UnusableInputError(f"{where}: limit = {limit}: expected a number above 0 in the metric's unit")


def _override(text: str, known: dict[str, MetricPolicy]) -> tuple[str, MetricPolicy]:
    name, threshold = _split(text, "--metric")
    asked = known.get(name, MetricPolicy())
    if threshold is not None:
        asked = msgspec.structs.replace(asked, max_regression=threshold)
    _check(asked, f"--metric {text}")
    return name, asked


def _limit(text: str) -> tuple[str, float]:
    name, limit = _split(text, "--limit")
    if limit is None:
        raise UnusableInputError(f"--limit {text!r}: write NAME=VALUE, for example tpot=60")
    _check(MetricPolicy(limit=limit), f"--limit {text}")
    return name, limit


def _split(text: str, option: str) -> tuple[str, float | None]:
    """`step_time=0.05` or `step_time=5%` as name and number; the `=` inside `tpot_ms[bs=32]` is part of the name."""
    name, equals, value = text.rpartition("=")
    if not equals or value.endswith("]"):
        name, value = text, ""
    if not name.strip() or (equals and name != text and not value.strip()):
        raise UnusableInputError(f"{option} {text!r}: write NAME or NAME=VALUE, for example step_time=0.05")
    if not value:
        return name.strip(), None
    share = value.strip().removesuffix("%")
    try:
        number = float(share)
    except ValueError as error:
        raise UnusableInputError(f"{option} {text!r}: {value!r} is no number") from error
    return name.strip(), number / 100 if value.strip().endswith("%") else number
