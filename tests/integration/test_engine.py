"""The engine on real rank processes: the same tokens as plain greedy decoding, however it is run."""

import itertools
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from dsv4bench.cache.layout import CacheLayout
from dsv4bench.engine.engine import Engine, EngineOptions
from dsv4bench.engine.requests import Request, RequestHandle
from dsv4bench.errors import EngineError, RankError, UsageError
from dsv4bench.faults import Fault
from dsv4bench.model.batch import BlockTables, CachePools, Rows
from dsv4bench.model.config import preset
from dsv4bench.model.exchange import LocalExchange
from dsv4bench.model.model import DeepSeekV4, load_weights
from dsv4bench.tracing.recorder import SpanRecorder
from dsv4bench.worker.fault_injection import FaultPlan
from tests.integration.conftest import is_alive

CONFIG = preset("test-b")
OUTPUT = 18
SLOW = [pytest.mark.slow]
LENGTHS = (5, 17, 33, 64, 12, 49)


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    draw = random.Random(7)
    return [[draw.randrange(2, CONFIG.vocab_size) for _ in range(length)] for length in LENGTHS]


@pytest.fixture(scope="module")
def greedy(checkpoints: dict[str, Path], prompts: list[list[int]]) -> dict[str, list[list[int]]]:
    """Tokens by the simplest method there is: one model, no engine, the whole sequence again for every token."""
    torch.set_num_threads(1)
    layout = CacheLayout.derive(CONFIG, 128)
    pages = [group.blocks_for(128) for group in layout.groups]
    tables = BlockTables(
        tuple(torch.arange(count, dtype=torch.int32)[None] for count in pages),
        torch.tensor([pages], dtype=torch.int32),
    )

    def generate(model: DeepSeekV4, prompt: list[int]) -> list[int]:
        tokens = list(prompt)
        for _ in range(OUTPUT):
            count = len(tokens)
            rows = Rows(torch.tensor(tokens), torch.arange(count), torch.zeros(count, dtype=torch.int64))
            streams = model.forward(rows, tables, CachePools.zeros(layout, pages))
            tokens.append(int(model.logits(streams[-1:]).argmax()))
        return tokens[len(prompt) :]

    expected = {}
    with torch.inference_mode():
        for kind, checkpoint in checkpoints.items():
            model = DeepSeekV4(CONFIG, load_weights(checkpoint), LocalExchange())
            expected[kind] = [generate(model, prompt) for prompt in prompts]
    return expected


def options(checkpoint: Path, **changes: Any) -> EngineOptions:
    chosen = {"ranks": 2, "requests_per_rank": 2, "max_model_len": 128, **changes}
    return EngineOptions(CONFIG, checkpoint, **chosen)


def generate(
    engine: Engine, prompts: list[list[int]], injected: list[list[int]] | None = None, output: int = OUTPUT
) -> list[RequestHandle]:
    handles = [
        engine.submit(
            Request(f"r{index}", prompt, output, injected_drafts=injected[index] if injected else None)
        )
        for index, prompt in enumerate(prompts)
    ]
    for handle in handles:
        assert handle.wait(60)
        assert handle.finish_reason == "length", handle.error
        assert handle.prefills + handle.steps + handle.accepted == len(handle.token_ids) + handle.discarded
        assert handle.token_times_ns == sorted(handle.token_times_ns)
    return handles


# Every pair of choices occurs in the half of them that is not slow.
@pytest.mark.parametrize(
    ("speculative_tokens", "ranks", "depth"),
    [
        pytest.param(*chosen, marks=[] if (chosen[0] + chosen[1].bit_length() + chosen[2]) % 2 else SLOW)
        for chosen in itertools.product((0, 1), (1, 2, 4, 8), (1, 2))
    ],
)
def test_tokens_are_those_of_plain_greedy_decoding(
    checkpoints: dict[str, Path],
    prompts: list[list[int]],
    greedy: dict[str, list[list[int]]],
    speculative_tokens: int,
    ranks: int,
    depth: int,
) -> None:
    kind = "bigram" if ranks in (2, 8) else "random"
    chosen = options(
        checkpoints[kind],
        ranks=ranks,
        depth=depth,
        mtp=speculative_tokens,
        # With fewer seats than requests, some wait for a seat, its pages and its state slot.
        requests_per_rank=-(-4 // ranks),
    )
    engine = Engine(chosen)
    try:
        handles = generate(engine, prompts)
    finally:
        engine.close()
    assert [handle.token_ids for handle in handles] == greedy[kind]
    if speculative_tokens and kind == "bigram":
        assert sum(handle.accepted for handle in handles) > 0


def always_right(tokens: list[int]) -> list[int]:
    return tokens


def always_wrong(tokens: list[int]) -> list[int]:
    return [(token + 1) % CONFIG.vocab_size for token in tokens]


def alternating(tokens: list[int]) -> list[int]:
    """Right, wrong, right, wrong by verification: an accepted step moves on by two positions, a rejected by one."""
    drafts, position, right = always_wrong(tokens), 1, True
    while position < len(tokens):
        if right:
            drafts[position] = tokens[position]
        position += 2 if right else 1
        right = not right
    return drafts


@pytest.mark.parametrize(
    ("drafter", "acceptance"), [(always_right, (1, 1)), (always_wrong, (0, 0)), (alternating, (0.4, 0.6))]
)
@pytest.mark.parametrize("depth", [1, 2])
def test_injected_drafts_change_acceptance_and_nothing_else(
    checkpoints: dict[str, Path],
    prompts: list[list[int]],
    greedy: dict[str, list[list[int]]],
    drafter: Callable[[list[int]], list[int]],
    acceptance: tuple[int, int],
    depth: int,
) -> None:
    injected = [
        [-1] * len(prompt) + drafter(tokens) for prompt, tokens in zip(prompts, greedy["random"], strict=True)
    ]
    engine = Engine(options(checkpoints["random"], depth=depth))
    try:
        handles = generate(engine, prompts, injected)
        # The same seats again without injection: nothing of it is left behind.
        plain = generate(engine, prompts[:2])
    finally:
        engine.close()
    assert [handle.token_ids for handle in handles] == greedy["random"]
    assert [handle.token_ids for handle in plain] == greedy["random"][:2]
    for handle in handles:
        # The step that ends a request may look beyond the injected tokens.
        rate = handle.accepted / handle.proposed
        assert acceptance[0] - 0.06 <= rate <= acceptance[1] + 0.06


def test_the_torch_distributed_exchange_gives_the_same_tokens(
    checkpoints: dict[str, Path], prompts: list[list[int]], greedy: dict[str, list[list[int]]]
) -> None:
    engine = Engine(options(checkpoints["random"], ranks=4, exchange="torch-distributed"))
    try:
        handles = generate(engine, prompts)
    finally:
        engine.close()
    assert [handle.token_ids for handle in handles] == greedy["random"]


def test_prefill_in_chunks_gives_the_same_tokens(
    checkpoints: dict[str, Path], prompts: list[list[int]], greedy: dict[str, list[list[int]]]
) -> None:
    engine = Engine(options(checkpoints["random"], prefill_tokens=10))
    try:
        handles = generate(engine, prompts)
    finally:
        engine.close()
    assert [handle.token_ids for handle in handles] == greedy["random"]


@pytest.mark.parametrize("depth", [1, 2])
def test_the_pipeline_is_as_deep_as_declared_and_never_deeper(
    checkpoints: dict[str, Path], prompts: list[list[int]], tmp_path: Path, depth: int
) -> None:
    recorder = SpanRecorder(tmp_path, ["verbose"], "test")

    def spans_so_far() -> dict[tuple[str, int], tuple[int, int]]:
        recorder.flush()
        spans = {}
        for fragment in (tmp_path / "fragments").iterdir():
            for line in fragment.read_bytes().splitlines():
                event = msgspec.json.decode(line)
                if event["ph"] == "X" and "step_id" in event.get("args", {}):
                    name = event["name"].rpartition(".")[2]
                    spans[name, event["args"]["step_id"]] = (event["ts"], event["ts"] + event["dur"])
        return spans

    def in_flight() -> int:
        names = [name for name, _ in spans_so_far()]
        return names.count("worker_submit") - names.count("worker_wait")

    engine = Engine(options(checkpoints["random"], depth=depth, dispatch_timeout_s=20), recorder)
    try:
        generate(engine, prompts[:4], output=40)
        engine.settle()
        # A rank that stands still completes nothing: what can be submitted ahead is, whoever else is busy.
        engine.worker.faults = FaultPlan([Fault(1, "hang", 4)])
        engine.submit(Request("held", prompts[0], 40))
        deadline = time.monotonic() + 10
        while not (engine.worker.faults.hit and in_flight() == depth):
            assert time.monotonic() < deadline, (engine.worker.faults.hit, in_flight(), engine.failure)
            time.sleep(0.02)
        os.kill(engine.worker.rank_pids[1], signal.SIGKILL)
    finally:
        engine.close(abort=True)
        recorder.close()
    spans = spans_so_far()
    steps = sorted(step for name, step in spans if name == "worker_wait")
    assert steps == list(range(len(steps)))
    assert len(steps) > 20
    if depth == 1:
        assert not any(
            spans["worker_submit", step + 1][0] < spans["worker_wait", step][1] for step in steps[:-1]
        )
    for step in steps[:-2]:
        assert spans["prepare_decode", step + 2][0] >= spans["reclaim_decode", step][1] - 1


def test_a_killed_rank_fails_every_request_and_keeps_what_was_published(
    checkpoints: dict[str, Path], prompts: list[list[int]]
) -> None:
    engine = Engine(options(checkpoints["random"], max_model_len=4000))
    pids = engine.worker.rank_pids
    handles = [engine.submit(Request(f"r{i}", prompt, 3900)) for i, prompt in enumerate(prompts)]
    deadline = time.monotonic() + 30
    while len(handles[0].token_ids) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(pids[1], signal.SIGKILL)
    for handle in handles:
        assert handle.wait(10)
        assert handle.finish_reason == "error"
        assert isinstance(handle.error, RankError)
        assert f"rank 1 (pid {pids[1]}) was killed by SIGKILL" in str(handle.error)
    assert len(handles[0].token_ids) >= 5
    with pytest.raises(EngineError, match="the engine has failed"):
        engine.submit(Request("late", prompts[0], 4))
    engine.close()
    assert not any(is_alive(pid) for pid in pids.values())
    assert not [thread.name for thread in threading.enumerate() if "lane" in thread.name]


def test_with_restarts_a_killed_rank_costs_time_and_no_token(
    checkpoints: dict[str, Path], prompts: list[list[int]], greedy: dict[str, list[list[int]]]
) -> None:
    engine = Engine(options(checkpoints["random"], max_restarts=1))
    try:
        first_life = engine.worker.rank_pids
        engine.worker.faults = FaultPlan([Fault(1, "kill", 2)])
        handles = [engine.submit(Request(f"r{i}", prompt, OUTPUT)) for i, prompt in enumerate(prompts)]
        for handle in handles:
            assert handle.wait(30)
        assert [handle.token_ids for handle in handles] == greedy["random"]
        assert engine.progress().restarts == 1
        assert not any(is_alive(pid) for pid in first_life.values())
        for handle in handles:
            assert (
                handle.prefills + handle.steps + handle.accepted == len(handle.token_ids) + handle.discarded
            )
        assert handles[0].preemptions == 1
        # The second failure is one too many.
        late = engine.submit(Request("late", prompts[0], 100))
        os.kill(engine.worker.rank_pids[0], signal.SIGKILL)
        assert late.wait(10)
        assert late.finish_reason == "error"
        assert "rank 0" in str(engine.failure)
    finally:
        engine.close()


def test_small_pools_preempt_and_change_no_token(
    checkpoints: dict[str, Path], prompts: list[list[int]], greedy: dict[str, list[list[int]]]
) -> None:
    # Three requests find seats, but the compressor states of only one and a bit can grow to their end.
    state_pages = [count + 8 for count in CacheLayout.derive(CONFIG, 128).blocks_for(64 + OUTPUT + 6)[4:]]
    pages = (3, 3, 3, 3, *state_pages)
    engine = Engine(options(checkpoints["random"], ranks=1, requests_per_rank=3, pages=pages))
    try:
        handles = [engine.submit(Request(f"r{i}", prompt, OUTPUT)) for i, prompt in enumerate(prompts)]
        for handle in handles:
            assert handle.wait(60)
        assert [handle.token_ids for handle in handles] == greedy["random"]
        assert sum(handle.preemptions for handle in handles) > 0
    finally:
        engine.close()


def test_cancel_keeps_the_tokens_and_frees_the_seat(
    checkpoints: dict[str, Path], prompts: list[list[int]], greedy: dict[str, list[list[int]]]
) -> None:
    engine = Engine(options(checkpoints["random"], ranks=1, requests_per_rank=1, max_model_len=4000))
    try:
        long = engine.submit(Request("long", prompts[0], 3900))
        after = engine.submit(Request("after", prompts[1], OUTPUT))
        while len(long.token_ids) < 3:
            time.sleep(0.005)
        engine.cancel("long")
        assert long.wait(10)
        assert long.finish_reason == "cancelled"
        assert len(long.token_ids) >= 3
        assert after.wait(30)
        assert after.token_ids == greedy["random"][1]
    finally:
        engine.close()


def test_an_aborted_engine_ends_what_runs_and_what_waits(
    checkpoints: dict[str, Path], prompts: list[list[int]]
) -> None:
    engine = Engine(options(checkpoints["random"], ranks=1, requests_per_rank=1, max_model_len=4000))
    handles = [engine.submit(Request(f"r{i}", prompts[0], 3900)) for i in range(3)]
    while not handles[0].token_ids:
        time.sleep(0.005)
    engine.close(abort=True)
    assert [handle.finish_reason for handle in handles] == ["cancelled"] * 3
    engine.close()


def test_the_end_of_text_token_ends_a_request_unless_told_otherwise(
    checkpoints: dict[str, Path], prompts: list[list[int]], greedy: dict[str, list[list[int]]]
) -> None:
    expected = greedy["random"][0]
    position = next(i for i in range(1, OUTPUT) if expected[i] not in expected[:i])
    config = msgspec.structs.replace(CONFIG, eos_token_id=expected[position])
    engine = Engine(EngineOptions(config, checkpoints["random"], ranks=1, max_model_len=128))
    try:
        stopping = engine.submit(Request("stop", prompts[0], OUTPUT, ignore_eos=False))
        going_on = engine.submit(Request("ignore", prompts[0], OUTPUT))
        assert stopping.wait(30)
        assert going_on.wait(30)
    finally:
        engine.close()
    assert stopping.finish_reason == "stop"
    assert stopping.token_ids == expected[: position + 1]
    assert going_on.token_ids == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ranks": 3}, "3 ranks cannot share 16 experts evenly; possible numbers of ranks: 1, 2, 4, 8, 16"),
        ({"ranks": 32}, "32 ranks cannot share 16 experts"),
        ({"depth": 3}, "depth = 3: Expected `int` <= 2"),
        ({"mtp": 8}, r"must be 0\.\.7, got 8"),
        ({"requests_per_rank": 65}, r"requests_per_rank must be 1\.\.8 with 1 speculative tokens"),
        ({"max_model_len": 4096}, r"max_model_len must be 2\.\.4090 for this model"),
    ],
)
def test_impossible_options_are_refused_before_anything_starts(
    checkpoints: dict[str, Path], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        Engine(options(checkpoints["random"], **changes))


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "message"),
    [
        ([], 4, "the prompt is empty"),
        ([5], 0, "max_tokens must be at least 1"),
        ([5] * 100, 29, "100 prompt tokens and 29 output tokens exceed max_model_len 128"),
        ([512], 4, r"prompt token 512 is not in 0\.\.511"),
    ],
)
def test_impossible_requests_are_refused(
    checkpoints: dict[str, Path], prompt: list[int], max_tokens: int, message: str
) -> None:
    engine = Engine(options(checkpoints["random"], ranks=1))
    try:
        with pytest.raises(UsageError, match=message):
            engine.submit(Request("r", prompt, max_tokens))
    finally:
        engine.close()


def test_an_engine_that_has_settled_has_told_of_every_step(
    checkpoints: dict[str, Path], prompts: list[list[int]], tmp_path: Path
) -> None:
    """The span of the output that ends the last request, and the step that was in flight behind it."""
    recorder = SpanRecorder(tmp_path, ["verbose"], "engine")
    engine = Engine(options(checkpoints["random"]), recorder)
    try:
        engine.settle()
        generate(engine, prompts)
        engine.settle()
        recorder.stop()
        steps = engine.progress().decode_steps
    finally:
        engine.close()
        recorder.close()
    engine.settle()
    fragments = b"".join(path.read_bytes() for path in (tmp_path / "fragments").iterdir())
    events = [msgspec.json.decode(line) for line in fragments.splitlines()]
    queued, processed = (
        {e["args"]["step_id"] for e in events if e["name"] == name and "step_id" in e.get("args", {})}
        for name in ("scheduler.queue_worker_step", "scheduler.process_step_output")
    )
    assert queued == processed
    assert len(processed) == steps
