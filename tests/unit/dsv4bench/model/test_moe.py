"""Routing and experts against values worked out by hand (docs/model.md, Experts)."""

import math

import msgspec
import torch

from dsv4bench.model.config import preset
from dsv4bench.model.moe import Experts, Router

CONFIG = msgspec.structs.replace(
    preset("test-b"), n_routed_experts=4, num_experts_per_tok=2, hidden_size=4, moe_intermediate_size=1
)
ROW = torch.tensor([[math.log(math.expm1(v * v)) for v in (1.0, 2.0, 3.0, 4.0)]])
"""With the identity as the gate, softplus undoes log(expm1) and the root the square: scores 1, 2, 3, 4."""


def test_bias_ranks_experts_but_does_not_weigh_them() -> None:
    """Scores + bias (9, 2, 3, 4): experts 0 and 3 with unbiased scores 1 and 4, normalised, times 1.5."""
    weights = {"weight": torch.eye(4), "bias": torch.tensor([8.0, 0, 0, 0])}
    experts, shares = Router(weights, "", CONFIG)(ROW, torch.tensor([0]))
    assert experts.tolist() == [[0, 3]]
    assert torch.allclose(shares, torch.tensor([[0.3, 1.2]]))


def test_hash_layers_take_experts_from_the_token() -> None:
    """Token 1 goes to experts 2 and 1 with scores 3 and 2."""
    weights = {"weight": torch.eye(4), "tid2eid": torch.tensor([[0, 1], [2, 1]])}
    experts, shares = Router(weights, "", CONFIG)(ROW, torch.tensor([1]))
    assert experts.tolist() == [[2, 1]]
    assert torch.allclose(shares, torch.tensor([[0.9, 0.6]]))


def test_experts_clamp_gate_above_and_up_on_both_sides() -> None:
    """Gate 20 -> 10, gate -20 stays; up -20 -> -10. silu(x) = x sigmoid(x)."""
    weights = {}
    for expert, gate in ((0, 1.0), (1, -1.0)):
        weights[f"{expert}.w1.weight"] = torch.tensor([[gate, 0, 0, 0]])
        weights[f"{expert}.w3.weight"] = torch.tensor([[0, 1.0, 0, 0]])
        weights[f"{expert}.w2.weight"] = torch.tensor([[1.0], [2.0], [0], [0]])
    experts = Experts(weights, "", CONFIG, range(2))
    rows = torch.tensor([[20.0, -20.0, 0, 0], [20.0, -20.0, 0, 0], [1.0, 3.0, 0, 0]])
    got = experts(rows, torch.tensor([1, 0, 0]))
    low, high, one = -20 / (1 + math.exp(20)), 10 / (1 + math.exp(-10)), 1 / (1 + math.exp(-1))
    want = torch.tensor([[v, 2 * v, 0, 0] for v in (low * -10, high * -10, one * 3)])
    assert torch.allclose(got, want)
    assert experts(rows[:0], torch.tensor([], dtype=torch.int64)).shape == (0, 4)
