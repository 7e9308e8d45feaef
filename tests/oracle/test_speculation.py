"""Speculative greedy decoding gives the plain greedy tokens, at the drafter's known rate (docs/model.md, MTP decode)."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from dsv4bench.model.batch import Rows
from dsv4bench.model.checkpoint import ensure_checkpoint, next_tokens
from dsv4bench.model.config import preset
from dsv4bench.model.model import load_weights
from tests.oracle.conftest import Paged

SEQUENCES, STEPS = 4, 60


@dataclass
class Request:
    """Tail token, the position of the last main streams in hand, those streams and the draft."""

    tokens: list[int]
    tail: int
    position: int
    hidden: Tensor
    draft: int


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    return load_weights(ensure_checkpoint(preset("tiny"), 0, tmp_path_factory.mktemp("tiny"), "bigram"))


def start(model: Paged, prompts: list[list[int]]) -> list[Request]:
    """Prefill, then the MTP pairs (X_p, t_{p+1}) with t0 after the last prompt token."""
    requests = []
    for sequence, prompt in enumerate(prompts):
        streams = model.feed((sequence, 0, prompt))
        first = int(model.model.logits(streams[-1:]).argmax())
        following = torch.tensor([*prompt[1:], first])
        rows = model.rows([(sequence, 0, prompt)])
        drafts = model.model.mtp(following, rows, streams, model.tables, model.pools)
        draft = int(model.model.mtp_logits(drafts[-1:]).argmax())
        requests.append(Request([first], first, len(prompt) - 1, streams[-1], draft))
    return requests


def speculate(model: Paged, requests: list[Request]) -> int:
    """One step for all requests; returns how many drafts were accepted."""
    parts = [(s, r.position + 1, [r.tail, r.draft]) for s, r in enumerate(requests)]
    streams = model.feed(*parts)
    mains = model.model.logits(streams).argmax(-1).view(-1, 2).tolist()
    streams = streams.unflatten(0, (-1, 2))
    accepted, tokens, positions, hidden = 0, [], [], []
    for request, (first, second), pair in zip(requests, mains, streams, strict=True):
        if request.draft == first:
            accepted += 1
            request.tokens += [first, second]
            tokens += [first, second]
            positions += [request.position + 1, request.position + 2]
            hidden += [pair[0], pair[1]]
        else:
            request.tokens.append(first)
            tokens += [request.tail, first]
            positions += [request.position, request.position + 1]
            hidden += [request.hidden, pair[0]]
        request.tail, request.position, request.hidden = tokens[-1], positions[-1], hidden[-1]
    owners = torch.arange(len(requests)).repeat_interleave(2)
    following = torch.tensor(tokens)
    rows = Rows(following, torch.tensor(positions), owners)
    drafts = model.model.mtp(following, rows, torch.stack(hidden), model.tables, model.pools)
    for request, draft in zip(
        requests, model.model.mtp_logits(drafts[1::2]).argmax(-1).tolist(), strict=True
    ):
        request.draft = draft
    return accepted


def plain_greedy(model: Paged, prompts: list[list[int]]) -> list[list[int]]:
    requests = start(model, prompts)
    for step in range(STEPS):
        streams = model.feed(*((s, len(prompts[s]) + step, [r.tail]) for s, r in enumerate(requests)))
        for request, token in zip(requests, model.model.logits(streams).argmax(-1).tolist(), strict=True):
            request.tokens.append(token)
            request.tail = token
    return [request.tokens for request in requests]


def test_bigram_checkpoint_accepts_realistically_and_exactly(
    tiny: dict[str, Tensor], tokens_of: Callable[..., list[int]], paged: type[Paged]
) -> None:
    config = preset("tiny")
    prompts = [tokens_of("tiny", 60 + 7 * s, seed=s) for s in range(SEQUENCES)]
    want = plain_greedy(paged(config, tiny, sequences=SEQUENCES), prompts)

    model = paged(config, tiny, sequences=SEQUENCES, seed=1)
    requests, steps, accepted = start(model, prompts), 0, 0
    while min(len(request.tokens) for request in requests) < STEPS:
        accepted += speculate(model, requests)
        steps += 1
    for request, plain in zip(requests, want, strict=True):
        shared = min(len(request.tokens), len(plain))
        assert request.tokens[:shared] == plain[:shared]
    assert 0.6 < accepted / (steps * SEQUENCES) < 0.95

    following = next_tokens(config, 0)
    strays = [following[a] != b for tokens in want for a, b in itertools.pairwise(tokens)]
    assert 0.05 < sum(strays) / len(strays) < 0.4


@pytest.mark.parametrize("right", ["always", "never", "every other"])
def test_injected_drafts_do_not_change_the_tokens(
    right: str,
    weights_of: Callable[[str], dict[str, Tensor]],
    tokens_of: Callable[..., list[int]],
    paged: type[Paged],
) -> None:
    """Drafts that are all right, all wrong or alternate, over CSA and HCA boundaries of random weights."""
    config, weights = preset("test-b"), weights_of("test-b")
    prompts = [tokens_of("test-b", 9 + s, seed=s) for s in range(SEQUENCES)]
    want = plain_greedy(paged(config, weights, sequences=SEQUENCES), prompts)
    model = paged(config, weights, sequences=SEQUENCES, seed=1)
    requests, step, accepted = start(model, prompts), 0, 0
    while min(len(request.tokens) for request in requests) < 40:
        good = right == "always" or (right == "every other" and step % 2 == 0)
        for request, plain in zip(requests, want, strict=True):
            answer = plain[len(request.tokens)]
            request.draft = answer if good else (answer + 1) % config.vocab_size
        accepted += speculate(model, requests)
        step += 1
    assert accepted == SEQUENCES * {"always": step, "never": 0, "every other": (step + 1) // 2}[right]
    for request, plain in zip(requests, want, strict=True):
        assert request.tokens == plain[: len(request.tokens)]
