"""Runs of the engine to compare, and the tokens that the model alone gives."""

import random
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import torch

from dsv4bench.cache.layout import CacheLayout
from dsv4bench.engine.engine import Engine, EngineOptions
from dsv4bench.engine.requests import GREEDY, Request, RequestHandle, Sampling
from dsv4bench.model.batch import BlockTables, CachePools, Rows
from dsv4bench.model.config import ModelConfig
from dsv4bench.model.exchange import LocalExchange
from dsv4bench.model.model import DeepSeekV4, load_weights

NO_DRAFT = -1


def draw_prompts(config: ModelConfig, lengths: Sequence[int], seed: int = 7) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(2, config.vocab_size) for _ in range(length)] for length in lengths]


def plain_greedy(
    config: ModelConfig, checkpoint: Path, prompts: list[list[int]], count: int
) -> list[list[int]]:
    """The next `count` tokens of each prompt: one model, one sequence, one token a call."""
    torch.set_num_threads(1)
    model = DeepSeekV4(config, load_weights(checkpoint), LocalExchange())
    length = max(map(len, prompts)) + count
    layout = CacheLayout.derive(config, length)
    pages = layout.blocks_for(length)
    tables = BlockTables(
        tuple(torch.arange(blocks, dtype=torch.int32)[None] for blocks in pages),
        torch.tensor([pages], dtype=torch.int32),
    )

    def continue_(prompt: list[int]) -> list[int]:
        pools = CachePools.zeros(layout, pages)

        def feed(first: int, tokens: list[int]) -> int:
            positions = torch.arange(first, first + len(tokens))
            rows = Rows(torch.tensor(tokens), positions, torch.zeros(len(tokens), dtype=torch.int64))
            return int(model.logits(model.forward(rows, tables, pools)[-1:]).argmax())

        for start in range(0, len(prompt), 128):
            token = feed(start, prompt[start : start + 128])
        tokens = [token]
        while len(tokens) < count:
            tokens.append(feed(len(prompt) + len(tokens) - 1, tokens[-1:]))
        return tokens

    with torch.inference_mode():
        return [continue_(prompt) for prompt in prompts]


def run(
    config: ModelConfig,
    checkpoint: Path,
    prompts: list[list[int]],
    output: int,
    *,
    injected: Sequence[list[int]] | None = None,
    sampling: Sequence[Sampling] | None = None,
    **options: Any,
) -> list[RequestHandle]:
    """Finished handles of one engine run, a request a prompt; `options` are EngineOptions."""
    chosen = {"ranks": 1, "requests_per_rank": 2, "max_model_len": 256, **options}
    engine = Engine(EngineOptions(config, checkpoint, **chosen))
    try:
        handles = [
            engine.submit(
                Request(
                    f"r{index}",
                    prompt,
                    output,
                    sampling=sampling[index] if sampling else GREEDY,
                    injected_drafts=injected[index] if injected else None,
                )
            )
            for index, prompt in enumerate(prompts)
        ]
        for handle in handles:
            assert handle.wait(60)
            assert handle.finish_reason == "length", handle.error
    finally:
        engine.close()
    return handles


def tokens_of(handles: list[RequestHandle]) -> list[list[int]]:
    return [handle.token_ids for handle in handles]


def drafts(prompt: list[int], tokens: list[int], wrong: Collection[int], vocab: int) -> list[int]:
    """Injected drafts by position: `tokens` behind the prompt, but other ones at the positions in `wrong`."""
    first = len(prompt)
    return [NO_DRAFT] * first + [
        (token + 1) % vocab if first + index in wrong else token for index, token in enumerate(tokens)
    ]


def steps_and_acceptance(
    prompt: list[int], output: int, wrong: Collection[int], speculative_tokens: int
) -> tuple[int, int]:
    """(steps, drafts accepted) of a request whose drafts are right except at the positions in `wrong`."""
    tail, steps, accepted = len(prompt), 0, 0
    while tail < len(prompt) + output - 1:
        right = 0
        while right < speculative_tokens and tail + 1 + right not in wrong:
            right += 1
        tail += right + 1
        steps += 1
        accepted += right
    return steps, accepted
