"""The verdict as one JSON document."""

from __future__ import annotations

import msgspec

from analyzers.gate.model import GateResult
from analyzers.json_text import json_document


def render_json(result: GateResult) -> str:
    """Every field of the result and its exit code, indented, ending in a newline."""
    return json_document(msgspec.to_builtins(result) | {"exit_code": result.exit_code})
