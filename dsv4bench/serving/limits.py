"""What the server takes on: the size of bodies, requests at once, whose they are, and open files for them."""

from __future__ import annotations

import contextlib
import hmac
import re
import resource
import uuid

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from dsv4bench.serving.errors import ApiError

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)
_FILES_WANTED = 1 << 16


class Body:
    """The body of a request as it arrives."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._more = True

    async def read(self, content_type: str, content_length: str, most_bytes: int) -> bytes:
        """All of it; the headers say of which type and how long it is.

        Raises:
            ApiError: 415 where it is no JSON, 413 where it is larger than `most_bytes`.
            ClientDisconnect: the client left before it had sent all of it.
        """
        kind = content_type.partition(";")[0].strip().lower()
        if kind != "application/json":
            raise ApiError(415, f"the body is {kind or 'of no type'}; send Content-Type: application/json")
        too_large = ApiError(413, f"the body is larger than {most_bytes} bytes")
        if content_length.isdecimal() and int(content_length) > most_bytes:
            raise too_large
        chunks: list[bytes] = []
        size = 0
        while self._more:
            chunks.append(await self._next())
            size += len(chunks[-1])
            if size > most_bytes:
                raise too_large
        return b"".join(chunks)

    async def discard(self, most_bytes: int) -> None:
        """Take what is left of it: a client that is still sending does not read the refusal."""
        size = 0
        with contextlib.suppress(ClientDisconnect):
            while self._more and size <= most_bytes:
                size += len(await self._next())

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._more = False
            raise ClientDisconnect
        self._more = message.get("more_body", False)
        return bytes(message.get("body", b""))


def check_key(request: Request, api_key: str | None) -> None:
    """Raises ApiError (401) where a key is wanted and the request has another one, or none."""
    if api_key is None:
        return
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), api_key.encode()):
        raise ApiError(401, "the API key is missing or wrong; send Authorization: Bearer KEY")


def request_id_of(request: Request) -> str:
    """The id that the client gave the request in the header X-Request-Id, else one of our own.

    Raises:
        ApiError: 400 for an id that cannot stand in logs and traces.
    """
    given = request.headers.get("x-request-id")
    if given is None:
        return uuid.uuid4().hex
    if not _REQUEST_ID.fullmatch(given):
        raise ApiError(
            400, "X-Request-Id: expected 1 to 128 letters, digits or any of . _ : -", "X-Request-Id"
        )
    return given


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
