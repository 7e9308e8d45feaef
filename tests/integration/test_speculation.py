"""Any number of speculative tokens, whatever is accepted or rejected where: the tokens of plain greedy decoding."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import pytest

from dsv4bench.model.config import preset
from tests.integration.engine_runs import (
    drafts,
    draw_prompts,
    plain_greedy,
    run,
    steps_and_acceptance,
    tokens_of,
)

CONFIG = preset("test-b")
OUTPUT = 40
PROMPTS = draw_prompts(CONFIG, (5, 17, 64, 31))
LOOKAHEAD = 8  # tokens known beyond the output: the last step's drafts are injected, too


@pytest.fixture(scope="module")
def greedy(checkpoints: dict[str, Path]) -> dict[str, list[list[int]]]:
    return {
        kind: plain_greedy(CONFIG, checkpoint, PROMPTS, OUTPUT + LOOKAHEAD)
        for kind, checkpoint in checkpoints.items()
    }


# Every K on one and on four ranks, of which one is slow; weights and depth take turns, so that every pair of choices
# occurs, also among those that are not slow, but for K and ranks.
@pytest.mark.parametrize(
    ("speculative_tokens", "ranks"),
    [
        pytest.param(count, ranks, marks=[] if (ranks == 4) == (count in (2, 3, 5)) else [pytest.mark.slow])
        for count in range(1, 8)
        for ranks in (1, 4)
    ],
)
def test_tokens_do_not_depend_on_the_number_of_speculative_tokens(
    checkpoints: dict[str, Path], greedy: dict[str, list[list[int]]], speculative_tokens: int, ranks: int
) -> None:
    kind = ("random", "bigram")[(speculative_tokens + ranks // 4) % 2]
    handles = run(
        CONFIG,
        checkpoints[kind],
        PROMPTS,
        OUTPUT,
        ranks=ranks,
        depth=1 + speculative_tokens // 2 % 2,
        mtp=speculative_tokens,
    )
    assert tokens_of(handles) == [tokens[:OUTPUT] for tokens in greedy[kind]]
    if kind == "bigram":
        # Some steps accept a part of their drafts, so that all that K brings is exercised.
        assert sum(handle.accepted for handle in handles) > 0.5 * sum(handle.proposed for handle in handles)


def every_step_rejects_draft(number: int) -> Callable[[int], set[int]]:
    """Positions of wrong drafts so that every step accepts `number` - 1."""
    return lambda first: set(range(first + number, first + OUTPUT + LOOKAHEAD, number))


def every_other_step_rejects_all(first: int) -> set[int]:
    # A step of four tokens, then one of one: the tail moves by five.
    return set(range(first + 5, first + OUTPUT + LOOKAHEAD, 5))


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(
    ("wrong", "accepted"),
    [
        (lambda first: set(), [3, 3, 3, 3]),
        (every_step_rejects_draft(1), [0, 0, 0, 0]),
        (every_step_rejects_draft(2), [1, 1, 1, 1]),
        (every_step_rejects_draft(3), [2, 2, 2, 2]),
        (every_other_step_rejects_all, [3, 0, 3, 0]),
    ],
    ids=["right", "wrong", "one", "two", "alternating"],
)
def test_three_injected_drafts_are_accepted_as_far_as_they_are_right(
    checkpoints: dict[str, Path],
    greedy: dict[str, list[list[int]]],
    wrong: Callable[[int], set[int]],
    accepted: Sequence[int],
    depth: int,
) -> None:
    positions = [wrong(len(prompt)) for prompt in PROMPTS]
    handles = run(
        CONFIG,
        checkpoints["random"],
        PROMPTS,
        OUTPUT,
        injected=[
            drafts(prompt, tokens, of_prompt, CONFIG.vocab_size)
            for prompt, tokens, of_prompt in zip(PROMPTS, greedy["random"], positions, strict=True)
        ],
        requests_per_rank=4,
        depth=depth,
        mtp=3,
    )
    assert tokens_of(handles) == [tokens[:OUTPUT] for tokens in greedy["random"]]
    for handle in handles:
        turns, rest = divmod(handle.steps, 4)
        assert handle.proposed == 3 * handle.steps
        assert handle.accepted == turns * sum(accepted) + sum(accepted[:rest])
        assert handle.discarded == 1 + handle.steps + handle.accepted - OUTPUT


BOUNDARY_LENGTHS = (100, 232, 490)
BOUNDARY_OUTPUT = 48


@pytest.fixture(scope="module")
def boundary_greedy(checkpoints: dict[str, Path]) -> tuple[list[list[int]], list[list[int]]]:
    prompts = draw_prompts(CONFIG, BOUNDARY_LENGTHS, seed=8)
    known = BOUNDARY_OUTPUT + LOOKAHEAD
    return prompts, plain_greedy(CONFIG, checkpoints["random"], prompts, known)


@pytest.mark.parametrize(
    ("boundary", "speculative_tokens"),
    [
        # A window of 4 (CSA) or 16 (HCA) positions ends with its last position, or begins anew.
        (lambda position: position % 4 == 3, 3),
        (lambda position: position % 16 == 15, 7),
        (lambda position: position % 16 == 0, 2),
        # The first and last row of a page, and the first rows that overwrite a ring: 260 rows of CSA state, 272 of
        # HCA state, 512 of the window.
        (lambda position: position % 128 in (0, 127) or position in (259, 260, 271, 272), 1),
        (lambda position: position % 128 in (0, 127) or position in (259, 260, 271, 272), 5),
    ],
    ids=["csa", "hca", "behind-hca", "pages-and-rings-1", "pages-and-rings-5"],
)
def test_rejections_on_boundaries_leave_no_trace(
    checkpoints: dict[str, Path],
    boundary_greedy: tuple[list[list[int]], list[list[int]]],
    boundary: Callable[[int], Collection[int]],
    speculative_tokens: int,
) -> None:
    prompts, expected = boundary_greedy
    wrong = {position for position in range(640) if boundary(position)}
    handles = run(
        CONFIG,
        checkpoints["random"],
        prompts,
        BOUNDARY_OUTPUT,
        injected=[
            drafts(prompt, tokens, wrong, CONFIG.vocab_size)
            for prompt, tokens in zip(prompts, expected, strict=True)
        ],
        max_model_len=600,
        mtp=speculative_tokens,
    )
    assert tokens_of(handles) == [tokens[:BOUNDARY_OUTPUT] for tokens in expected]
    for handle, prompt in zip(handles, prompts, strict=True):
        steps, accepted = steps_and_acceptance(prompt, BOUNDARY_OUTPUT, wrong, speculative_tokens)
        assert (handle.steps, handle.accepted) == (steps, accepted)
        assert accepted < steps * speculative_tokens
