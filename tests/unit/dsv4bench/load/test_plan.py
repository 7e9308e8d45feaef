"""Which requests a profile asks for, with which prompts, and when."""

from __future__ import annotations

import json
import math
import statistics
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4bench.errors import UsageError
from dsv4bench.load.arrivals import arrival_times
from dsv4bench.load.plan import Plan, plan_batches
from dsv4bench.load.timetable import read_timetable
from dsv4bench.model.tokenizer import Tokenizer
from dsv4bench.profile import Profile, load_profile

VOCABULARY = 129280


def profile(*sets: str) -> Profile:
    return load_profile("gbs32-mtp1", sets)


def plan(*sets: str, texts: bool = False) -> Plan:
    return plan_batches(profile(*sets), VOCABULARY, texts=texts)


def gaps(*sets: str, count: int = 4000) -> list[float]:
    times = arrival_times(profile("load.request_rate=20", *sets).load, count)
    assert times is not None
    return [(after - before) / 1e9 for before, after in pairwise([0, *times])]


def test_without_a_rate_requests_have_no_time() -> None:
    batch = plan("load.requests=3").measured
    assert [request.arrival_ns for request in batch] == [None] * 3
    assert [request.request_id for request in batch] == ["request-0", "request-1", "request-2"]


def test_a_constant_rate_has_equal_gaps() -> None:
    assert set(gaps("load.arrivals=constant", count=5)) == {0.05}


@pytest.mark.parametrize(
    ("sets", "variation"),
    [
        ((), 1.0),
        (("load.arrivals=gamma", "load.burstiness=0.25"), 2.0),
        (("load.arrivals=gamma", "load.burstiness=4"), 0.5),
    ],
)
def test_random_arrivals_have_the_rate_and_the_variation_of_their_distribution(
    sets: tuple[str, ...], variation: float
) -> None:
    """The gamma distribution of shape k has the coefficient of variation 1 / sqrt(k); Poisson is that of shape 1."""
    found = gaps(*sets)
    mean = statistics.mean(found)
    # Within five standard errors.
    assert mean == pytest.approx(0.05, abs=5 * 0.05 * variation / math.sqrt(len(found)))
    assert statistics.stdev(found) / mean == pytest.approx(variation, rel=0.15)


def test_arrivals_are_drawn_by_the_seed_alone() -> None:
    assert gaps(count=10) == gaps(count=10) != gaps("load.seed=1", count=10)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.5, 50), st.floats(0.5, 50), st.sampled_from(["linear", "exponential"]), st.integers(2, 60))
def test_a_ramp_goes_from_one_rate_to_the_other(start: float, end: float, ramp: str, count: int) -> None:
    load = profile(f"load.ramp={ramp}", f"load.ramp_start_rate={start}", f"load.ramp_end_rate={end}").load
    times = arrival_times(load, count)
    assert times is not None
    rates = [1e9 / (after - before) for before, after in pairwise([0, *times])]
    assert rates[0] == pytest.approx(start, rel=1e-6)
    assert rates[-1] == pytest.approx(end, rel=1e-6)
    assert rates == pytest.approx(sorted(rates, reverse=end < start), rel=1e-6)


def test_warm_up_batches_have_the_same_prompts_and_other_lengths() -> None:
    whole = plan("load.requests=2", "load.warmup_batches=2", "load.warmup_output_tokens=3")
    assert [[request.request_id for request in batch] for batch in whole.warmup] == [
        ["warmup0-0", "warmup0-1"],
        ["warmup1-0", "warmup1-1"],
    ]
    assert {request.output_tokens for batch in whole.warmup for request in batch} == {3}
    assert [request.prompt for request in whole.warmup[1]] == [request.prompt for request in whole.measured]
    assert whole.output_tokens == 2 * 256


def test_prompts_as_text_have_exactly_so_many_tokens() -> None:
    for request in plan("load.requests=5", texts=True).measured:
        assert len(request.prompt.token_ids) == 64
        assert tuple(Tokenizer().encode(request.prompt.text or "")) == request.prompt.token_ids


@pytest.mark.parametrize("texts", [False, True])
def test_requests_of_a_group_share_its_prefix(texts: bool) -> None:
    batch = plan("load.requests=4", "load.prefix_groups=2", "load.prefix_tokens=40", texts=texts).measured
    prompts = [request.prompt.token_ids for request in batch]
    assert {len(prompt) for prompt in prompts} == {64}
    assert prompts[0][:40] == prompts[2][:40] != prompts[1][:40] == prompts[3][:40]
    assert len({prompt[40:] for prompt in prompts}) == 4


def test_prompts_of_a_file_are_used_round_robin(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("Huawei is\n\nHello there\n")
    batch = plan("load.requests=3", f"load.prompts_file={path}").measured
    assert [request.prompt.text for request in batch] == ["Huawei is", "Hello there", "Huawei is"]


def timetable(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "timetable"
    path.write_text(text)
    return path


def test_a_mooncake_timetable_keeps_times_lengths_and_shared_blocks(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 1000, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]},
        {"timestamp": 3500, "input_length": 700, "output_length": 6, "hash_ids": [1, 3]},
    ]
    path = timetable(tmp_path, "\n".join(map(json.dumps, rows)))
    batch = plan(
        f"load.timetable={path}",
        "load.timetable_speed=2.5",
        "load.warmup_batches=0",
        "engine.max_model_len=1024",
    ).measured
    assert [request.arrival_ns for request in batch] == [0, 1_000_000_000]
    assert [len(request.prompt.token_ids) for request in batch] == [600, 700]
    assert [request.output_tokens for request in batch] == [5, 6]
    first, second = (request.prompt.token_ids for request in batch)
    assert first[:512] == second[:512]
    assert first[512:600] != second[512:600]


def test_a_burstgpt_timetable_is_csv_in_seconds(tmp_path: Path) -> None:
    path = timetable(
        tmp_path,
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "7.5,ChatGPT,20,3,23,x\n5,ChatGPT,10,4,14,x\n",
    )
    rows = read_timetable(path, 1.0, 10)
    assert [(row.arrival_ns, row.prompt_tokens, row.output_tokens) for row in rows] == [
        (0, 10, 4),
        (2_500_000_000, 20, 3),
    ]


def test_a_plain_timetable_may_bring_its_prompts(tmp_path: Path) -> None:
    path = timetable(tmp_path, '{"arrival_s": 0.5, "output_tokens": 2, "prompt": "Huawei is"}\n')
    (request,) = plan(f"load.timetable={path}", "load.warmup_batches=0").measured
    assert (request.prompt.text, request.arrival_ns, request.output_tokens) == ("Huawei is", 0, 2)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no request in it"),
        ('{"arrival_s": 1, "output_tokens": 2}', "no number of tokens"),
        ('{"output_tokens": 2, "prompt_tokens": 1}', "no time of arrival"),
        ('{"arrival_s": "x", "output_tokens": 2, "prompt_tokens": 1}', "expected a number"),
        ('{"arrival_s": 1, "output_tokens": 2.5, "prompt_tokens": 1}', "expected a whole number"),
        ('{"arrival_s": 1, "output_tokens"', "is no JSON"),
        ('{"arrival_s": 1, "output_tokens": 2, "prompt_tokens": 9999}', "need 10002 positions"),
    ],
)
def test_a_timetable_that_does_not_say_what_it_must_is_refused(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=says):
        plan(f"load.timetable={timetable(tmp_path, text)}")


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        (("load.ramp=linear",), "load.ramp needs"),
        (("load.ramp_start_rate=1",), "are of a ramp"),
        (
            ("load.request_rate=1", "load.ramp=linear", "load.ramp_start_rate=1", "load.ramp_end_rate=2"),
            "both say when",
        ),
        (("load.arrivals=gamma",), "set load.request_rate"),
        (("load.request_rate=1", "load.burstiness=2"), "load.arrivals = gamma"),
        (("load.prefix_groups=2",), "go together"),
        (("load.prefix_groups=2", "load.prefix_tokens=64"), "leaves nothing"),
        (('load.prompts=["a"]', "load.prefix_groups=2", "load.prefix_tokens=4"), "synthetic prompts"),
        (("load.timetable_speed=2",), "set load.timetable"),
    ],
)
def test_keys_that_contradict_each_other_are_refused(sets: tuple[str, ...], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        profile(*sets)
