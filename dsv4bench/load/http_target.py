"""Requests to a server over HTTP: sent, read as they stream, and made a record of, whatever becomes of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec

from analyzers.rundir import RequestRecord
from dsv4bench.load.answers import Answer, AnswerError, error_of, shown
from dsv4bench.load.endpoint import Endpoint
from dsv4bench.load.requests import LoadRequest, Phase
from dsv4bench.load.sse import EventParser

_CHUNK_BYTES = 1 << 16
_FAILED = frozenset({"error", "aborted"})
_FIELD_REFUSED = frozenset({400, 422})
_WORDS_OF_BODY = 500
_JSON = "application/json"
_GONE = "given up before it had ended"

Sampling = Mapping[str, float | int]


class HttpTarget:
    """A `Target` that is a server; an asynchronous context manager that holds its connections.

    `sampling` holds the fields of sampling that the load asks for, by their names in the interface; those that the
    endpoint does not know are not sent. `timeout_s` is of one request. `tokens` counts those that have come.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        sampling: Sampling | None = None,
        timeout_s: float | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self.tokens = 0
        known = endpoint.sampling_fields
        self._sampling = {name: value for name, value in (sampling or {}).items() if name in known}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        headers = {}
        if self._endpoint.api_key:
            headers["Authorization"] = f"Bearer {self._endpoint.api_key}"
        self._session = aiohttp.ClientSession(
            self._endpoint.url,
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            headers=headers,
            read_bufsize=_CHUNK_BYTES,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def send(self, request: LoadRequest, planned_ns: int | None, phase: Phase) -> RequestRecord:
        """See `Target.send`. One that is cancelled is a record with what had come, too."""
        assert self._session is not None, "used outside of its context"
        body = msgspec.json.encode(self.body_of(request))
        headers = {"Content-Type": _JSON, "X-Request-Id": request.request_id}
        answer = Answer()
        status: int | None = None
        error: str | None = None
        send_ns = time.perf_counter_ns()
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._session.post(self._endpoint.path, data=body, headers=headers) as response,
            ):
                status = response.status
                if status == 200:
                    await self._read(response, answer)
                else:
                    error = await self._refusal(response)
        except TimeoutError:
            error = f"timed out after {self._timeout_s:g} s (load.timeout_s)"
        except asyncio.CancelledError:
            error = _GONE
        except AnswerError as failure:
            error = str(failure)
        except (aiohttp.ClientError, OSError) as failure:
            error = f"the connection failed: {failure or type(failure).__name__}"
        return _record(request, phase, planned_ns, send_ns, answer, status, error)

    def body_of(self, request: LoadRequest) -> dict[str, Any]:
        """The body of a request, as the endpoint wants it."""
        endpoint = self._endpoint
        body: dict[str, Any] = {"model": endpoint.model, "stream": True}
        prompt = request.prompt
        content: Any = list(prompt.token_ids) if endpoint.prompt_as == "token_ids" else prompt.text
        if endpoint.api == "chat":
            body["messages"] = [{"role": "user", "content": content}]
        else:
            body["prompt"] = content
        body.update(self._sampling)
        if endpoint.stream_usage:
            body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
        if endpoint.return_token_ids:
            body["return_token_ids"] = True
        nested: dict[str, dict[str, Any]] = {}
        lengths = dict.fromkeys(endpoint.length_fields, request.output_tokens)
        for name, value in {**endpoint.fields, **lengths}.items():
            outer, dot, inner = name.partition(".")
            if dot:
                nested.setdefault(outer, {})[inner] = value
            elif value is None:
                body.pop(name, None)
            else:
                body[name] = value
        # A table in a field of the interface is a text of JSON there (transformers serve: generation_config).
        body.update({name: msgspec.json.encode(table).decode() for name, table in nested.items()})
        return body

    async def _read(self, response: aiohttp.ClientResponse, answer: Answer) -> None:
        if response.content_type == _JSON:
            document = await _document(response)
            reason = error_of(document) if isinstance(document, dict) else None
            raise AnswerError(reason or "the server answered in one piece, although a stream was asked for")
        parser = EventParser()
        told = 0
        async for chunk in response.content.iter_any():
            now = time.perf_counter_ns()
            for data in parser.feed(chunk):
                answer.take(data, now)
            self.tokens += answer.tokens - told
            told = answer.tokens
        if not answer.is_whole:
            inside = " inside an event" if parser.unfinished else ""
            raise AnswerError(f"the stream ended{inside} before the server said that it was complete")

    async def _refusal(self, response: aiohttp.ClientResponse) -> str:
        """What the server says of a status other than 200, and which key governs a field that it names."""
        raw = await response.read()
        try:
            document = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            document = None
        words = error_of(document) if isinstance(document, dict) else None
        if words is None and isinstance(document, dict) and "detail" in document:
            words = shown(document["detail"])
        said = words or raw[:_WORDS_OF_BODY].decode(errors="replace").strip() or (response.reason or "")
        text = f"HTTP {response.status}: {said}"
        if wait := response.headers.get("Retry-After"):
            text += f" (Retry-After: {wait})"
        if response.status in _FIELD_REFUSED:
            governing = [
                f"{field} is governed by {key}"
                for field, key in self._endpoint.governed_by.items()
                if _names(raw.decode(errors="replace"), field)
            ]
            text += f"; {'; '.join(governing)}" if governing else ""
        return text


def _names(text: str, field: str) -> bool:
    """Whether a server's words name a field of the request."""
    return any(f"{quote}{field}{quote}" in text for quote in ("'", '"', "`")) or field in text.split()


async def _document(response: aiohttp.ClientResponse) -> Any:
    raw = await response.read()
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise AnswerError(f"an answer that is no JSON: {shown(raw)}") from error


def _record(
    request: LoadRequest,
    phase: Phase,
    planned_ns: int | None,
    send_ns: int,
    answer: Answer,
    status: int | None,
    error: str | None,
) -> RequestRecord:
    tells_ids = answer.tells_ids
    if error is None and answer.finish_reason in _FAILED:
        error = f"the server ended the request with finish_reason {answer.finish_reason}"
    if error is None and tells_ids and answer.completion_tokens not in (None, len(answer.token_ids)):
        error = f"the server counts {answer.completion_tokens} output tokens and sent {len(answer.token_ids)} token ids"
    return RequestRecord(
        request_id=request.request_id,
        rank=answer.counts.get("rank"),
        prompt_token_ids=list(request.prompt.token_ids),
        output_token_ids=answer.token_ids if tells_ids else [],
        send_ns=send_ns,
        token_times_ns=answer.token_times_ns if tells_ids else [],
        finish_reason=answer.finish_reason,
        prompt=request.prompt.text,
        text="".join(answer.text),
        error=error,
        phase=phase,
        planned_ns=planned_ns,
        server_request_id=answer.request_id,
        http_status=status,
        prompt_tokens=answer.prompt_tokens,
        completion_tokens=answer.completion_tokens,
        events=None if tells_ids else answer.events,
        **{key: value for key, value in answer.counts.items() if key != "rank"},
    )
