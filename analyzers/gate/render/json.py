"""The verdict as one JSON document."""

from __future__ import annotations

import msgspec

from analyzers.gate.model import GateResult


def render_json(result: GateResult) -> str:
    """Every field of the result and its exit code, indented, ending in a newline."""
    document = msgspec.to_builtins(result) | {"exit_code": result.exit_code}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
