"""The load of a profile: its prompts as token ids, and the requests of a batch."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from dsv4bench.engine.requests import Request, Sampling
from dsv4bench.errors import UsageError
from dsv4bench.model.config import ModelConfig
from dsv4bench.model.tokenizer import Tokenizer
from dsv4bench.profile import Profile
from dsv4bench.worker.task_args import NO_OVERRIDE, SPOILT

_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class Prompt:
    """A prompt as the engine gets it, and its text where there is one."""

    token_ids: tuple[int, ...]
    text: str | None


def prompts_of(profile: Profile, config: ModelConfig) -> list[Prompt]:
    """One prompt a request: the profile's texts round robin, or synthetic ids drawn from the model's seed.

    Raises:
        UsageError: a text has tokens that a model of this vocabulary does not know.
    """
    load = profile.load
    if load.prompts is not None:
        tokenizer = Tokenizer()
        texts = [load.prompts[index % len(load.prompts)] for index in range(load.requests)]
        prompts = [Prompt(tuple(tokenizer.encode(text)), text) for text in texts]
        for prompt in prompts:
            if max(prompt.token_ids) >= config.vocab_size:
                raise UsageError(
                    f"prompt {prompt.text!r} needs the full vocabulary, but model preset {profile.model.preset!r} has "
                    f"{config.vocab_size} tokens; use a preset with the real vocabulary or set load.prompt_tokens"
                )
        return prompts
    assert load.prompt_tokens is not None
    draw = random.Random(profile.model.seed)
    # Ids 0 and 1 are BOS and EOS.
    return [
        Prompt(tuple(draw.randrange(2, config.vocab_size) for _ in range(load.prompt_tokens)), None)
        for _ in range(load.requests)
    ]


def requests_of(
    profile: Profile, prompts: list[Prompt], *, batch: str, output_tokens: int, spoilt_share: float = 0.0
) -> list[Request]:
    """The requests of one batch; `batch` begins their ids. `spoilt_share` of their drafts are made wrong."""
    load = profile.load
    drafts = spoilt_drafts(spoilt_share, profile.engine.max_model_len) if spoilt_share else None
    sampling = Sampling(load.temperature, load.top_k, load.top_p, load.seed)
    return [
        Request(f"{batch}-{index}", prompt.token_ids, output_tokens, load.ignore_eos, sampling, drafts)
        for index, prompt in enumerate(prompts)
    ]


def spoilt_drafts(share: float, positions: int) -> list[int]:
    """Which positions of a request get a wrong draft, as its `injected_drafts`: always the same ones.

    They follow the golden ratio, so that of every second, third, ... position as large a share is spoilt: an accepted
    draft leaves a position out.
    """
    return [SPOILT if position * _GOLDEN % 1 < share else NO_OVERRIDE for position in range(positions)]
