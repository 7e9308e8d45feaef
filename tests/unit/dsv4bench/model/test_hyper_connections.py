"""Hyper-connections against values worked out by hand (docs/model.md, Residual streams)."""

import math

import msgspec
import torch

from dsv4bench.model.config import preset
from dsv4bench.model.hyper_connections import HyperConnection, HyperHead, sinkhorn


def test_sinkhorn_first_step_by_hand() -> None:
    """One iteration, no eps: rows softmax to (1/2, 1/2) and (3/4, 1/4); columns then sum to 5/4 and 3/4."""
    logits = torch.tensor([[[0.0, 0.0], [math.log(3), 0.0]]])
    want = torch.tensor([[[2 / 5, 2 / 3], [3 / 5, 1 / 3]]])
    assert torch.allclose(sinkhorn(logits, 1, 0.0), want)


def test_sinkhorn_second_step_by_hand() -> None:
    """Then rows (sums 16/15 and 14/15), then columns: row 1 is (3/8, 5/8), row 2 (9/14, 5/14)."""
    logits = torch.tensor([[[0.0, 0.0], [math.log(3), 0.0]]])
    first, second = 3 / 8 + 9 / 14, 5 / 8 + 5 / 14
    want = torch.tensor([[[3 / 8 / first, 5 / 8 / second], [9 / 14 / first, 5 / 14 / second]]])
    assert torch.allclose(sinkhorn(logits, 2, 0.0), want)


def test_sinkhorn_eps_enters_after_the_softmax_and_in_every_sum() -> None:
    """n = 1: softmax gives 1, so (1 + e) / (1 + 2e) after the columns; e = 0.5 gives 0.75."""
    assert torch.allclose(sinkhorn(torch.zeros(1, 1, 1), 1, 0.5), torch.tensor([[[0.75]]]))


def test_sinkhorn_is_doubly_stochastic_after_20_iterations() -> None:
    mix = sinkhorn(torch.randn(9, 4, 4, generator=torch.Generator().manual_seed(1)), 20, 1e-6)
    assert torch.allclose(mix.sum(1), torch.ones(9, 4), atol=1e-4)
    assert torch.allclose(mix.sum(2), torch.ones(9, 4), atol=1e-4)


SMALL = msgspec.structs.replace(preset("test-b"), hc_mult=2, hidden_size=2, hc_eps=0.25, hc_sinkhorn_iters=1)
STREAMS = torch.tensor([[[3.0, 1.0], [1.0, 3.0]]])
"""f = (3, 1, 1, 3): mean square 5."""


def site() -> HyperConnection:
    fn = torch.zeros(8, 4)
    fn[0, 0] = math.sqrt(5) / 3
    weights = {
        "s_fn": fn,
        "s_scale": torch.tensor((math.log(3), 1.0, 1.0)),
        "s_base": torch.tensor((0.0, -math.log(3), math.log(3), 0.0, 0.0, 0.0, math.log(3), 0.0)),
    }
    return HyperConnection(weights, "s_", SMALL)


def test_collapse_by_hand() -> None:
    """m_0 = f_0 / sqrt(5) * sqrt(5) / 3 = 1, times scale ln 3: pre = (3/4, 1/4) + 1/4; y = X_0 + X_1 / 2."""
    y, post, mix = site().collapse(STREAMS)
    assert torch.allclose(y, torch.tensor([[3.5, 2.5]]), atol=1e-5)
    # post = 2 sigmoid(ln 3), 2 sigmoid(0).
    assert torch.allclose(post, torch.tensor([[[1.5], [1.0]]]))
    # Rows (1/2, 1/2), (3/4, 1/4), + 1/4 each; column sums 7/4 and 5/4, + 1/4.
    assert torch.allclose(mix, torch.tensor([[[0.75 / 2, 0.75 / 1.5], [1.0 / 2, 0.5 / 1.5]]]))


def test_expand_by_hand() -> None:
    """X'_k = post_k out + sum_j mix[j, k] X_j."""
    mix = torch.tensor([[[0.5, 0.25], [2.0, 1.0]]])
    post = torch.tensor([[[1.0], [2.0]]])
    got = HyperConnection.expand(torch.tensor([[10.0, 20.0]]), STREAMS, post, mix)
    first = (10 + 0.5 * 3 + 2 * 1, 20 + 0.5 * 1 + 2 * 3)
    second = (20 + 0.25 * 3 + 1 * 1, 40 + 0.25 * 1 + 1 * 3)
    assert torch.allclose(got, torch.tensor([[first, second]]))


def test_head_by_hand() -> None:
    """pre = sigmoid(m * scale + base) + eps with m = (1, 0), scale ln 3, base (0, 0): (3/4, 1/2) + 1/4."""
    fn = torch.zeros(2, 4)
    fn[0, 0] = math.sqrt(5) / 3
    weights = {
        "hc_head_fn": fn,
        "hc_head_scale": torch.tensor([math.log(3)]),
        "hc_head_base": torch.zeros(2),
    }
    assert torch.allclose(HyperHead(weights, "", SMALL)(STREAMS), torch.tensor([[3.75, 3.25]]), atol=1e-5)
