"""Choosing tokens from logits: greedily, or drawn by numbers that depend on seed and position alone."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dsv4bench.worker.task_args import SamplingField


def choose(logits: Tensor, positions: Tensor, sampling: Tensor) -> Tensor:
    """Tokens for `positions` int64 [N, S] from logits float32 [N, S, vocab]: int64 [N, S].

    `sampling` is float64 [N, 4] (see SamplingField), a row a request. At temperature 0 a token is the likeliest one,
    the lowest id of several. Otherwise:

    1. Temperature: the weight of a token is exp(logit / temperature), in float64.
    2. Top-k: the k heaviest tokens stay (0 or the vocabulary's size: all), and whatever weighs as much as the last
       of them.
    3. Top-p: of these, heaviest first, as many stay as it takes to reach `top_p` of their weight (1: all), and
       whatever weighs as much as the last of them. One always stays.
    4. Draw: with u = `uniform(seed, position)`, the first token, in order of ids, where the running sum of the weights
       that stay exceeds u times their sum.

    So the token at a position depends on the logits there and on the request's parameters, and on nothing else: not on
    the batch, the rank, the number of speculative tokens or how often the request was started. Drafts are drawn with
    the same numbers as the tokens that they must equal: a drafter that agrees with the model on the distribution
    agrees with it on the token.
    """
    tokens = logits.argmax(-1)
    drawn = sampling[:, SamplingField.TEMPERATURE].nonzero().flatten().tolist()
    for row in drawn:
        parameters = sampling[row].tolist()
        for column, position in enumerate(positions[row].tolist()):
            tokens[row, column] = _draw(logits[row, column], position, *parameters)
    return tokens


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) with 53 random bits: the first output of Philox4x64-10 under the key (seed, position)."""
    raw = int(np.random.Philox(key=np.array((seed, position), np.uint64)).random_raw())
    return (raw >> 11) * 2.0**-53


def _draw(
    logits: Tensor, position: int, temperature: float, top_k: float, top_p: float, seed: float
) -> Tensor:
    """One token from float32 [vocab] by the rules of `choose`: int64, no dimension."""
    # The heaviest token weighs 1, however small the temperature is.
    weights = ((logits.double() - logits.max()) / temperature).exp()
    if 0 < top_k < len(weights):
        weights[weights < weights.topk(int(top_k)).values[-1]] = 0
    if top_p < 1:
        # numpy sorts a vocabulary an order of magnitude faster than torch.
        heaviest = torch.from_numpy(np.sort(weights[weights > 0].numpy())).flip(0)
        reached = heaviest.cumsum(0)
        last = torch.searchsorted(reached, float(top_p * reached[-1]))
        weights[weights < heaviest[last]] = 0
    sums = weights.cumsum(0)
    return torch.searchsorted(sums, uniform(int(seed), position) * float(sums[-1]), right=True)
