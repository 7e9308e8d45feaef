"""Reading what is judged and how strictly: `[gate]` tables of TOML files, and the command line (docs/gating.md).

The keys, their defaults and what they allow are those of `GatePolicy`; a profile's table is read by the same code.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from analyzers.errors import UnusableInputError
from analyzers.gate.metrics import Better
from analyzers.gate.model import GatePolicy, MetricPolicy
from analyzers.text.documents import read_toml

DEFAULT_FILE = Path("dsv4bench.toml")
"""Read where it exists in the working directory and no other file is named."""

_TABLE = "gate"
_WHOLE = 1.0
"""A share from which on it was hardly meant as one: `tpot=2` reads as 2 %."""

DEFAULT_METRICS = {"tpot": MetricPolicy()}


@dataclass(frozen=True)
class PolicyOptions:
    """What the command line asks of a policy, as it was written."""

    metrics: Sequence[str] = ()
    """`tpot`, `step_time=0.05`: all metrics that are judged."""
    limits: Sequence[str] = ()
    """`tpot=60`: one more thing asked of a metric."""
    excluded: str | None = None
    """`0.1` or `10%`."""
    proof: bool = False
    """A PASS excludes any regression beyond the allowed share."""
    stage_runs: int | None = None
    max_runs: int | None = None


def judged_metrics(policy: GatePolicy) -> dict[str, MetricPolicy]:
    """What is asked of each metric that is named, or of tpot where none is."""
    return DEFAULT_METRICS if policy.metrics is None else policy.metrics


def judges_others(policy: GatePolicy) -> bool:
    """Whether metrics that only a samples file names are judged too."""
    return policy.metrics is None if policy.judge_others is None else policy.judge_others


def excluded_regression(policy: GatePolicy, asked: MetricPolicy) -> float:
    """The regression of a metric that a PASS must exclude: what is allowed cannot be asked to be excluded."""
    wanted = policy.excluded if asked.excluded is None else asked.excluded
    return max(wanted, asked.max_regression or 0.0)


def working_directory_table() -> dict[str, Any]:
    """The `[gate]` table of `dsv4bench.toml` in the working directory, checked; {} where there is none."""
    return gate_table(DEFAULT_FILE) if DEFAULT_FILE.is_file() else {}


def load_policy(
    under: GatePolicy, file: Path | None = None, options: PolicyOptions | None = None
) -> GatePolicy:
    """The policy `under`, with the keys of the `[gate]` table of `file` and then the `options` put above it.

    Raises:
        UnusableInputError: the file cannot be read, or a key or value is not allowed.
    """
    policy = under
    if file is not None:
        policy = msgspec.structs.replace(policy, **_values(gate_table(file), str(file)))
    if options is not None:
        policy = _with_options(policy, options)
    _check_together(policy)
    return policy


def policy_of_table(table: Any, source: str) -> GatePolicy:
    """A `[gate]` table as a policy; `source` names it for people.

    Raises:
        UnusableInputError: a key or value is not allowed; says which are.
    """
    return GatePolicy(**_values(table, source))


def gate_table(file: Path) -> dict[str, Any]:
    """The `[gate]` table of a TOML file as it is written, once it has been checked; {} where the file has none."""
    try:
        document = read_toml(file.read_bytes())
    except OSError as error:
        raise UnusableInputError(f"{file}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise UnusableInputError(f"{file}: not valid TOML: {error}") from error
    _check_tables(document, file)
    table = document.get("gate", {})
    policy_of_table(table, str(file))
    return dict(table)


def _check_tables(document: Mapping[str, Any], file: Path) -> None:
    """Refuse what was meant for `gate` and is not called so; in the tool's own file, whatever is not known."""
    for key in document:
        if key == _TABLE:
            continue
        is_meant = bool(difflib.get_close_matches(key.lower(), [_TABLE], n=1, cutoff=0.7))
        if is_meant or file.name == DEFAULT_FILE.name:
            meant = f"; did you mean {_TABLE!r}?" if is_meant else ""
            raise UnusableInputError(f"{file}: unknown table {key!r}{meant}; known: {_TABLE}")


def _values(table: Any, source: str) -> dict[str, Any]:
    """The values of the keys that a `[gate]` table has."""
    if not isinstance(table, dict):
        raise UnusableInputError(f"{source}: gate = {table!r}: expected a table [gate]")
    values = _converted(table, GatePolicy, source, "gate")
    if isinstance(metrics := table.get("metrics"), dict):
        values["metrics"] = {
            name: _metric_policy(asked, source, f"gate.metrics.{name}") for name, asked in metrics.items()
        }
    return values


def _metric_policy(table: Any, source: str, name: str) -> MetricPolicy:
    if not isinstance(table, dict):
        raise UnusableInputError(f"{source}: {name} = {table!r}: expected a table [{name}]")
    return MetricPolicy(**_converted(table, MetricPolicy, source, name))


def _converted(
    table: Mapping[str, Any], record: type[GatePolicy | MetricPolicy], source: str, name: str
) -> dict[str, Any]:
    """The checked values of a table, key by key, so that each problem names its key, its value and what is allowed."""
    hints = get_type_hints(record, include_extras=True)
    known = record.__struct_fields__
    for key in table:
        if key not in known:
            raise UnusableInputError(
                f"{source}: unknown key {key!r} in [{name}]{_nearest(key, known)}; known: {', '.join(known)}"
            )
    return {
        key: value
        if key == "metrics" and isinstance(value, dict)
        else _value(value, hints[key], source, f"{name}.{key}")
        for key, value in table.items()
    }


def _value(value: Any, hint: Any, source: str, name: str) -> Any:
    try:
        if "a share" in _allowed(hint):
            value = _share(value, source, name)
        converted = msgspec.convert(value, hint)
        if isinstance(converted, float) and not math.isfinite(converted):
            raise msgspec.ValidationError("not finite")
    except msgspec.ValidationError as error:
        raise UnusableInputError(f"{source}: {name} = {value!r}: expected {_allowed(hint)}") from error
    return converted


def _share(value: Any, source: str, name: str) -> Any:
    """A share as a number: `"2%"` is 0.02. One of 1 and more must be written in percent."""
    if isinstance(value, str) and value.strip().endswith("%"):
        try:
            return float(value.strip().removesuffix("%")) / 100
        except ValueError:
            return value
    if isinstance(value, int | float) and not isinstance(value, bool) and _WHOLE <= value < math.inf:
        raise UnusableInputError(
            f"{source}: {name} = {value:g} would be {100 * value:g} %: write {value:g}% or {value / 100:g} for a share of "
            f"{value:g} %, {100 * value:g}% if that is meant"
        )
    return value


def _allowed(hint: Any) -> str:
    """What a type of a policy's key allows, in its own words."""
    for part in (hint, *get_args(hint)):
        for meta in getattr(part, "__metadata__", ()):
            return str(meta.description)
    return "true or false"


def _check_together(policy: GatePolicy) -> None:
    """Check what no key can say alone, nor one of the sources that it may come from."""
    if policy.fail_p > policy.stage_one_p:
        raise UnusableInputError(
            f"gate.fail_p = {policy.fail_p:g} is above gate.stage_one_p = {policy.stage_one_p:g}: no stage two "
            "would follow where a regression can be told"
        )
    if policy.max_runs is not None and policy.max_runs < policy.stage_runs:
        raise UnusableInputError(
            f"gate.max_runs = {policy.max_runs} is less than one stage, gate.stage_runs = {policy.stage_runs}"
        )


def _with_options(policy: GatePolicy, options: PolicyOptions) -> GatePolicy:
    values: dict[str, Any] = {}
    if options.excluded is not None:
        values["excluded"] = _option(options.excluded, options.excluded, "excluded", "--excluded")
    if options.proof:
        values["excluded"] = 0.0  # so that what a metric is allowed decides
    runs = {"stage_runs": options.stage_runs, "max_runs": options.max_runs}
    values |= {key: number for key, number in runs.items() if number is not None}
    policy = msgspec.structs.replace(policy, **values)
    metrics = dict(judged_metrics(policy))
    if options.metrics:
        metrics = dict(_override(text, metrics) for text in options.metrics)
    for text in options.limits:
        written, better = _direction(text)
        name, limit = _limit(written)
        known = metrics.get(name, MetricPolicy(max_regression=None))
        metrics[name] = msgspec.structs.replace(known, limit=limit, better=better or known.better)
    if options.proof or options.excluded is not None:
        # The option speaks for all metrics, whatever a file says of one of them.
        metrics = {name: msgspec.structs.replace(known, excluded=None) for name, known in metrics.items()}
    others = judges_others(policy) and not options.metrics
    return msgspec.structs.replace(policy, metrics=metrics, judge_others=others)


def _override(text: str, known: dict[str, MetricPolicy]) -> tuple[str, MetricPolicy]:
    written, better = _direction(text)
    name, threshold = _split(written, "--metric")
    asked = known.get(name, MetricPolicy())
    if better is not None:
        asked = msgspec.structs.replace(asked, better=better)
    if threshold is not None:
        share = _option(threshold, text, "max_regression", "--metric")
        asked = msgspec.structs.replace(asked, max_regression=share)
    return name, asked


def _limit(text: str) -> tuple[str, float]:
    name, limit = _split(text, "--limit")
    if limit is None:
        raise UnusableInputError(f"--limit {text!r}: write NAME=VALUE, for example tpot=60")
    return name, _option(limit, text, "limit", "--limit")


def _direction(text: str) -> tuple[str, Better | None]:
    """`hits=0.05:more` as `hits=0.05` and what is better."""
    for better in get_args(Better):
        if text.strip().endswith(f":{better}"):
            return text.strip().removesuffix(f":{better}"), better
    return text, None


def _split(text: str, option: str) -> tuple[str, str | None]:
    """`step_time=0.05` or `step_time=5%` as name and number; the `=` inside `tpot_ms[bs=32]` is part of the name."""
    name, equals, value = text.rpartition("=")
    if not equals or value.endswith("]"):
        name, value = text, ""
    if not name.strip() or (equals and name != text and not value.strip()):
        raise UnusableInputError(f"{option} {text!r}: write NAME or NAME=VALUE, for example step_time=0.05")
    return name.strip(), value.strip() or None


def _option(value: str, text: str, key: str, option: str) -> float:
    """The number that an option gives to `key`; a share may be written as `5%`."""
    hint = get_type_hints(MetricPolicy, include_extras=True)[key]
    try:
        number = float(value.strip().removesuffix("%"))
    except ValueError as error:
        raise UnusableInputError(f"{option} {text!r}: {value!r} is no number") from error
    written: Any = value.strip() if value.strip().endswith("%") else number
    return float(_value(written, hint, f"{option} {text}", key))


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
