"""Benchmark profiles: typed records of `profiles/*.toml`, with overrides, resolved and checked before a run.

Every problem is a UsageError that names the key, the value and what is allowed.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from analyzers.errors import UnusableInputError
from analyzers.gate.model import GatePolicy
from analyzers.gate.policy import policy_of_table
from analyzers.report.published import PublishedRun, published_of_table
from analyzers.text.documents import read_toml
from dsv4bench.engine.settings import EngineSettings
from dsv4bench.errors import UsageError
from dsv4bench.load.settings import PROMPT_KINDS, LoadSection, contradiction
from dsv4bench.tracing.settings import Level, parse_levels

SCHEMA_VERSION = 1
TRACE_OFF = "off"

Count = Annotated[int, msgspec.Meta(ge=1)]
CountOrZero = Annotated[int, msgspec.Meta(ge=0)]
Text = Annotated[str, msgspec.Meta(min_length=1)]


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One table of a profile."""


class ModelSection(_Section, frozen=True):
    """`[model]`: which DeepSeek-V4 is built, and what its weights hold."""

    preset: Text = "tiny"
    seed: CountOrZero = 0
    weights: Literal["bigram", "random"] = "bigram"


class TraceSection(_Section, frozen=True):
    """`[trace]`: what is recorded."""

    sa_profile: Text = "verbose"
    """A comma list of levels, or `off`."""
    strace: bool = True
    device_phases: bool = False
    """Whether the ranks' records say what a program's time consists of (docs/engine.md, Device phases)."""

    @property
    def levels(self) -> frozenset[Level] | None:
        """The levels the span recorder keeps; None when it is off."""
        return (
            None
            if self.sa_profile == TRACE_OFF
            else parse_levels(self.sa_profile, source='trace.sa_profile ("off" for none)')
        )


class CheckSection(_Section, frozen=True):
    """`[check]`: what is checked beside the measurement."""

    mtp_off: bool = False
    """Run the same requests without MTP as well, and compare them token for token."""


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One benchmark: a model, an engine, a load and what is traced."""

    name: Text
    description: str = ""
    schema_version: int = SCHEMA_VERSION
    model: ModelSection = ModelSection()
    engine: EngineSettings = EngineSettings()
    load: LoadSection
    trace: TraceSection = TraceSection()
    check: CheckSection = CheckSection()
    gate: GatePolicy = GatePolicy()
    """`[gate]`: what the performance gate judges of runs of this profile."""
    published: PublishedRun | None = None
    """`[published]`: figures of this workload that somebody published, which reports show beside the measured ones."""


_SECTIONS: dict[str, type[msgspec.Struct]] = {
    "model": ModelSection,
    "engine": EngineSettings,
    "load": LoadSection,
    "trace": TraceSection,
    "check": CheckSection,
    "gate": GatePolicy,
    "published": PublishedRun,
}
_OF_ANALYZERS = ("gate", "published")
"""Sections whose keys the analyzers check: they read them too."""

_HEADER = ("name", "description", "schema_version")


def list_profiles() -> list[Profile]:
    """Return the shipped profiles, by name."""
    return [load_profile(name) for name in _shipped()]


def load_profile(
    name_or_path: str,
    overrides: Sequence[str] = (),
    gate_defaults: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
) -> Profile:
    """Resolve a shipped profile or a `.toml` file with `section.key=value` overrides applied in order.

    `gate_defaults` is a table `[gate]` that lies under that of the profile, key by key; `environment` one `[trace]` that
    lies over it, and under the overrides.

    A value is read as TOML, else as a string. Overriding one of the keys that say what prompts are unsets the others.
    Raises UsageError for an unknown name or key, a value that is not allowed, or lengths
    that do not fit.
    """
    source, document = _read(name_or_path)
    if gate_defaults and isinstance(document.get("gate", {}), dict):
        document["gate"] = {**gate_defaults, **document.get("gate", {})}
    if environment and isinstance(document.get("trace", {}), dict):
        document["trace"] = {**document.get("trace", {}), **environment}
    for override in overrides:
        _apply(document, override)
    profile = _convert(document, source)
    _check_together(profile, source)
    return profile


def profile_as_dict(profile: Profile) -> dict[str, Any]:
    """Return the resolved profile as plain data, for the manifest; an unset key is None."""
    plain: dict[str, Any] = msgspec.to_builtins(profile)
    return plain


def profile_as_toml(profile: Profile) -> str:
    """Return the resolved profile as TOML that `load_profile` reads back."""
    document = profile_as_dict(profile)
    lines = [f"{key} = {toml_value(document[key])}" for key in _HEADER]
    for section in _SECTIONS:
        if document[section] is None:
            continue
        lines += ["", f"[{section}]"]
        lines += [
            f"{key} = {toml_value(value)}" for key, value in document[section].items() if value is not None
        ]
    return "\n".join(lines) + "\n"


def _shipped() -> list[str]:
    files = resources.files("profiles").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def _read(name_or_path: str) -> tuple[str, dict[str, Any]]:
    is_path = _is_path(name_or_path)
    if not is_path:
        _check_shipped(name_or_path)
    try:
        if is_path:
            content = Path(name_or_path).read_bytes()
        else:
            content = (resources.files("profiles") / f"{name_or_path}.toml").read_bytes()
        return f"profile {name_or_path}", read_toml(content)
    except OSError as error:
        raise UsageError(f"cannot read profile {name_or_path}: {error.strerror}") from error
    except ValueError as error:  # TOML syntax or text encoding
        raise UsageError(f"profile {name_or_path} is not valid TOML: {error}") from error


def _is_path(name_or_path: str) -> bool:
    return name_or_path.endswith(".toml") or "/" in name_or_path


def _check_shipped(name: str) -> None:
    if name not in _shipped():
        raise UsageError(
            f"unknown profile {name!r}{_nearest(name, _shipped())}; "
            f"known: {', '.join(_shipped())}, or the path of a .toml file"
        )


def _apply(document: dict[str, Any], override: str) -> None:
    name, equals, text = override.partition("=")
    section, dot, key = name.strip().partition(".")
    if not (equals and dot and key):
        raise UsageError(f"--set {override!r}: write section.key=value, for example engine.depth=1")
    source = f"--set {override}"
    _check_key(source, key, section)
    table = document.setdefault(section, {})
    if not isinstance(table, dict):
        return  # the profile itself is wrong there, and conversion says so
    table[key] = _override_value(text.strip())
    if section == "load" and key in PROMPT_KINDS:
        for other in PROMPT_KINDS:
            if other != key:
                table.pop(other, None)


def _override_value(text: str) -> Any:
    try:
        document = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return document["value"] if len(document) == 1 else text


def _convert(document: Mapping[str, Any], source: str) -> Profile:
    """Build the profile key by key, so that each problem names its key, its value and what is allowed."""
    known = (*_HEADER, *_SECTIONS)
    for key in document:
        if key not in known:
            raise UsageError(
                f"{source}: unknown key {key!r}{_nearest(key, known)}; known: {', '.join(known)}"
            )
    version = document.get("schema_version", SCHEMA_VERSION)
    if version != SCHEMA_VERSION:
        raise UsageError(f"{source}: schema_version = {version!r}; this version reads {SCHEMA_VERSION}")
    sections: dict[str, Any] = {
        section: _convert_section(document.get(section, {}), section, source)
        for section in _SECTIONS
        if section not in _OF_ANALYZERS
    }
    try:
        sections["gate"] = policy_of_table(document.get("gate", {}), source)
        if "published" in document:
            sections["published"] = published_of_table(document["published"], source)
    except UnusableInputError as error:
        raise UsageError(str(error)) from error
    return Profile(
        name=_value(source, "name", document.get("name"), Text),
        description=_value(source, "description", document.get("description", ""), str),
        **sections,
    )


def _convert_section(table: Any, section: str, source: str) -> msgspec.Struct:
    if not isinstance(table, dict):
        raise UsageError(f"{source}: {section} = {table!r}: expected a table [{section}]")
    record = _SECTIONS[section]
    hints = get_type_hints(record, include_extras=True)
    for key in table:
        _check_key(source, key, section)
    for field in msgspec.structs.fields(record):
        if field.required and field.name not in table:
            raise UsageError(
                f"{source}: {section}.{field.name} is missing: expected {_allowed(hints[field.name])}"
            )
    return record(
        **{key: _value(source, f"{section}.{key}", value, hints[key]) for key, value in table.items()}
    )


def _check_key(source: str, key: str, section: str) -> None:
    if section not in _SECTIONS:
        raise UsageError(
            f"{source}: unknown section {section!r}{_nearest(section, _SECTIONS)}; "
            f"known: {', '.join(_SECTIONS)}"
        )
    known = _SECTIONS[section].__struct_fields__
    if key not in known:
        raise UsageError(
            f"{source}: unknown key {key!r} in [{section}]{_nearest(key, known)}; known: {', '.join(known)}"
        )


def _value(source: str, name: str, value: Any, hint: Any) -> Any:
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        raise UsageError(f"{source}: {name} = {value!r}: expected {_allowed(hint)}") from error


def _allowed(hint: Any) -> str:
    """Say in words what a type hint of a profile key allows."""
    arguments = get_args(hint)
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(json.dumps(choice) for choice in arguments)
    if type(None) in arguments:
        return _allowed(next(argument for argument in arguments if argument is not type(None)))
    if get_origin(hint) is Annotated:
        limits = arguments[1]
        if arguments[0] is float:
            lowest = f"above {limits.gt:g}" if limits.gt is not None else f"of at least {limits.ge:g}"
            return f"a number {lowest}" + (f" and at most {limits.le:g}" if limits.le is not None else "")
        if limits.le is not None:
            return f"a whole number from {limits.ge} to {limits.le}"
        if limits.ge is not None:
            return f"a whole number of at least {limits.ge}"
        return (
            "a non-empty list of non-empty strings"
            if get_origin(arguments[0]) is list
            else "a non-empty string"
        )
    return "true or false" if hint is bool else "a string"


def _check_together(profile: Profile, source: str) -> None:
    """Check what no key can say alone: the kind of prompts, the trace levels, and that lengths fit."""
    load, engine = profile.load, profile.engine
    _ = profile.trace.levels  # raises for an unknown level
    if (wrong := contradiction(load)) is not None:
        raise UsageError(f"{source}: {wrong}")
    if profile.check.mtp_off and (engine.mtp == 0 or load.temperature > 0):
        raise UsageError(
            f"{source}: check.mtp_off compares greedy outputs with MTP on and off: set engine.mtp to 1 or more (it is "
            f"{engine.mtp}) and load.temperature to 0 (it is {load.temperature:g})"
        )
    for key in ("output_tokens", "warmup_output_tokens"):
        # A prompt given as text has at least one token; its true length is known to the tokenizer only.
        prompt_tokens = load.prompt_tokens or 1
        needed = prompt_tokens + getattr(load, key) + engine.mtp
        if needed > engine.max_model_len:
            raise UsageError(
                f"{source}: a prompt of {prompt_tokens} tokens, load.{key} = {getattr(load, key)} and "
                f"engine.mtp = {engine.mtp} need {needed} positions, but engine.max_model_len = "
                f"{engine.max_model_len}; raise it or shorten the request"
            )


def _nearest(name: str, known: Iterable[str]) -> str:
    matches = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {matches[0]!r}?)" if matches else ""


def toml_value(value: Any) -> str:
    """Write a string, number, boolean, list or table; JSON and TOML agree on the first but for DEL."""
    if isinstance(value, dict):
        kept = [f"{toml_value(key)} = {toml_value(item)}" for key, item in value.items() if item is not None]
        return "{" + ", ".join(kept) + "}"
    if isinstance(value, list):
        items = [toml_value(item) for item in value]
        tables = any(isinstance(item, dict) for item in value)
        return "[\n    " + ",\n    ".join(items) + ",\n]" if tables else f"[{', '.join(items)}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
