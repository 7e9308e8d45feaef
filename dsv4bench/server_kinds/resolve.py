"""From a server kind and a profile to one server: the command line, its environment, where it listens, how it is asked."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from dsv4bench.errors import UsageError
from dsv4bench.load.endpoint import API_KEY_VARIABLE, Endpoint
from dsv4bench.overrides import nearest
from dsv4bench.profile import Profile, profile_as_toml
from dsv4bench.server_kinds.kind import ProfilingTable, ServerKind

PROFILE_FILE = "profile.toml"
"""The profile as the server of a run gets it, in its output directory."""
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{(\w*)\}")
_HIDDEN = "(secret)"
_PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}


@dataclass(frozen=True)
class ResolvedServer:
    """One server, ready to be started or asked."""

    kind: ServerKind
    url: str
    command: list[str]
    environment: dict[str, str]
    """What is set beside the environment of this process."""
    endpoint: Endpoint
    output: Path
    """The directory for what it writes."""
    devices: list[int]
    """Physical devices in the order of ranks."""
    profiling: ProfilingTable | None = None
    """With its output resolved; None where the profile asks for no serving trace."""
    version: list[str] = field(default_factory=list)
    profile_toml: str = ""
    """What `PROFILE_FILE` holds."""
    strace: bool = False

    @property
    def shown_environment(self) -> dict[str, str]:
        """The environment for people and manifests."""
        return {
            name: _HIDDEN if name in self.kind.secret_variables else value
            for name, value in self.environment.items()
        }

    @property
    def settings(self) -> dict[str, Any]:
        """The kind as plain data, without secrets."""
        plain: dict[str, Any] = msgspec.to_builtins(self.kind)
        plain["api_key"] = None
        environment = plain["environment"]
        environment.update({name: _HIDDEN for name in self.kind.secret_variables if name in environment})
        return plain


def resolve(
    kind: ServerKind, profile: Profile, output: Path, *, url: str | None = None, port: int | None = None
) -> ResolvedServer:
    """The server of `kind` for a run of `profile`; `url` is that of one that runs already, `port` overrides the kind's.

    Raises:
        UsageError: a placeholder has no value, or the kind cannot run the profile.
    """
    chosen = port if port is not None else kind.port
    where = url.rstrip("/") if url is not None else f"http://{kind.host}:{chosen or 0}"
    devices = list(kind.devices) or list(range(profile.engine.ranks))
    values = _values(kind, profile, output, chosen, devices)
    if url is None:
        _check(kind, profile, devices)
    fill = _Filler(kind.name, values)
    # The name of a model that runs already is asked of the server.
    known_name = (
        kind.served_model_name if url is None or kind.model or "{" not in kind.served_model_name else ""
    )
    served_name = fill.text("served_model_name", known_name) or Path(kind.model).name
    fill.values["served_model_name"] = served_name
    profiling = None
    if kind.profiling is not None and profile.trace.levels is not None:
        table = kind.profiling
        profiling = msgspec.structs.replace(table, output=fill.text("profiling.output", table.output))
    command: list[str] = []
    environment: dict[str, str] = {}
    if url is None:
        words = [*kind.command]
        words += kind.speculative_arguments if profile.engine.mtp else []
        words += profiling.arguments if profiling is not None else []
        command = [text for word in words if (text := fill.text("command", word))]
        named = dict(kind.environment) | (kind.strace_environment if profile.trace.strace else {})
        environment = {name: fill.text(f"environment.{name}", value) for name, value in named.items()}
    return ResolvedServer(
        kind=kind,
        url=where,
        command=command,
        environment=environment,
        endpoint=_endpoint(kind, where, fill),
        output=output,
        devices=devices,
        profiling=profiling,
        version=[fill.text("version", word) for word in kind.version] if url is None else [],
        profile_toml=profile_as_toml(profile)
        if any("{profile_file}" in word for word in kind.command)
        else "",
        strace=kind.strace and profile.trace.strace,
    )


def startable_server(kind: ServerKind, profile: Profile, output: Path) -> ResolvedServer:
    """The server of `kind` that a run of `profile` starts; it writes below `output`. A port of 0 becomes a free one.

    Raises:
        UsageError: as `resolve`, and where its program is not found.
    """
    server = resolve(kind, profile, output, port=kind.port or free_port(kind.host))
    check_program(server)
    return server


def running_server(kind: ServerKind, profile: Profile, url: str, output: Path | None) -> ResolvedServer:
    """A server of `kind` that runs at `url`; its profiler is used only where its `output` can be read.

    Raises:
        UsageError: `url` is none of a server.
    """
    parts = urlsplit(url)
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.path not in ("", "/")
        or parts.query
    ):
        raise UsageError(f"--url {url!r}: write scheme, host and port, for example http://127.0.0.1:8000")
    if output is not None and not output.is_dir():
        raise UsageError(f"--server-output {output}: no such directory")
    server = resolve(kind, profile, output or Path(), url=url)
    if output is None or server.profiling is None:
        return dataclasses.replace(server, profiling=None)
    return dataclasses.replace(
        server, profiling=msgspec.structs.replace(server.profiling, output=str(output.absolute()))
    )


def check_program(server: ResolvedServer) -> None:
    """Check that the program of the command is on this machine.

    Raises:
        UsageError: it is not.
    """
    program = server.command[0]
    if shutil.which(program) is None:
        raise UsageError(
            f"server kind {server.kind.name}: the program {program!r} is not found; install it, put it into PATH, or name "
            "it with --set server.command=[...]"
        )


def free_port(host: str) -> int:
    """A port of `host` that is free just now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
        listener.bind((host, 0))
        port: int = listener.getsockname()[1]
        return port


def _values(
    kind: ServerKind, profile: Profile, output: Path, port: int, devices: list[int]
) -> dict[str, str]:
    engine, levels = profile.engine, profile.trace.sa_profile
    values = {
        "host": kind.host,
        "port": str(port),
        "devices": ",".join(map(str, devices)),
        "ranks": str(engine.ranks),
        "max_model_len": str(engine.max_model_len),
        "max_num_seqs": str(engine.ranks * engine.requests_per_rank),
        "prefill_tokens": str(engine.prefill_tokens),
        "mtp": str(engine.mtp),
        "prefix_caching": "--enable-prefix-caching" if engine.prefix_reuse else "--no-enable-prefix-caching",
        "levels": levels,
        "device_phases": "1" if profile.trace.device_phases else "0",
        "output": str(output.absolute()),
        "profile_file": str(output.absolute() / PROFILE_FILE),
        "python": sys.executable,
    }
    return values | ({"model": kind.model} if kind.model else {})


class _Filler:
    """Puts values into placeholders; a doubled brace is one."""

    def __init__(self, kind: str, values: dict[str, str]) -> None:
        self._kind = kind
        self.values = values

    def text(self, key: str, template: str) -> str:
        """`template` with its placeholders filled; `key` is where it stands."""

        def value(match: re.Match[str]) -> str:
            if match[0] in ("{{", "}}"):
                return match[0][0]
            return self._value(key, match[1])

        return _PLACEHOLDER.sub(value, template)

    def _value(self, key: str, name: str) -> str:
        if name in self.values:
            return self.values[name]
        if name == "model":
            raise UsageError(
                f"server kind {self._kind}: {key} needs the model: --set server.model=DIRECTORY_OR_NAME"
            )
        raise UsageError(
            f"server kind {self._kind}: {key} has the unknown placeholder {{{name}}}{nearest(name, self.values)}; known: "
            f"{', '.join(sorted(self.values))}; write {{{{ and }}}} for braces"
        )


def _check(kind: ServerKind, profile: Profile, devices: list[int]) -> None:
    """What a kind demands of the profile."""
    engine = profile.engine
    what = f"server kind {kind.name}"
    if kind.exact_devices and len(devices) != kind.exact_devices:
        raise UsageError(
            f"{what} needs exactly {kind.exact_devices} devices, one for each rank, but has {len(devices)}: set "
            f"engine.ranks={kind.exact_devices} or server.devices"
        )
    if len(devices) != engine.ranks:
        raise UsageError(f"{what}: {len(devices)} devices (server.devices) for engine.ranks = {engine.ranks}")
    if len(set(devices)) != len(devices):
        raise UsageError(f"{what}: server.devices names a device twice: {devices}")
    limits = {_drafts(kind, key): most for key, most in kind.max_num_seqs_by_drafts.items()}
    reached = [least for least in limits if least <= engine.mtp]
    wanted = engine.ranks * engine.requests_per_rank
    if reached and wanted > limits[max(reached)]:
        raise UsageError(
            f"{what} takes at most {limits[max(reached)]} requests at once with engine.mtp = {engine.mtp}, but "
            f"engine.ranks x engine.requests_per_rank = {wanted}"
        )


def _drafts(kind: ServerKind, key: str) -> int:
    if not key.isdecimal():
        raise UsageError(f"server kind {kind.name}: max_num_seqs_by_drafts: {key!r} is no number of drafts")
    return int(key)


def _endpoint(kind: ServerKind, url: str, fill: _Filler) -> Endpoint:
    table = kind.endpoint
    return Endpoint(
        url=url,
        model=fill.text("endpoint.model", table.model),
        api=table.api,
        path=table.path or _PATHS[table.api],
        prompt_as=table.prompt,
        length_fields=tuple(table.length_fields),
        fields=table.fields,
        sampling_fields=frozenset(table.sampling_fields),
        stream_usage=table.stream_usage,
        return_token_ids=table.return_token_ids,
        api_key=kind.api_key or os.environ.get(API_KEY_VARIABLE) or None,
        governed_by=_governed_by(table),
    )


def _governed_by(table: Any) -> Mapping[str, str]:
    """Which key of the kind puts each field into a request."""
    key = "server.endpoint"
    governed = {name.partition(".")[0]: f"{key}.length_fields" for name in table.length_fields}
    governed |= {name.partition(".")[0]: f"{key}.fields" for name in table.fields}
    governed |= dict.fromkeys(table.sampling_fields, f"{key}.sampling_fields")
    governed["prompt"] = governed["messages"] = f"{key}.prompt"
    governed["model"] = f"{key}.model"
    if table.stream_usage:
        governed["stream_options"] = f"{key}.stream_usage"
    if table.return_token_ids:
        governed["return_token_ids"] = f"{key}.return_token_ids"
    return governed
