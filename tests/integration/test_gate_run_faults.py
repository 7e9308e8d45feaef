"""Worse drafts, on request: acceptance falls, and nothing else changes."""

from pathlib import Path

import pytest

from dsv4bench.model.config import preset
from dsv4bench.run.load import spoilt_drafts
from tests.integration.engine_runs import draw_prompts, run, tokens_of

CONFIG = preset("test-b")
OUTPUT = 80
PROMPTS = draw_prompts(CONFIG, (5, 17, 64, 31))


def test_of_the_drafts_that_were_right_the_share_is_rejected_and_no_token_changes(checkpoint: Path) -> None:
    def measure(share: float) -> tuple[list[list[int]], float]:
        drafts = spoilt_drafts(share, 256)
        handles = run(CONFIG, checkpoint, PROMPTS, OUTPUT, ranks=2, injected=[drafts] * len(PROMPTS))
        rate = sum(handle.accepted for handle in handles) / sum(handle.proposed for handle in handles)
        return tokens_of(handles), rate

    tokens, rate = measure(0.0)
    half_tokens, half_rate = measure(0.5)
    none_tokens, none_rate = measure(1.0)
    assert tokens == half_tokens == none_tokens
    assert rate > 0.5
    assert half_rate == pytest.approx(rate / 2, rel=0.25)
    # A draft that was wrong may become right by chance.
    assert none_rate < 0.05
