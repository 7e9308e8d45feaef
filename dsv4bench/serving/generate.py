"""POST /v1/completions and /v1/chat/completions: from a request to the end of its answer."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from dsv4bench.serving.answers import DONE, Answer, error_event
from dsv4bench.serving.bridge import Published, TokenStream
from dsv4bench.serving.errors import ApiError, error_response
from dsv4bench.serving.fields import ChatFields, CompletionFields, check_model, parse_body
from dsv4bench.serving.generation import Api, Generation, chat_of, completion_of
from dsv4bench.serving.limits import Body, check_key, request_id_of
from dsv4bench.serving.service import Service
from dsv4bench.serving.text import AnswerText, TextStream

_PREFIX: Final = {"completions": "cmpl", "chat": "chatcmpl"}
_SPAN: Final = {"completions": "http.completions", "chat": "http.chat_completions"}
_REASON: Final = {"length": "length", "stop": "stop", "cancelled": "aborted", "error": "error"}


class GenerationEndpoint:
    """An ASGI application of its own: it learns of a client that leaves while its answer is being made."""

    def __init__(self, service: Service, api: Api) -> None:
        self._service = service
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        request = Request(scope)
        arrival_ns = time.perf_counter_ns()
        service = self._service
        body = Body(receive)
        try:
            service.lifecycle.check_ready()
            check_key(request, service.options.api_key)
            headers = request.headers
            content = await body.read(
                headers.get("content-type", ""),
                headers.get("content-length", ""),
                service.options.most_body_bytes,
            )
            generation = self._parse(content)
            request_id = f"{_PREFIX[self._api]}-{request_id_of(request)}"
            service.admission.enter()
        except ApiError as error:
            await body.discard(service.options.most_body_bytes)
            await self._refuse(error, scope, receive, send)
            return
        except ClientDisconnect:
            return
        lane = service.take_lane()
        try:
            stream = await service.submit(generation, request_id)
        except ApiError as error:
            await self._refuse(error, scope, receive, send)
        else:
            await _Exchange(service, generation, stream, arrival_ns, lane).run(receive, send)
        finally:
            service.give_lane(lane)
            service.admission.leave()

    def _parse(self, body: bytes) -> Generation:
        model = self._service.options.model
        if self._api == "completions":
            completion, unknown = parse_body(body, CompletionFields)
            check_model(completion, model)
            return completion_of(completion, unknown)
        chat, unknown = parse_body(body, ChatFields)
        check_model(chat, model)
        return chat_of(chat, unknown)

    async def _refuse(self, error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
        self._service.metrics.observe_refusal(error.status)
        await error_response(error)(scope, receive, send)


class _Exchange:
    """One answer while it is given."""

    def __init__(
        self, service: Service, generation: Generation, stream: TokenStream, arrival_ns: int, lane: int
    ) -> None:
        self._service = service
        self._generation = generation
        self._stream = stream
        self._handle = stream.handle
        self._arrival_ns = arrival_ns
        self._lane = lane
        options = service.options
        self._answer = Answer(generation, stream.handle, options.model, options.prefix_reuse)
        self._text = _answer_text(service, generation)
        self._token_ids: list[int] = []
        self._texts: list[str] = []
        self._reasonings: list[str] = []
        self._first_ns: int | None = None
        self._last_ns: int | None = None
        self._finish_reason: str | None = None
        self._delivered = False

    async def run(self, receive: Receive, send: Send) -> None:
        """Give the answer; a client that leaves, or any other end of this task, ends the request as well."""
        watcher = asyncio.create_task(self._watch(receive))
        try:
            if self._generation.stream:
                await self._send_events(send)
            else:
                await self._send_document(send)
        except OSError:
            # The connection is gone, and the server below says so at once.
            self._stream.abandon()
        finally:
            watcher.cancel()
            self._end()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._stream.abandon()

    async def _send_events(self, send: Send) -> None:
        await send(self._start(200, b"text/event-stream; charset=utf-8"))
        async for steps in self._stream.steps():
            events = b"".join(self._event(step) for step in steps if self._finish_reason is None)
            if self._finish_reason is not None:
                failure = self._failure()
                if failure is not None:
                    events += error_event(failure)
                else:
                    events += self._answer.last_event(len(self._token_ids))
                await send({"type": "http.response.body", "body": events + DONE})
                self._delivered = True
                return
            await send({"type": "http.response.body", "body": events, "more_body": True})

    async def _send_document(self, send: Send) -> None:
        async for steps in self._stream.steps():
            for step in steps:
                if self._finish_reason is None:
                    self._take(step)
            if self._finish_reason is not None:
                break
        if self._finish_reason is None:
            return
        failure = self._failure()
        if failure is not None:
            response = error_response(failure)
            await send(
                {"type": "http.response.start", "status": failure.status, "headers": response.raw_headers}
            )
            await send({"type": "http.response.body", "body": bytes(response.body)})
            self._delivered = True
            return
        body = self._answer.document(
            "".join(self._texts), "".join(self._reasonings), self._token_ids, self._finish_reason
        )
        await send(self._start(200, b"application/json", len(body)))
        await send({"type": "http.response.body", "body": body})
        self._delivered = True

    def _start(self, status: int, media_type: bytes, length: int | None = None) -> dict[str, object]:
        given = self._handle.request.request_id.partition("-")[2]
        headers = [(b"content-type", media_type), (b"x-request-id", given.encode())]
        if length is None:
            headers.append((b"cache-control", b"no-cache"))
        else:
            headers.append((b"content-length", str(length).encode()))
        return {"type": "http.response.start", "status": status, "headers": headers}

    def _event(self, step: Published) -> bytes:
        """The event of one step; nothing where the request failed without tokens."""
        text, reasoning, token_ids = self._take(step)
        if not token_ids and self._failure() is not None:
            return b""
        finish_reason = None if self._failure() is not None else self._finish_reason
        return self._answer.chunk(text, reasoning, token_ids, finish_reason, len(self._token_ids))

    def _take(self, step: Published) -> tuple[str, str, list[int]]:
        """Take a step in: what of text and reasoning can be sent with it, and its tokens up to a stop string."""
        text = reasoning = ""
        taken: list[int] = []
        for token_id in step.token_ids:
            taken.append(token_id)
            more = self._text.feed(token_id)
            text, reasoning = text + more[0], reasoning + more[1]
            if self._text.stopped:
                break
        if step.time_ns is not None:
            self._service.metrics.observe_step(len(taken), self._arrival_ns, self._last_ns, step.time_ns)
            self._first_ns = self._first_ns or step.time_ns
            self._last_ns = step.time_ns
        self._token_ids += taken
        if self._text.stopped:
            self._finish_reason = "stop"
        elif step.last:
            assert self._handle.finish_reason is not None
            self._finish_reason = _REASON[self._handle.finish_reason]
            more = self._text.finish()
            text, reasoning = text + more[0], reasoning + more[1]
        if not self._generation.include_reasoning:
            reasoning = ""
        if not self._generation.stream:
            self._texts.append(text)
            self._reasonings.append(reasoning)
        return text, reasoning, taken

    def _failure(self) -> ApiError | None:
        """Why the answer is not whole, where it ended without being so."""
        if self._finish_reason == "error":
            return ApiError(500, f"the engine failed: {self._handle.error}")
        if self._finish_reason == "aborted":
            return ApiError(503, f"the answer was cut off: {self._service.lifecycle.describe()}")
        return None

    def _end(self) -> None:
        """Whatever happened, the request is over: its place is free, and it is counted and logged."""
        service, request_id = self._service, self._handle.request.request_id
        assert service.engine is not None
        service.engine.bridge.release(request_id)
        now_ns = time.perf_counter_ns()
        reason = (self._finish_reason if self._delivered else None) or "aborted"
        service.metrics.observe_end(
            reason, len(self._token_ids), self._arrival_ns, self._first_ns, self._last_ns, now_ns
        )
        service.log_end(self._handle, self._token_ids, reason)
        service.recorder.complete(
            _SPAN[self._generation.api],
            "request",
            self._arrival_ns,
            now_ns,
            lane=self._lane,
            request_id=request_id,
            max_tokens=self._handle.request.max_tokens,
            stream=self._generation.stream,
            finish_reason=reason,
        )


def _answer_text(service: Service, generation: Generation) -> AnswerText:
    tokenizer = service.prompts.tokenizer

    def text() -> TextStream:
        return TextStream(
            tokenizer,
            generation.stop,
            min_tokens=generation.min_tokens,
            skip_special_tokens=generation.skip_special_tokens,
        )

    return AnswerText(tokenizer, text(), text() if generation.thinking else None)
