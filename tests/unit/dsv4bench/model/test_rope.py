"""Rotary embeddings against values worked out by hand (docs/model.md, Rotary embeddings)."""

import math

import torch

from dsv4bench.model.config import preset
from dsv4bench.model.rope import Rope, rotate_


def test_plain_frequencies() -> None:
    """theta 10000, 8 channels: 10000^(-0, -1/4, -1/2, -3/4)."""
    rope = Rope.plain(preset("test-a"))
    assert torch.allclose(rope.inverse_frequencies, torch.tensor([1.0, 0.1, 0.01, 0.001]))


def test_yarn_keeps_fast_pairs_and_stretches_slow_ones() -> None:
    """theta 160000 = 20^4: frequencies 1, 1/20, 1/400, 1/8000.

    Over the original 256 positions pair i turns 256 / (2 pi 20^i) times. 32 turns would be pair
    ln(256 / 64 pi) / ln 20 = 0.08, floor 0; 1 turn pair ln(256 / 2 pi) / ln 20 = 1.24, ceil 2. So pair 0 is
    kept, pair 1 is half way, pairs 2 and 3 are divided by 16.
    """
    frequencies = Rope.compressed(preset("test-a")).inverse_frequencies
    want = torch.tensor([1.0, (1 + 1 / 16) / 2 / 20, 1 / 16 / 400, 1 / 16 / 8000])
    assert torch.allclose(frequencies, want, rtol=1e-5)


def test_rotation_turns_interleaved_trailing_pairs() -> None:
    """A quarter turn takes (a, b) to (-b, a); the leading channels stay."""
    rope = Rope(torch.tensor([math.pi / 2, math.pi]))
    vector = torch.tensor([[9.0, 8.0, 1.0, 2.0, 3.0, 4.0]])
    turned = rotate_(vector, rope.rotations(torch.tensor([1])))
    assert torch.allclose(turned, torch.tensor([[9.0, 8.0, -2.0, 1.0, -3.0, -4.0]]), atol=1e-6)


def test_the_conjugate_undoes_a_rotation() -> None:
    rotations = Rope.compressed(preset("test-a")).rotations(torch.tensor([0, 7, 4000])).unsqueeze(1)
    vectors = torch.randn(3, 4, 32, generator=torch.Generator().manual_seed(0))
    back = rotate_(rotate_(vectors.clone(), rotations), rotations.conj())
    assert torch.allclose(back, vectors, atol=1e-5)


def test_scores_depend_on_the_distance_alone() -> None:
    rope = Rope.plain(preset("test-a"))
    query, key = torch.randn(2, 1, 8, generator=torch.Generator().manual_seed(0))

    def score(at: int, seen: int) -> torch.Tensor:
        turned = rotate_(query.clone(), rope.rotations(torch.tensor([at])))
        return (turned * rotate_(key.clone(), rope.rotations(torch.tensor([seen])))).sum()

    assert torch.allclose(score(20, 13), score(907, 900), atol=1e-4)
