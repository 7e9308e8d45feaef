"""What is refused and what fails, as HTTP says it: one body that clients of pypto-serving and of OpenAI both read."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from dsv4bench.serving.json_response import json_response

_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "service_unavailable_error",
}
RETRY_AFTER_S = 1
"""When a client that was refused for now should ask again."""


class ApiError(Exception):
    """A request that is not answered: its HTTP status, why, and which field of it was wrong, if one was."""

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param


def error_body(error: ApiError) -> dict[str, Any]:
    """`{"object": "error", "message"}` as pypto-serving answers, with OpenAI's `{"error": {...}}` beside it."""
    kind = _TYPES.get(error.status, "invalid_request_error")
    details = {"message": error.message, "type": kind, "param": error.param, "code": error.status}
    return {"object": "error", "message": error.message, "error": details}


def error_response(error: ApiError) -> Response:
    """The answer to a request that is refused; one that may be asked again says when."""
    response = json_response(error_body(error), error.status)
    if error.status in (429, 503):
        response.headers["Retry-After"] = str(RETRY_AFTER_S)
    if error.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response
