"""What a page holds besides a request's own positions never matters."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from dsv4bench.model.config import preset
from tests.oracle.conftest import Paged

ROUNDING = 1e-4
"""How far logits of equal rows may lie apart: a product of one row and one of eight add up in another order.

The order depends on the processor: 2e-6 is seen with AVX-512, 5e-6 with MKL's compatible code. One wrong row that
is left in a cache moves the logits of thirty later positions by 0.2 to 4.
"""


def test_pages_and_what_is_in_unused_ones_do_not_matter(
    weights_of: Callable[[str], dict[str, Tensor]], tokens_of: Callable[..., list[int]], paged: type[Paged]
) -> None:
    """NaN everywhere and pages dealt at random, against zeros and pages in order: the same bits."""
    tokens = tokens_of("test-b", 90)
    poisoned = paged(preset("test-b"), weights_of("test-b"), sequences=3, length=300, seed=5)
    plain = paged(preset("test-b"), weights_of("test-b"), sequences=3, length=300)
    for pool in (*plain.pools.groups, plain.pools.mtp_kv):
        pool.zero_()
    for group, table in enumerate(plain.tables.tables):
        blocks = int(plain.tables.counts[1, group])
        table[1, :blocks] = torch.arange(blocks)
    results = []
    for model in (poisoned, plain):
        logits = [model.run(tokens[:70], 33, sequence=1), model.run(tokens[70:], 2, first=70, sequence=1)]
        results.append(torch.cat(logits))
    assert torch.isfinite(results[0]).all()
    assert torch.equal(*results)


@pytest.mark.parametrize("rows", [2, 5, 8])
@pytest.mark.parametrize(("name", "prompt", "steps"), [("test-b", 9, 30), ("test-a", 118, 14)])
def test_rejected_rows_leave_no_trace(
    rows: int,
    name: str,
    prompt: int,
    steps: int,
    weights_of: Callable[[str], dict[str, Tensor]],
    tokens_of: Callable[..., list[int]],
    paged: type[Paged],
) -> None:
    """Every step carries wrong drafts, across CSA (4) and HCA (16, 128) boundaries; the next step overwrites them."""
    tokens, wrong = tokens_of(name, prompt + steps), tokens_of(name, prompt + steps + rows, seed=1)
    plain = paged(preset(name), weights_of(name))
    speculative = paged(preset(name), weights_of(name))
    for model in (plain, speculative):
        model.run(tokens[:prompt], 128)
    for position in range(prompt, prompt + steps):
        drafted = [tokens[position], *wrong[position + 1 : position + rows]]
        got = speculative.run(drafted, rows, first=position)[0]
        want = plain.run(tokens[position : position + 1], 1, first=position)[0]
        assert torch.allclose(got, want, atol=ROUNDING), position


def test_rejected_draft_rows_leave_no_trace_in_the_mtp_cache(
    weights_of: Callable[[str], dict[str, Tensor]], tokens_of: Callable[..., list[int]], paged: type[Paged]
) -> None:
    tokens, wrong = tokens_of("test-b", 24), tokens_of("test-b", 24, seed=1)
    results = []
    for speculate in (False, True):
        model = paged(preset("test-b"), weights_of("test-b"))
        hidden = model.feed((0, 0, tokens[:23]))

        def draft(
            position: int, following: list[int], model: Paged = model, hidden: Tensor = hidden
        ) -> Tensor:
            rows = model.rows([(0, position, following)])
            part = hidden[position : position + len(following)]
            return model.model.mtp(torch.tensor(following), rows, part, model.tables, model.pools)

        for position in range(22):
            if speculate:
                draft(position, [tokens[position + 1], wrong[position + 2]])
            else:
                draft(position, [tokens[position + 1]])
        results.append(draft(22, [tokens[23]]))
    assert torch.allclose(results[0], results[1], atol=ROUNDING)


def test_a_row_does_not_depend_on_its_neighbours(
    weights_of: Callable[[str], dict[str, Tensor]], tokens_of: Callable[..., list[int]], paged: type[Paged]
) -> None:
    """The same token alone, with a draft, and amid longer sequences gives the same logits."""
    tokens = tokens_of("test-b", 200)
    model = paged(preset("test-b"), weights_of("test-b"), sequences=4)
    for sequence, length in enumerate((30, 61, 100, 199)):
        model.run(tokens[:length], 128, sequence=sequence)
    alone = model.run(tokens[30:31], 1, first=30)[0]
    with_draft = model.run(tokens[30:32], 2, first=30)[0]
    crowd = [(s, p, tokens[p : p + 1]) for s, p in enumerate((30, 61, 100, 199))]
    amid = model.model.logits(model.feed(*crowd))[0]
    assert torch.allclose(alone, with_draft, atol=ROUNDING)
    assert torch.allclose(alone, amid, atol=ROUNDING)


def test_no_rows_give_no_streams(weights_of: Callable[[str], dict[str, Tensor]], paged: type[Paged]) -> None:
    model = paged(preset("test-b"), weights_of("test-b"))
    streams = model.feed()
    assert streams.shape == (0, 4, 64)
    assert model.model.logits(streams).shape == (0, 512)
    nothing = torch.empty(0, dtype=torch.int64)
    drafts = model.model.mtp(nothing, model.rows([]), streams, model.tables, model.pools)
    assert drafts.shape == (0, 4, 64)
    assert model.model.mtp_logits(drafts).shape == (0, 512)
