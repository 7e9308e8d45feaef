"""Reads server kinds: a shipped name or a user's file, with overrides `server.key=value`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import msgspec

from analyzers.text.documents import read_toml
from dsv4bench.errors import UsageError
from dsv4bench.overrides import nearest, override_value
from dsv4bench.server_kinds.kind import (
    EndpointTable,
    Health,
    MetricsTable,
    ProfilingTable,
    ServerKind,
    StopTable,
)

_PREFIX = "server."
_TABLES: dict[str, type[msgspec.Struct]] = {
    "health": Health,
    "endpoint": EndpointTable,
    "profiling": ProfilingTable,
    "metrics": MetricsTable,
    "stop": StopTable,
}
_TEXTS = frozenset({"environment", "strace_environment"})
_FREE_TABLES = frozenset({"environment", "strace_environment", "max_num_seqs_by_drafts", "endpoint.fields"})
"""Tables whose keys are the user's."""


def shipped_kinds() -> list[str]:
    """The names of the kinds that come with the product."""
    return sorted(
        file.name.removesuffix(".toml") for file in _folder().iterdir() if file.name.endswith(".toml")
    )


def split_server_overrides(sets: Sequence[str]) -> tuple[list[str], list[str]]:
    """KEY=VALUE overrides of the profile, and those of the server kind (`server.key=value`)."""
    servers = [text for text in sets if text.strip().startswith(_PREFIX)]
    return [text for text in sets if text not in servers], servers


def load_kind(name_or_path: str, overrides: Sequence[str] = ()) -> ServerKind:
    """A shipped kind by its name, or that of a `.toml` file, with overrides `server.key=value` applied in order.

    Raises:
        UsageError: there is no such kind; a key is not known; a value is not allowed.
    """
    source, document = _read(name_or_path)
    _check_keys(document, source)
    for override in overrides:
        _apply(document, override)
    try:
        return msgspec.convert(document, ServerKind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{source}: {_in_words(error)}") from error


def _folder() -> Traversable:
    return resources.files("profiles") / "servers"


def _read(name_or_path: str) -> tuple[str, dict[str, Any]]:
    source = f"server kind {name_or_path}"
    is_path = name_or_path.endswith(".toml") or "/" in name_or_path
    if not is_path and name_or_path not in shipped_kinds():
        known = shipped_kinds()
        raise UsageError(
            f"unknown server kind {name_or_path!r}{nearest(name_or_path, known)}; known: {', '.join(known)}, or the path "
            "of a .toml file"
        )
    try:
        file = Path(name_or_path) if is_path else _folder() / f"{name_or_path}.toml"
        return source, read_toml(file.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {source}: {error.strerror}") from error
    except ValueError as error:  # TOML syntax or text encoding
        raise UsageError(f"{source} is not valid TOML: {error}") from error


def _check_keys(document: dict[str, Any], source: str) -> None:
    for key, value in document.items():
        _check_key(key, source)
        if key in _TABLES and isinstance(value, dict):
            for inner in value:
                _check_key(f"{key}.{inner}", source)


def _check_key(key: str, source: str) -> None:
    table, dot, inner = key.partition(".")
    record: type[msgspec.Struct] = ServerKind
    name = table
    if dot and table in _TABLES:
        record, name = _TABLES[table], inner.partition(".")[0]
    known = record.__struct_fields__
    if name not in known or (dot and table not in _TABLES and table not in _FREE_TABLES):
        where = f" in [{table}]" if dot and table in _TABLES else ""
        raise UsageError(
            f"{source}: unknown key {key!r}{where}{nearest(name, known)}; known: {', '.join(known)}"
        )


def _apply(document: dict[str, Any], override: str) -> None:
    name, equals, text = override.partition("=")
    key = name.strip().removeprefix(_PREFIX)
    source = f"--set {override}"
    if not (equals and key):
        raise UsageError(f"--set {override!r}: write server.key=value, for example server.port=8000")
    _check_key(key, source)
    *tables, last = _path(key)
    table = document
    for part in tables:
        inner = table.setdefault(part, {})
        if not isinstance(inner, dict):
            raise UsageError(f"{source}: {part} is no table")
        table = inner
    # What stands in the environment is text.
    is_text = key.partition(".")[0] in _TEXTS
    table[last] = text.strip() if is_text else override_value(text.strip())


def _path(key: str) -> list[str]:
    """The keys on the way to a value; what follows the name of a free table is one key, dots and all."""
    for table in _FREE_TABLES:
        if key.startswith(f"{table}."):
            return [*table.split("."), key.removeprefix(f"{table}.")]
    return key.split(".")


def _in_words(error: msgspec.ValidationError) -> str:
    """A validation error, with the key in front: msgspec writes it behind, as `$.key`."""
    text, _, path = str(error).partition(" - at `$")
    return f"{path.rstrip('`').lstrip('.') or 'the file'}: {text}"
