"""Server kinds for people: the list of them, and one as a run would start it."""

from __future__ import annotations

import importlib.util
import json
import shlex
import shutil
from collections.abc import Sequence
from typing import Any

from analyzers.text.tables import Column, Table
from dsv4bench.server_kinds.kind import ServerKind
from dsv4bench.server_kinds.resolve import ResolvedServer


def kinds_table(kinds: Sequence[ServerKind]) -> Table:
    """One kind a row: what it is, what it can give, and whether its program is on this machine."""
    rows = [[kind.name, kind.description, ", ".join(_gives(kind)), _found(kind)] for kind in kinds]
    columns = [Column("kind"), Column("what it is"), Column("gives"), Column("program")]
    return Table("Server kinds", columns, rows)


def server_lines(server: ResolvedServer) -> list[str]:
    """A resolved server, line by line."""
    kind, endpoint = server.kind, server.endpoint
    environment = [f"{name}={shlex.quote(value)}" for name, value in server.shown_environment.items()]
    lengths = ", ".join(endpoint.length_fields)
    fields = "".join(f", {name} = {json.dumps(value)}" for name, value in endpoint.fields.items())
    lines = [
        f"{kind.name}: {kind.description}",
        "",
        "command",
        f"  {shlex.join(server.command)}",
        "environment",
        *[f"  {line}" for line in environment or ["as it is"]],
        "asked",
        f"  POST {server.url}{endpoint.path} ({endpoint.api}), model {endpoint.model}, prompts as {endpoint.prompt_as}",
        f"  output tokens in {lengths}{fields}",
        f"  sampling: {', '.join(sorted(endpoint.sampling_fields)) or 'none'}",
        "ready",
        f"  GET {kind.health.path} answers {kind.health.status}{_line(kind)}, within {kind.health.timeout_s:g} s",
        "gives",
        f"  {', '.join(_gives(kind))}",
        "stopped",
        f"  by {kind.stop.signal}; what is left after {kind.stop.grace_s:g} s is killed",
    ]
    if server.profiling is not None:
        lines += [
            "profiler",
            f"  {server.profiling.start}, {server.profiling.stop}; writes {server.profiling.output}",
        ]
    return lines


def described(server: ResolvedServer) -> dict[str, Any]:
    """The same as plain data."""
    return {
        "kind": server.settings,
        "command": server.command,
        "environment": server.shown_environment,
        "url": server.url,
        "model": server.endpoint.model,
        "program_found": shutil.which(server.command[0]) is not None,
    }


def _gives(kind: ServerKind) -> list[str]:
    gives = ["client's view"]
    if kind.profiling is not None:
        gives.append("serving trace" if kind.profiling.format == "sa_profile" else "torch.profiler traces")
    if kind.strace:
        gives.append("runtime records")
    if kind.metrics is not None:
        gives.append("metrics")
    return gives


def _found(kind: ServerKind) -> str:
    """Whether the program of a kind, or the module that Python runs for it, is on this machine."""
    program = kind.command[0]
    if program == "{python}" and kind.command[1:2] == ["-m"]:
        found = importlib.util.find_spec(kind.command[2].partition(".")[0]) is not None
    elif not program.startswith("{"):
        found = shutil.which(program) is not None
    else:
        return "with --url alone"
    return "found" if found else "not found"


def _line(kind: ServerKind) -> str:
    return f" and its log says {kind.health.log_line!r}" if kind.health.log_line else ""
