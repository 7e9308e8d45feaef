"""Prompts of a load: the profile's texts, or synthetic ones of an exact length in tokens of the model."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from dsv4bench.errors import UsageError
from dsv4bench.load.requests import Prompt
from dsv4bench.model.tokenizer import Tokenizer
from dsv4bench.profile import Profile

_WORD = re.compile(r" [a-z]{2,}")
_FIRST_WORD_ID = 1000
"""Lower ids are bytes and syllables."""


def prompts_of(profile: Profile, vocab_size: int, *, texts: bool = False) -> list[Prompt]:
    """One prompt a request: the profile's texts round robin, or synthetic ids drawn from the model's seed.

    With `texts`, synthetic prompts are words, for servers that take nothing else; the text of each has exactly the tokens
    of its ids.

    Raises:
        UsageError: a text has tokens that a model of this vocabulary does not know.
    """
    load = profile.load
    if load.prompts is not None:
        tokenizer = Tokenizer()
        chosen = [load.prompts[index % len(load.prompts)] for index in range(load.requests)]
        prompts = [Prompt(tuple(tokenizer.encode(text)), text) for text in chosen]
        for prompt in prompts:
            if max(prompt.token_ids) >= vocab_size:
                raise UsageError(
                    f"prompt {prompt.text!r} needs the full vocabulary, but model preset {profile.model.preset!r} has "
                    f"{vocab_size} tokens; use a preset with the real vocabulary or set load.prompt_tokens"
                )
        return prompts
    assert load.prompt_tokens is not None
    if texts:
        return list(_texts(load.requests, load.prompt_tokens, profile.model.seed))
    draw = random.Random(profile.model.seed)
    # Ids 0 and 1 are BOS and EOS.
    return [
        Prompt(tuple(draw.randrange(2, vocab_size) for _ in range(load.prompt_tokens)), None)
        for _ in range(load.requests)
    ]


def _texts(requests: int, tokens: int, seed: int) -> Iterator[Prompt]:
    """Prompts of words of one token each; a row of them is split where the words are."""
    tokenizer = Tokenizer()
    draw = random.Random(seed)
    words: list[int] = []
    while len(words) < 4 * tokens or len(words) < 256:
        token = draw.randrange(_FIRST_WORD_ID, tokenizer.vocab_size)
        if _WORD.fullmatch(tokenizer.decode([token])):
            words.append(token)
    for _ in range(requests):
        while True:
            ids = [draw.choice(words) for _ in range(tokens)]
            text = tokenizer.decode(ids)
            if tokenizer.encode(text) == ids:
                yield Prompt(tuple(ids), text)
                break
