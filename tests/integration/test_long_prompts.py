"""Prompts of thousands of tokens, prefilled tile by tile and chunk by chunk."""

from pathlib import Path

import pytest

from dsv4bench.model.checkpoint import ensure_checkpoint
from dsv4bench.model.config import preset
from tests.integration.engine_runs import draw_prompts, plain_greedy, run, tokens_of

CONFIG = preset("test-b")
OUTPUT = 12
PROMPTS = draw_prompts(CONFIG, (3000, 20, 1500))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ensure_checkpoint(CONFIG, 3, tmp_path_factory.mktemp("checkpoints"))


@pytest.fixture(scope="module")
def greedy(checkpoint: Path) -> list[list[int]]:
    return plain_greedy(CONFIG, checkpoint, PROMPTS, OUTPUT)


@pytest.mark.parametrize("prefill_tokens", [128, 1000, 8192])
def test_tokens_do_not_depend_on_how_a_long_prompt_is_cut(
    checkpoint: Path, greedy: list[list[int]], prefill_tokens: int
) -> None:
    handles = run(
        CONFIG,
        checkpoint,
        PROMPTS,
        OUTPUT,
        ranks=2,
        max_model_len=3100,
        prefill_tokens=prefill_tokens,
        mtp=2,
    )
    assert tokens_of(handles) == greedy
