"""What the server takes on: the size of bodies, requests at once, whose they are, and open files for them."""

from __future__ import annotations

import hmac
import re
import resource
import uuid

from starlette.requests import ClientDisconnect, Request

from dsv4bench.serving.errors import ApiError

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)
_FILES_WANTED = 1 << 16


async def read_body(request: Request, most_bytes: int) -> bytes:
    """The body of a request for JSON.

    Raises:
        ApiError: 415 where it is of another type, 413 where it is larger than `most_bytes`.
        ClientDisconnect: the client left before it had sent all of it.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise ApiError(
            415, f"the body is {content_type or 'of no type'}; send Content-Type: application/json"
        )
    too_large = ApiError(413, f"the body is larger than {most_bytes} bytes")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > most_bytes:
        raise too_large
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most_bytes:
            raise too_large
        chunks.append(chunk)
    return b"".join(chunks)


def check_key(request: Request, api_key: str | None) -> None:
    """Raises ApiError (401) where a key is wanted and the request has another one, or none."""
    if api_key is None:
        return
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), api_key.encode()):
        raise ApiError(401, "the API key is missing or wrong; send Authorization: Bearer KEY")


def request_id_of(request: Request, prefix: str) -> str:
    """The id of an answer: that of the header X-Request-Id, else one of its own.

    Raises:
        ApiError: 400 for an id that cannot stand in logs and traces.
    """
    given = request.headers.get("x-request-id")
    if given is None:
        return f"{prefix}-{uuid.uuid4().hex}"
    if not _REQUEST_ID.fullmatch(given):
        raise ApiError(
            400, "X-Request-Id: expected 1 to 128 letters, digits or any of . _ : -", "X-Request-Id"
        )
    return f"{prefix}-{given}"


class Admission:
    """Counts the requests that are being answered, up to a limit."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.count = 0

    def enter(self) -> None:
        """Raises ApiError (429) at the limit."""
        if self.count >= self.most:
            raise ApiError(
                429, f"{self.count} requests are being answered, as many as the server takes; ask again later"
            )
        self.count += 1

    def leave(self) -> None:
        """A request is answered, or given up."""
        self.count -= 1


def raise_file_limit() -> int:
    """Let this process have as many open files as it may, a connection each; returns how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, _FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft


__all__ = ["Admission", "ClientDisconnect", "check_key", "raise_file_limit", "read_body", "request_id_of"]
