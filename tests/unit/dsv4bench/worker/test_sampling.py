"""Draws: their distribution, their support, and what they depend on."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from dsv4bench.engine.requests import Sampling
from dsv4bench.engine.sampling import check_sampling
from dsv4bench.errors import UsageError
from dsv4bench.worker.sampling import choose, uniform

pytestmark = pytest.mark.medium

DRAWS = 4000


def parameters(
    temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, seed: int = 0, rows: int = 1
) -> Tensor:
    return torch.tensor([[temperature, top_k, top_p, seed]] * rows, dtype=torch.float64)


def draw(logits: list[float], **options: Any) -> Tensor:
    """One token for each of DRAWS positions, all with the same logits."""
    positions = torch.arange(DRAWS).unsqueeze(0)
    return choose(
        torch.tensor(logits).expand(1, DRAWS, len(logits)), positions, parameters(**options)
    ).flatten()


def softmax(logits: list[float], temperature: float) -> list[float]:
    weights = [math.exp(logit / temperature) for logit in logits]
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_are_drawn_with_the_probabilities_of_softmax(temperature: float) -> None:
    logits = [1.5, -0.5, 0.0, 2.0, -1.0, 0.25, 1.0, -2.0]
    counts = torch.bincount(draw(logits, temperature=temperature, seed=11), minlength=len(logits)).tolist()
    statistic = sum(
        (count - DRAWS * probability) ** 2 / (DRAWS * probability)
        for count, probability in zip(counts, softmax(logits, temperature), strict=True)
    )
    # Chi-square with 7 degrees of freedom: 24.3 is exceeded once in a thousand.
    assert statistic < 24.3


def test_top_k_and_top_p_leave_exactly_the_tokens_they_should() -> None:
    probabilities = [0.4, 0.05, 0.3, 0.15, 0.1]
    logits = [math.log(probability) for probability in probabilities]

    def support(**options: Any) -> list[int]:
        return sorted(set(draw(logits, **options).tolist()))

    assert support() == [0, 1, 2, 3, 4]
    assert support(top_k=1) == [0]
    assert support(top_k=3) == [0, 2, 3]
    assert support(top_k=5) == support(top_k=99) == [0, 1, 2, 3, 4]
    assert support(top_p=0.01) == [0]
    # 0.4 does not reach 0.5; 0.4 + 0.3 does.
    assert support(top_p=0.5) == [0, 2]
    assert support(top_p=0.8) == [0, 2, 3]
    assert support(top_p=0.96) == [0, 1, 2, 3, 4]
    # Top-p counts what top-k left: of 0.4, 0.3 and 0.15 the first two make up 0.82.
    assert support(top_k=3, top_p=0.8) == [0, 2]
    # Temperature comes first: at 2 the square roots weigh 0.632, 0.224, 0.548, 0.387, 0.316 of 2.107.
    assert support(temperature=2.0, top_p=0.5) == [0, 2]
    assert support(temperature=2.0, top_p=0.6) == [0, 2, 3]


def test_what_ties_with_the_last_token_stays() -> None:
    tied = [0.0, 1.0, 0.0, 0.0, -3.0]
    assert sorted(set(draw(tied, top_k=2).tolist())) == [0, 1, 2, 3]
    # exp(1) = 2.72 of 5.77: the second token reaches 0.6, and two weigh the same.
    assert sorted(set(draw(tied, top_p=0.6).tolist())) == [0, 1, 2, 3]


def test_a_token_is_the_one_where_the_running_sum_passes_the_random_number() -> None:
    probabilities = [0.1, 0.2, 0.3, 0.4]
    tokens = draw([math.log(probability) for probability in probabilities], seed=5)
    for position, token in enumerate(tokens[:200].tolist()):
        number, below = uniform(5, position), sum(probabilities[:token])
        assert below - 1e-6 <= number <= below + probabilities[token] + 1e-6


def philox(key: Sequence[int], counter: Sequence[int]) -> list[int]:
    """Philox4x64-10 as published (Salmon et al., 2011): four words from two of key and four of counter."""
    mask = (1 << 64) - 1
    key, counter = list(key), list(counter)
    for _ in range(10):
        first, second = 0xD2E7470EE14C6C93 * counter[0], 0xCA5A826395121157 * counter[2]
        counter = [
            (second >> 64) ^ counter[1] ^ key[0],
            second & mask,
            (first >> 64) ^ counter[3] ^ key[1],
            first & mask,
        ]
        key = [(key[0] + 0x9E3779B97F4A7C15) & mask, (key[1] + 0xBB67AE8584CAA73B) & mask]
    return counter


def test_random_numbers_are_those_of_philox() -> None:
    # The published answer for zeros, then numpy's convention: the first counter is 1.
    assert philox((0, 0), (0, 0, 0, 0))[0] == 0x16554D9ECA36314C
    for seed, position in ((0, 0), (1, 0), (0, 1), (2**53 - 1, 16_383)):
        assert uniform(seed, position) == (philox((seed, position), (1, 0, 0, 0))[0] >> 11) / 2**53


def test_a_row_depends_on_its_seed_and_position_alone() -> None:
    logits = torch.randn(3, 4, 50, generator=torch.Generator().manual_seed(2))
    positions = torch.tensor([[7, 8, 9, 10], [7, 8, 9, 10], [90, 91, 92, 93]])
    sampling = torch.cat([parameters(seed=3), parameters(0.7, 20, 0.9, seed=4), parameters(temperature=0)])
    together = choose(logits, positions, sampling)
    assert together[2].tolist() == logits[2].argmax(-1).tolist()
    for row in range(3):
        for column in range(4):
            one = (slice(row, row + 1), slice(column, column + 1))
            assert choose(logits[one], positions[one], sampling[row : row + 1]) == together[row, column]
    other_seed = draw([0.0] * 50, seed=1)[:100]
    assert (other_seed != draw([0.0] * 50, seed=2)[:100]).sum() > 80


def test_a_tiny_temperature_is_greedy_and_no_rows_are_fine() -> None:
    logits = [0.5, 0.500001, -1.0]
    assert set(draw(logits, temperature=1e-300).tolist()) == {1}
    nothing = choose(
        torch.empty(0, 2, 5), torch.empty(0, 2, dtype=torch.int64), parameters(rows=0).view(0, 4)
    )
    assert nothing.shape == (0, 2)


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        (Sampling(temperature=-0.1), "temperature must be a number of at least 0"),
        (Sampling(temperature=math.nan), "temperature must be a number"),
        (Sampling(temperature=math.inf), "got inf"),
        (Sampling(top_k=-1), "top_k must be a whole number of at least 0"),
        (Sampling(top_k=2.5), "top_k must be a whole number"),  # type: ignore[arg-type]
        (Sampling(top_p=0.0), "top_p must be more than 0 and at most 1"),
        (Sampling(top_p=1.1), "top_p must be more than 0 and at most 1"),
        (Sampling(seed=-1), r"seed must be a whole number within 0\.\.9007199254740991, got -1"),
        (Sampling(seed=2**53), "got 9007199254740992"),
    ],
)
def test_impossible_parameters_are_refused(sampling: Sampling, message: str) -> None:
    with pytest.raises(UsageError, match=f"request r7: .*{message}"):
        check_sampling("r7", sampling)
    check_sampling("r7", Sampling(0.7, 40, 0.95, 2**53 - 1))
