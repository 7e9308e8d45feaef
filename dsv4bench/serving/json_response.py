"""JSON answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """`content` as JSON."""
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")
