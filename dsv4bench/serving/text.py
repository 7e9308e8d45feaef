"""Tokens to text while they arrive: whole characters only, and nothing of a stop string or behind it."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from dsv4bench.model.tokenizer import Tokenizer


class TextStream:
    """The text of one answer. `feed` takes a token and returns what can be sent; `finish` returns what was held back.

    Bytes of a character are held back until it is whole, and text until no stop string can begin in it. `stopped` is the
    stop string that ended the text, which is not part of it.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: Sequence[str] = (),
        *,
        min_tokens: int = 0,
        skip_special_tokens: bool = True,
    ) -> None:
        """Stop strings count from behind the first `min_tokens` tokens on."""
        self.stopped: str | None = None
        self.tokens = 0
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stop = tuple(stop)
        self._held_back = max(map(len, stop), default=1) - 1
        self._min_tokens = min_tokens
        self._skip_special_tokens = skip_special_tokens
        self._pending = ""

    def feed(self, token_id: int) -> str:
        """Take one token; nothing more must come once `stopped` is set."""
        self.tokens += 1
        if not (self._skip_special_tokens and self._tokenizer.is_special(token_id)):
            self._pending += self._decoder.decode(self._tokenizer.token_bytes(token_id))
        return self._sendable(self._held_back)

    def finish(self) -> str:
        """The rest; bytes that are no whole character are U+FFFD."""
        if self.stopped is not None:
            return ""
        self._pending += self._decoder.decode(b"", final=True)
        return self._sendable(0)

    def _sendable(self, held_back: int) -> str:
        if self._stop and self.tokens > self._min_tokens:
            found = [(place, stop) for stop in self._stop if (place := self._pending.find(stop)) >= 0]
            if found:
                place, self.stopped = min(found)
                text, self._pending = self._pending[:place], ""
                return text
        cut = max(0, len(self._pending) - held_back)
        text, self._pending = self._pending[:cut], self._pending[cut:]
        return text


class AnswerText:
    """The text of an answer, and apart from it what the model reasons before it (up to `</think>`)."""

    def __init__(self, tokenizer: Tokenizer, text: TextStream, reasoning: TextStream | None) -> None:
        """`reasoning` is None where the answer begins at once."""
        self._text = text
        self._reasoning = reasoning
        self._think_end = tokenizer.encode("</think>")[0] if reasoning is not None else None

    def feed(self, token_id: int) -> tuple[str, str]:
        """Take one token; returns what can be sent of the text and of the reasoning."""
        if self._reasoning is None:
            return self._text.feed(token_id), ""
        if token_id != self._think_end:
            return "", self._reasoning.feed(token_id)
        rest, self._text.tokens = self._reasoning.finish(), self._reasoning.tokens + 1
        self._reasoning = None
        return "", rest

    def finish(self) -> tuple[str, str]:
        """What was held back of both."""
        if self._reasoning is not None:
            return "", self._reasoning.finish()
        return self._text.finish(), ""

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended it."""
        return self._text.stopped is not None or (
            self._reasoning is not None and self._reasoning.stopped is not None
        )
