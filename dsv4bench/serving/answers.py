"""The bodies of answers: one document, or events of a stream (server-sent events)."""

from __future__ import annotations

import time
from typing import Any, Final

import msgspec

from dsv4bench.engine.requests import RequestHandle
from dsv4bench.serving.errors import ApiError, error_body
from dsv4bench.serving.generation import Generation

DONE: Final = b"data: [DONE]\n\n"


def event(document: Any) -> bytes:
    """One event of a stream."""
    return b"data: " + msgspec.json.encode(document) + b"\n\n"


def error_event(error: ApiError) -> bytes:
    """An error behind status 200."""
    return event({"error": error_body(error)["error"]})


class Answer:
    """Writes what is known of one answer, as text of a completion or as a message of a chat."""

    def __init__(self, generation: Generation, handle: RequestHandle, model: str, cached_known: bool) -> None:
        """`cached_known` says whether the engine reuses prefixes, so that its cached tokens mean anything."""
        self._generation = generation
        self._handle = handle
        self._cached_known = cached_known
        self._head = {"id": handle.request.request_id, "created": int(time.time()), "model": model}
        self._chat = generation.api == "chat"
        self._first = True

    def chunk(
        self, text: str, reasoning: str, token_ids: list[int], finish_reason: str | None, tokens: int
    ) -> bytes:
        """The event of one step; `tokens` is how many have come with it."""
        choice: dict[str, Any] = {"index": 0}
        if self._chat:
            delta: dict[str, Any] = {"role": "assistant", "content": text}
            if reasoning:
                delta["reasoning"] = reasoning
            choice["delta"] = delta
        else:
            choice["text"] = text
        choice["logprobs"] = None
        choice["finish_reason"] = finish_reason
        document: dict[str, Any] = {**self._head, "object": self._object(stream=True), "choices": [choice]}
        if self._generation.return_token_ids:
            choice["token_ids"] = token_ids
            if self._first:
                (document if self._chat else choice)["prompt_token_ids"] = self._prompt
        if self._generation.continuous_usage:
            document["usage"] = self._usage(tokens)
        self._first = False
        return event(document)

    def last_event(self, tokens: int) -> bytes:
        """The event behind the last tokens: no choices, the true counts."""
        head = {**self._head, "object": self._object(stream=True), "choices": []}
        return event({**head, "usage": self._usage(tokens), "dsv4bench": self._counts()})

    def document(self, text: str, reasoning: str, token_ids: list[int], finish_reason: str) -> bytes:
        """The answer to a request that is not streamed."""
        choice: dict[str, Any] = {"index": 0}
        if self._chat:
            message: dict[str, Any] = {"role": "assistant", "content": text}
            if reasoning:
                message["reasoning"] = reasoning
            choice["message"] = message
        else:
            choice["text"] = text
        choice["logprobs"] = None
        choice["finish_reason"] = finish_reason
        document: dict[str, Any] = {**self._head, "object": self._object(stream=False), "choices": [choice]}
        if self._generation.return_token_ids:
            choice["token_ids"] = token_ids
            (document if self._chat else choice)["prompt_token_ids"] = self._prompt
        document["usage"] = self._usage(len(token_ids))
        document["dsv4bench"] = self._counts()
        return msgspec.json.encode(document)

    @property
    def _prompt(self) -> list[int]:
        return list(self._handle.request.prompt_token_ids)

    def _object(self, *, stream: bool) -> str:
        if not self._chat:
            return "text_completion"
        return "chat.completion.chunk" if stream else "chat.completion"

    def _usage(self, tokens: int) -> dict[str, Any]:
        prompt = len(self._handle.request.prompt_token_ids)
        usage: dict[str, Any] = {
            "prompt_tokens": prompt,
            "completion_tokens": tokens,
            "total_tokens": prompt + tokens,
        }
        if self._cached_known:
            usage["prompt_tokens_details"] = {"cached_tokens": self._handle.cached_tokens}
        return usage

    def _counts(self) -> dict[str, Any]:
        """What the engine counted of the request, for clients that measure speculation."""
        handle = self._handle
        counts: dict[str, Any] = {
            "rank": handle.rank,
            "prefills": handle.prefills,
            "steps": handle.steps,
            "accepted": handle.accepted,
            "proposed": handle.proposed,
            "discarded": handle.discarded,
            "preemptions": handle.preemptions,
        }
        if self._cached_known:
            counts["cached_tokens"] = handle.cached_tokens
        if self._generation.unknown_fields:
            counts["ignored_fields"] = list(self._generation.unknown_fields)
        return counts
