"""Prompts of a load: texts, or synthetic ones of an exact length in tokens of the model."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import cached_property

from dsv4bench.errors import UsageError
from dsv4bench.load.requests import Prompt
from dsv4bench.model.tokenizer import Tokenizer

_WORD = re.compile(r" [a-z]{2,}")
_FIRST_WORD_ID = 1000
"""Lower ids are bytes and syllables."""
_WORDS = 2048
_FIRST_ID = 2
"""Ids 0 and 1 are BOS and EOS."""


class PromptMaker:
    """Makes prompts for a model with `vocab_size` tokens.

    With `texts`, synthetic prompts are rows of words, for servers that take nothing else: each word is one token, and the
    tokenizer splits where words begin, so that the text has exactly the tokens of its ids.
    """

    def __init__(self, vocab_size: int, model: str, *, texts: bool) -> None:
        self._vocab_size = vocab_size
        self._model = model
        self._texts = texts

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return Tokenizer()

    def of_text(self, text: str) -> Prompt:
        """The prompt of a text.

        Raises:
            UsageError: it has tokens that the model does not know.
        """
        prompt = Prompt(tuple(self._tokenizer.encode(text)), text)
        if not prompt.token_ids:
            raise UsageError("a prompt of the load is empty")
        if max(prompt.token_ids) >= self._vocab_size:
            raise UsageError(
                f"prompt {prompt.text!r} needs the full vocabulary, but model preset {self._model!r} has "
                f"{self._vocab_size} tokens; use a preset with the real vocabulary or set load.prompt_tokens"
            )
        return prompt

    def draw(self, count: int, source: random.Random) -> list[int]:
        """Ids of a synthetic prompt, or of a part of one."""
        if self._texts:
            return [source.choice(self._words) for _ in range(count)]
        return [source.randrange(_FIRST_ID, self._vocab_size) for _ in range(count)]

    def of_ids(self, ids: Sequence[int]) -> Prompt:
        """The synthetic prompt of ids that were drawn."""
        if not self._texts:
            return Prompt(tuple(ids), None)
        text = self._tokenizer.decode(ids)
        again = self._tokenizer.encode(text)
        if again != list(ids):
            raise UsageError(
                f"a synthetic prompt of {len(ids)} tokens reads as {len(again)} by the model's tokenizer"
            )
        return Prompt(tuple(ids), text)

    @cached_property
    def _words(self) -> list[int]:
        tokenizer, found = self._tokenizer, dict[int, None]()
        source = random.Random(0)
        most = min(self._vocab_size, tokenizer.vocab_size)
        if most <= _FIRST_WORD_ID:
            raise UsageError(
                f"model preset {self._model!r} has {self._vocab_size} tokens, no words for prompts as text: use one with "
                "the real vocabulary"
            )
        while len(found) < _WORDS:
            token = source.randrange(_FIRST_WORD_ID, most)
            text = tokenizer.decode([token])
            if _WORD.fullmatch(text) and tokenizer.encode(text) == [token]:
                found[token] = None
        return list(found)
