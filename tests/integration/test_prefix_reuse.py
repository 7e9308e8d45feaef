"""Prefix reuse on real rank processes: the same tokens and drafts as without it, with fewer rows to prefill."""

import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsv4bench.cache.layout import CacheLayout
from dsv4bench.cache.prefix_index import PrefixIndex
from dsv4bench.engine.engine import Engine, EngineOptions
from dsv4bench.engine.prefill import PrefillBuffers
from dsv4bench.engine.requests import GREEDY, Request, RequestHandle, Sampling
from dsv4bench.engine.runner import ModelRunner
from dsv4bench.engine.steps import PrefillOutput, PrefillStep
from dsv4bench.faults import Fault
from dsv4bench.model.checkpoint import ensure_checkpoint
from dsv4bench.model.config import preset
from dsv4bench.worker.fault_injection import FaultPlan
from tests.integration.engine_runs import draw_prompts, plain_greedy

CONFIG = preset("test-b")
OUTPUT = 12
LONGEST = 512
[DONOR] = draw_prompts(CONFIG, [400])
SHARED = (127, 128, 129, 255, 256, 257, 383, 384, 385)
CACHED = {length: length // 128 * 128 for length in SHARED}


def sharing(length: int, tail: int, seed: int) -> list[int]:
    """The donor's first `length` tokens, another one, and `tail` - 1 more."""
    draw = random.Random(seed)
    other = 2 + (DONOR[length] - 1 + seed) % (CONFIG.vocab_size - 2)
    return [*DONOR[:length], other, *(draw.randrange(2, CONFIG.vocab_size) for _ in range(tail - 1))]


FIRST = [sharing(length, 3 + 17 * index % 97, index) for index, length in enumerate(SHARED)]
SECOND = [sharing(length, 5 + 29 * index % 61, 100 + index) for index, length in enumerate(SHARED)]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ensure_checkpoint(CONFIG, 3, tmp_path_factory.mktemp("checkpoint"), "random")


@pytest.fixture(scope="module")
def greedy(checkpoint: Path) -> dict[tuple[int, ...], list[int]]:
    prompts = [DONOR, *FIRST, *SECOND]
    tokens = plain_greedy(CONFIG, checkpoint, prompts, OUTPUT)
    return {tuple(prompt): of_prompt for prompt, of_prompt in zip(prompts, tokens, strict=True)}


@pytest.fixture
def prefilled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of every prefill dispatch, over all ranks."""
    rows = []
    pack = PrefillBuffers.pack

    def counted(self: PrefillBuffers, step: PrefillStep) -> None:
        pack(self, step)
        rows.append(int(self.args.row_counts.sum()))

    monkeypatch.setattr(PrefillBuffers, "pack", counted)
    return rows


def engine_for(checkpoint: Path, **changes: Any) -> Engine:
    chosen = {"ranks": 1, "requests_per_rank": 3, "max_model_len": LONGEST, "prefix_reuse": True, **changes}
    return Engine(EngineOptions(CONFIG, checkpoint, **chosen))


def run(
    engine: Engine, *stages: Sequence[list[int]], output: int = OUTPUT, sampling: Sampling = GREEDY
) -> list[RequestHandle]:
    """Handles of all prompts; a stage begins when the one before it has ended."""
    handles = []
    for stage in stages:
        sent = [
            engine.submit(Request(f"r{i}", prompt, output, True, sampling)) for i, prompt in enumerate(stage)
        ]
        for handle in sent:
            assert handle.wait(60)
            assert handle.finish_reason == "length", handle.error
        handles += sent
    return handles


# Every pair of choices occurs in the half of them that is not slow.
@pytest.mark.parametrize(
    ("speculative_tokens", "ranks", "depth"),
    [
        pytest.param(*chosen, marks=[pytest.mark.slow] if sum(chosen) % 2 else [])
        for chosen in itertools.product((0, 1), (1, 2), (1, 2))
    ],
)
def test_tokens_and_drafts_are_those_without_reuse(
    checkpoint: Path,
    greedy: dict[tuple[int, ...], list[int]],
    prefilled: list[int],
    speculative_tokens: int,
    ranks: int,
    depth: int,
) -> None:
    def both(reuse: bool) -> Any:
        engine = engine_for(checkpoint, ranks=ranks, depth=depth, mtp=speculative_tokens, prefix_reuse=reuse)
        try:
            return run(engine, [DONOR], FIRST, SECOND), engine.progress()
        finally:
            engine.close()

    handles, progress = both(True)
    with_reuse = sum(prefilled)
    prefilled.clear()
    plain, without = both(False)
    assert [handle.token_ids for handle in handles] == [
        greedy[tuple(prompt)] for prompt in (DONOR, *FIRST, *SECOND)
    ]
    assert [handle.token_ids for handle in plain] == [handle.token_ids for handle in handles]
    # The draft of every step was right exactly where it is right without reuse.
    assert [(h.steps, h.accepted) for h in handles] == [(h.steps, h.accepted) for h in plain]
    cached = sum(handle.cached_tokens for handle in handles)
    lengths = sum(map(len, (DONOR, *FIRST, *SECOND)))
    assert sum(prefilled) == lengths
    assert with_reuse == lengths - cached
    assert progress.cached_tokens == cached
    assert progress.prefix_hits == sum(handle.cached_tokens > 0 for handle in handles)
    assert (without.cached_tokens, without.prefix_hits) == (0, 0)
    if ranks == 1:
        # The donor leaves its last boundary. Where the prompts of the first batch leave it earlier, there is none yet.
        assert [handle.cached_tokens for handle in handles[10:]] == [CACHED[length] for length in SHARED]


@pytest.mark.parametrize(
    ("off", "prefill_tokens"),
    [
        pytest.param(*chosen, marks=[pytest.mark.slow] if chosen in ((-1, 1024), (0, 50), (1, 1024)) else [])
        for chosen in itertools.product((-1, 0, 1), (1024, 50))
    ],
)
def test_a_prompt_that_leaves_its_donor_at_around_the_end_of_a_page(
    checkpoint: Path, prefilled: list[int], off: int, prefill_tokens: int
) -> None:
    pages = (128, 256, 384)
    # Donors that share nothing with each other: every prompt finds its own one alone.
    donors = [[2 + index, *DONOR[1 : shared + 3]] for index, shared in enumerate(pages)]
    prompts = [[2 + index, *sharing(shared + off, 20, 5)[1:]] for index, shared in enumerate(pages)]
    expected = plain_greedy(CONFIG, checkpoint, [*donors, *prompts], OUTPUT)
    engine = engine_for(checkpoint, prefill_tokens=prefill_tokens)
    try:
        handles = run(engine, donors, prompts)
    finally:
        engine.close()
    assert [handle.token_ids for handle in handles] == expected
    # A donor leaves the last boundary that it fills, and none before it.
    cached = list(pages) if off >= 0 else [0, 0, 0]
    assert [handle.cached_tokens for handle in handles] == [0, 0, 0, *cached]
    assert sum(prefilled) == sum(map(len, donors)) + sum(map(len, prompts)) - sum(cached)
    assert max(prefilled) <= prefill_tokens


def test_a_window_as_long_as_a_page(tmp_path: Path) -> None:
    config = preset("test-a")
    checkpoint = ensure_checkpoint(config, 3, tmp_path, "random")
    [donor] = draw_prompts(config, [384])
    prompts = [donor, donor, [*donor[:300], 7, 8], [*donor, 9], [*donor, *draw_prompts(config, [100], 3)[0]]]
    expected = plain_greedy(config, checkpoint, prompts, OUTPUT)

    def steps(reuse: bool) -> Any:
        options = EngineOptions(config, checkpoint, ranks=1, max_model_len=LONGEST, prefix_reuse=reuse)
        engine = Engine(options)
        try:
            handles = run(engine, *([prompt] for prompt in prompts))
        finally:
            engine.close()
        assert [handle.token_ids for handle in handles] == expected
        return [handle.cached_tokens for handle in handles], [(h.steps, h.accepted) for h in handles]

    cached, with_reuse = steps(True)
    assert cached == [0, 256, 256, 256, 384]
    none, without = steps(False)
    assert none == [0] * 5
    assert with_reuse == without


@pytest.mark.parametrize("name", ["test-a", "test-b"])
def test_what_prefill_leaves_on_the_device_is_what_it_leaves_without_reuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Hidden rows of the last 128 positions, the MTP layer's window over them and the first draft, not tokens alone."""
    config = preset(name)
    checkpoint = ensure_checkpoint(config, 3, tmp_path, "random")
    [donor, tail] = draw_prompts(config, [384, 140])
    prompts = [donor, [*donor[:256], *tail[:3]], [*donor[:258], *tail[:30]], [*donor[:300], *tail]]
    left = []
    execute = ModelRunner.execute_prefill

    def read(runner: ModelRunner, tensor: Any) -> Any:
        shard = tensor.shards[0]
        content = np.empty(shard.shape, shard.dtype)
        runner._worker.copy_from(content, shard.pointer, content.nbytes, worker_id=0)
        return content

    def watched(runner: ModelRunner, step: PrefillStep) -> PrefillOutput:
        output = execute(runner, step)
        [[chunk]] = step.chunks
        if chunk.terminal:
            request, window = chunk.request, np.arange(chunk.end - 128, chunk.end)
            hidden = read(runner, runner._state.prefill_hidden)[request.state_slot]
            pages = request.blocks[0][window // 128 % len(request.blocks[0])]
            keys = read(runner, runner._pools.mtp_kv)[:, pages, window % 128]
            left.append((hidden, keys, read(runner, runner._state.integers)[request.state_slot, 4:]))
        return output

    monkeypatch.setattr(ModelRunner, "execute_prefill", watched)
    for reuse in (True, False):
        options = EngineOptions(config, checkpoint, ranks=1, max_model_len=LONGEST, prefix_reuse=reuse)
        engine = Engine(options)
        try:
            handles = run(engine, *([prompt] for prompt in prompts), output=2)
        finally:
            engine.close()
        assert [handle.cached_tokens for handle in handles] == ([0, 256, 256, 256] if reuse else [0] * 4)
    for with_reuse, without in zip(left[:4], left[4:], strict=True):
        for found, expected in zip(with_reuse, without, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_the_donor_may_still_be_decoding(checkpoint: Path, greedy: dict[tuple[int, ...], list[int]]) -> None:
    engine = engine_for(checkpoint, max_model_len=3000)
    try:
        donor = engine.submit(Request("donor", DONOR, 2000))
        while len(donor.token_ids) < 3:
            assert not donor.wait(0.001)
        handles = run(engine, FIRST[7:])
        assert donor.finish_reason is None
        engine.cancel("donor")
        assert donor.wait(10)
    finally:
        engine.close()
    assert [handle.cached_tokens for handle in handles] == [384, 384]
    assert [handle.token_ids for handle in handles] == [greedy[tuple(prompt)] for prompt in FIRST[7:]]
    assert donor.token_ids[:OUTPUT] == greedy[tuple(DONOR)]


def test_small_pools_evict_and_change_no_token(
    checkpoint: Path, greedy: dict[tuple[int, ...], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    evictions = []
    reclaim = PrefixIndex.reclaim

    def counted(self: PrefixIndex, short: Sequence[int]) -> bool:
        before = len(self.pages)
        done = reclaim(self, short)
        evictions.append(before - len(self.pages))
        return done

    monkeypatch.setattr(PrefixIndex, "reclaim", counted)
    needed = CacheLayout.derive(CONFIG, LONGEST).blocks_for(440)
    # Kept pages for one request and a half; the rings of two and a bit.
    pages = tuple(count + 2 if index in (1, 2, 3) else 2 * count + 1 for index, count in enumerate(needed))
    prompts = [DONOR, *SECOND, *FIRST]
    engine = engine_for(checkpoint, pages=pages, prefix_snapshots=2)
    try:
        handles = [engine.submit(Request(f"r{i}", prompt, OUTPUT)) for i, prompt in enumerate(prompts)]
        for handle in handles:
            assert handle.wait(60)
        again = run(engine, *([prompt] for prompt in prompts))
    finally:
        engine.close()
    expected = [greedy[tuple(prompt)] for prompt in prompts]
    assert [handle.token_ids for handle in handles] == expected
    assert [handle.token_ids for handle in again] == expected
    assert sum(handle.cached_tokens for handle in again) > 0
    assert sum(evictions) > 0


def test_a_preempted_request_begins_behind_what_it_left_itself(checkpoint: Path) -> None:
    prompts = draw_prompts(CONFIG, [380, 380], seed=9)
    # Both grow beyond position 384, into their fourth page: there is one too few, and the later one gives way.
    rings = CacheLayout.derive(CONFIG, LONGEST).blocks_for(LONGEST)
    pages = tuple(7 if index in (1, 2, 3) else 2 * count for index, count in enumerate(rings))
    engine = engine_for(checkpoint, requests_per_rank=2, pages=pages)
    try:
        handles = run(engine, prompts)
    finally:
        engine.close()
    assert [handle.token_ids for handle in handles] == plain_greedy(CONFIG, checkpoint, prompts, OUTPUT)
    first, second = handles
    assert (first.preemptions, first.cached_tokens) == (0, 0)
    # How often depends on how far both got: it may start again in its third page, and give way again.
    assert second.preemptions >= 1
    assert second.cached_tokens == 256 * second.preemptions


def test_sampled_tokens_are_those_without_reuse(checkpoint: Path) -> None:
    sampling = Sampling(temperature=0.9, top_k=50, top_p=0.95, seed=11)
    tokens = []
    for reuse in (True, False):
        engine = engine_for(checkpoint, prefix_reuse=reuse)
        try:
            handles = run(engine, [DONOR], [DONOR, FIRST[8]], sampling=sampling)
        finally:
            engine.close()
        assert [handle.cached_tokens for handle in handles] == ([0, 384, 384] if reuse else [0, 0, 0])
        tokens.append([handle.token_ids for handle in handles])
    assert tokens[0] == tokens[1]


def test_a_request_goes_to_the_rank_that_has_its_prefix_while_there_is_a_seat(
    checkpoint: Path, greedy: dict[tuple[int, ...], list[int]]
) -> None:
    engine = engine_for(checkpoint, ranks=2, requests_per_rank=2, max_model_len=3000)
    try:
        [donor] = run(engine, [DONOR])
        long = engine.submit(Request("long", FIRST[8], 2000))
        while not long.token_ids:
            assert not long.wait(0.001)
        # The other rank has nothing to do, until this one has no seat left.
        sharers = [
            engine.submit(Request(f"r{i}", prompt, 500)) for i, prompt in enumerate((FIRST[7], SECOND[8]))
        ]
        while not all(sharer.token_ids for sharer in sharers):
            assert not long.wait(0.001)
        assert [handle.rank for handle in (donor, long, *sharers)] == [0, 0, 0, 1]
        assert [handle.cached_tokens for handle in (donor, long, *sharers)] == [0, 384, 384, 0]
    finally:
        engine.close(abort=True)


def test_new_ranks_begin_with_nothing_cached(
    checkpoint: Path, greedy: dict[tuple[int, ...], list[int]]
) -> None:
    engine = engine_for(checkpoint, max_restarts=1)
    try:
        run(engine, [DONOR])
        engine.worker.faults = FaultPlan([Fault(0, "kill", 2)])
        interrupted = engine.submit(Request("interrupted", FIRST[8], OUTPUT))
        assert interrupted.wait(30)
        [late] = run(engine, [SECOND[8]])
    finally:
        engine.close()
    # 384 positions by its first start, none by the one on new ranks, which leaves a prefix again.
    assert interrupted.cached_tokens == 384
    assert (interrupted.preemptions, interrupted.token_ids) == (1, greedy[tuple(FIRST[8])])
    assert (late.cached_tokens, late.token_ids) == (384, greedy[tuple(SECOND[8])])
