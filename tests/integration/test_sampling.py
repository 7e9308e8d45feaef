"""Seeded sampling gives one text, however the engine is run."""

from pathlib import Path
from typing import Any

import pytest

from dsv4bench.engine.requests import GREEDY, Sampling
from dsv4bench.model.config import preset
from tests.integration.engine_runs import NO_DRAFT, draw_prompts, plain_greedy, run, tokens_of

CONFIG = preset("test-b")
OUTPUT = 32
PROMPTS = draw_prompts(CONFIG, (5, 17, 64, 31))
SAMPLING = (
    Sampling(temperature=1.0, seed=1),
    GREEDY,
    Sampling(temperature=0.8, top_k=20, top_p=0.9, seed=2),
    Sampling(temperature=1.3, top_p=0.7, seed=3),
)


@pytest.fixture(scope="module")
def sampled(checkpoint: Path) -> list[list[int]]:
    """The text without speculation, one request at a time on one rank."""
    options: dict[str, Any] = {"depth": 1, "mtp": 0, "requests_per_rank": 1}
    handles = run(CONFIG, checkpoint, PROMPTS, OUTPUT, sampling=SAMPLING, **options)
    return tokens_of(handles)


def test_only_requests_with_a_temperature_are_sampled(checkpoint: Path, sampled: list[list[int]]) -> None:
    greedy = plain_greedy(CONFIG, checkpoint, PROMPTS, OUTPUT)
    assert [tokens == plain for tokens, plain in zip(sampled, greedy, strict=True)] == [
        False,
        True,
        False,
        False,
    ]


# Every K with one depth and one number of ranks; the others are slow.
@pytest.mark.parametrize(
    ("speculative_tokens", "ranks", "depth"),
    [
        *((0, 4, 2), (1, 1, 2), (2, 1, 1), (3, 4, 1)),
        *(pytest.param(*chosen, marks=[pytest.mark.slow]) for chosen in ((1, 4, 1), (2, 4, 2), (3, 1, 2))),
    ],
)
def test_the_text_depends_on_the_seed_alone(
    checkpoint: Path, sampled: list[list[int]], speculative_tokens: int, ranks: int, depth: int
) -> None:
    handles = run(
        CONFIG,
        checkpoint,
        PROMPTS,
        OUTPUT,
        sampling=SAMPLING,
        ranks=ranks,
        depth=depth,
        mtp=speculative_tokens,
    )
    assert tokens_of(handles) == sampled
    if speculative_tokens:
        # Drafts are drawn like the tokens that they must equal, and some are accepted.
        assert all(handle.accepted for handle in handles)


def test_drafts_that_equal_what_is_drawn_are_accepted(checkpoint: Path, sampled: list[list[int]]) -> None:
    injected = [[NO_DRAFT] * len(prompt) + tokens for prompt, tokens in zip(PROMPTS, sampled, strict=True)]
    # Ten steps of three tokens stay within what is known: 1 + 30 of 32.
    handles = run(CONFIG, checkpoint, PROMPTS, 31, sampling=SAMPLING, injected=injected, mtp=2)
    assert tokens_of(handles) == [tokens[:31] for tokens in sampled]
    assert [(handle.steps, handle.accepted) for handle in handles] == [(10, 20)] * len(PROMPTS)


def test_a_request_that_starts_again_from_its_text_goes_on_with_it(
    checkpoint: Path, sampled: list[list[int]]
) -> None:
    """What a preempted request does: its prompt and what it has published are prefilled, positions stay."""
    prompts = [prompt + tokens[:11] for prompt, tokens in zip(PROMPTS, sampled, strict=True)]
    handles = run(CONFIG, checkpoint, prompts, OUTPUT - 11, sampling=SAMPLING)
    assert tokens_of(handles) == [tokens[11:] for tokens in sampled]
