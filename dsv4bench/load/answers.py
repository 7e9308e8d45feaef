"""What the events of one answer say: how many tokens each brought, how it ended, and what the server counted.

docs/metrics.md, Tokens of an event: token ids count first, then the server's running usage; else nobody knows, and only the
usage at the end says how many there were in all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

DONE = b"[DONE]"
_COUNTS = ("steps", "accepted", "proposed", "discarded", "prefills", "rank", "cached_tokens", "preemptions")


class AnswerError(Exception):
    """The server said that the request failed, or what it sent is no answer."""


class _Output(NamedTuple):
    """One event that brought output: its token ids by number, and the tokens that the server had counted by then."""

    time_ns: int
    ids: int | None
    running: int | None


class Answer:
    """One answer, filled event by event; times in int64 ns of CLOCK_MONOTONIC."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self.token_times_ns: list[int] = []
        self.text: list[str] = []
        self.finish_reason: str | None = None
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.request_id: str | None = None
        self.counts: dict[str, int] = {}
        """What the server counted of this request: keys of RequestRecord."""
        self.is_done = False
        """Whether `[DONE]` came."""
        self._outputs: list[_Output] = []

    @property
    def is_whole(self) -> bool:
        """Whether the server said in any way that this was all."""
        return self.is_done or self.finish_reason is not None

    @property
    def tells_ids(self) -> bool:
        """Whether every output event brought its token ids."""
        return bool(self.token_ids) and all(output.ids is not None for output in self._outputs)

    @property
    def events(self) -> list[tuple[int, int | None]]:
        """(arrival, tokens or None) of every event that brought output."""
        counted = _counted(self._outputs)
        return [(output.time_ns, tokens) for output, tokens in zip(self._outputs, counted, strict=True)]

    @property
    def tokens(self) -> int:
        """Tokens so far, as far as they are known: for a display."""
        if self.token_ids:
            return len(self.token_ids)
        return self.completion_tokens or len(self._outputs)

    def take(self, data: bytes, now_ns: int) -> None:
        """Take in one event.

        Raises:
            AnswerError: it says that the request failed, or is no event of such an answer.
        """
        if data.strip() == DONE:
            self.is_done = True
            return
        try:
            event = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise AnswerError(f"an event that is no JSON: {shown(data)}") from error
        if not isinstance(event, dict):
            raise AnswerError(f"an event that is no object: {shown(data)}")
        if (reason := error_of(event)) is not None:
            raise AnswerError(reason)
        self._take_event(event, now_ns)

    def _take_event(self, event: Mapping[str, Any], now_ns: int) -> None:
        if isinstance(name := event.get("id"), str):
            self.request_id = name
        self._take_usage(event.get("usage"))
        if isinstance(own := event.get("dsv4bench"), dict):
            self.counts.update({key: own[key] for key in _COUNTS if isinstance(own.get(key), int)})
        choices = event.get("choices")
        if not isinstance(choices, list):
            return
        text, ids = "", None
        for choice in choices:
            if not isinstance(choice, dict):
                raise AnswerError(f"a choice that is no object: {shown(choice)}")
            text += _text_of(choice)
            if isinstance(chosen := choice.get("token_ids"), list):
                ids = [*(ids or []), *chosen]
            if isinstance(reason := choice.get("finish_reason"), str):
                self.finish_reason = reason
        if not text and not ids:
            return
        self.text.append(text)
        running = self.completion_tokens if event.get("usage") is not None else None
        self._outputs.append(_Output(now_ns, None if ids is None else len(ids), running))
        if ids is not None:
            self.token_ids += ids
            self.token_times_ns += [now_ns] * len(ids)

    def _take_usage(self, usage: object) -> None:
        if not isinstance(usage, dict):
            return
        prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
        if isinstance(prompt, int):
            self.prompt_tokens = prompt
        if isinstance(completion, int):
            self.completion_tokens = completion


def _counted(outputs: Sequence[_Output]) -> list[int | None]:
    """Tokens of every output event: by its ids, or by a usage that every event goes on with; else None.

    A usage that only the last event bears is of all of them.
    """
    if all(output.ids is not None for output in outputs):
        return [output.ids for output in outputs]
    running = [output.running for output in outputs if output.running is not None]
    if len(running) == len(outputs) and running == sorted(running):
        return [after - before for before, after in pairwise([0, *running])]
    return [output.ids for output in outputs]


def _text_of(choice: Mapping[str, Any]) -> str:
    """The text of a choice, of a completion or of a chat; "" where it has none, as in the first event of a chat."""
    if isinstance(text := choice.get("text"), str):
        return text
    delta = choice.get("delta") or choice.get("message")
    if not isinstance(delta, dict):
        return ""
    parts = (delta.get("reasoning_content") or delta.get("reasoning"), delta.get("content"))
    return "".join(part for part in parts if isinstance(part, str))


def error_of(document: Mapping[str, Any]) -> str | None:
    """The server's words for what went wrong, in any of the shapes that servers have; None where nothing did."""
    error = document.get("error")
    if isinstance(error, dict):
        return str(error.get("message") or error)
    if error:
        return str(error)
    if document.get("object") == "error":
        return str(document.get("message") or document)
    return None


def shown(value: object) -> str:
    """A value for people, not at any length."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else repr(value)
    return text if len(text) <= 200 else f"{text[:197]}..."
