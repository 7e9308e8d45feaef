"""The endpoints, with an engine without ranks behind them."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dsv4bench.engine.requests import Request, Sampling
from dsv4bench.errors import RankError
from dsv4bench.tracing.recorder import SpanRecorder
from tests.unit.dsv4bench.serving.client import TOKENIZER, Client, serving
from tests.unit.dsv4bench.serving.fake_engine import FakeEngine


def run(test: Callable[[Client], Awaitable[None]], engine: FakeEngine | None = None, **options: Any) -> None:
    async def within() -> None:
        async with asyncio.timeout(30), serving(engine, **options) as client:
            await test(client)

    asyncio.run(within())


def test_a_stream_has_an_event_a_step_then_the_usage_then_its_end() -> None:
    async def test(client: Client) -> None:
        answer = await client.complete(stream=True, return_token_ids=True, max_tokens=6)
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        *steps, last = answer.events
        choices = [event["choices"][0] for event in steps]
        assert [choice["token_ids"] for choice in choices] == [[100], [101, 102], [103, 104], [105]]
        assert [choice["finish_reason"] for choice in choices] == [None, None, None, "length"]
        assert [choice.get("prompt_token_ids") for choice in choices] == [[5, 6, 7], None, None, None]
        assert "".join(choice["text"] for choice in choices) == TOKENIZER.decode(range(100, 106))
        assert "usage" not in steps[0]
        assert last["choices"] == []
        assert last["usage"] == {"prompt_tokens": 3, "completion_tokens": 6, "total_tokens": 9}
        counts = last["dsv4bench"]
        assert counts["prefills"] + counts["steps"] + counts["accepted"] == 6 + counts["discarded"]
        assert counts["rank"] == 0
        assert len({event["id"] for event in answer.events}) == 1

    run(test)


def test_steps_that_come_while_the_loop_is_busy_keep_events_of_their_own() -> None:
    async def test(client: Client) -> None:
        asking = asyncio.create_task(client.complete(stream=True, return_token_ids=True, max_tokens=5))
        while not client.engine.requests:
            await asyncio.sleep(0.001)
        client.engine.release()
        time.sleep(0.2)
        answer = await asking
        assert [event["choices"][0]["token_ids"] for event in answer.events[:-1]] == [
            [100],
            [101, 102],
            [103, 104],
        ]

    run(test, FakeEngine(held=True))


def test_one_document_says_what_the_stream_says() -> None:
    async def test(client: Client) -> None:
        document = (await client.complete(return_token_ids=True)).json
        assert document["object"] == "text_completion"
        assert document["choices"][0]["text"] == TOKENIZER.decode(range(100, 104))
        assert document["choices"][0]["token_ids"] == [100, 101, 102, 103]
        assert document["choices"][0]["prompt_token_ids"] == [5, 6, 7]
        assert document["usage"]["completion_tokens"] == 4
        assert "token_ids" not in (await client.complete()).json["choices"][0]

    run(test)


def test_usage_with_every_event_where_it_is_asked_for() -> None:
    async def test(client: Client) -> None:
        options = {"include_usage": True, "continuous_usage_stats": True}
        answer = await client.complete(stream=True, stream_options=options)
        assert [event["usage"]["completion_tokens"] for event in answer.events] == [1, 3, 4, 4]

    run(test)


@pytest.mark.parametrize(
    ("prompt", "token_ids"),
    [
        ("Huawei is", [42, 5207, 24063, 344]),
        ([5, 6], [5, 6]),
        (["Huawei is"], [42, 5207, 24063, 344]),
        ([[5]], [5]),
    ],
)
def test_a_prompt_is_text_or_token_ids(prompt: Any, token_ids: list[int]) -> None:
    async def test(client: Client) -> None:
        answer = await client.complete(prompt=prompt)
        assert answer.json["usage"]["prompt_tokens"] == len(token_ids)
        assert client.engine.requests[0].prompt_token_ids == token_ids

    run(test)


def test_sampling_and_lengths_reach_the_engine() -> None:
    async def test(client: Client) -> None:
        await client.complete(temperature=0.5, top_k=7, top_p=0.9, seed=3)
        await client.complete(top_k=-1)
        await client.post("/v1/completions", {"prompt": [5]})
        await client.chat(max_tokens=None, max_completion_tokens=5)
        sampled, greedy, default, chat = client.engine.requests
        assert sampled.sampling == Sampling(0.5, 7, 0.9, 3)
        assert greedy.sampling == Sampling(0.0, 0, 1.0, 0)
        assert sampled.ignore_eos
        assert default.max_tokens == 255  # as much as fits behind one token of the prompt
        assert not chat.ignore_eos
        assert chat.max_tokens == 5

    run(test)


def test_a_chat_is_put_in_the_models_own_encoding() -> None:
    async def test(client: Client) -> None:
        document = (await client.chat(return_token_ids=True)).json
        assert document["object"] == "chat.completion"
        assert document["id"].startswith("chatcmpl-")
        assert document["choices"][0]["message"] == {
            "role": "assistant",
            "content": TOKENIZER.decode(range(100, 104)),
        }
        prompt = document["prompt_token_ids"]
        assert TOKENIZER.decode(prompt) == "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜></think>"  # noqa: RUF001
        events = (await client.chat(stream=True, return_token_ids=True)).events
        assert events[0]["object"] == "chat.completion.chunk"
        assert events[0]["prompt_token_ids"] == prompt
        text = "".join(event["choices"][0]["delta"]["content"] for event in events[:-1])
        assert text == document["choices"][0]["message"]["content"]

    run(test)


def test_reasoning_ends_with_its_token() -> None:
    end = TOKENIZER.encode("</think>")[0]

    async def test(client: Client) -> None:
        thinking: dict[str, Any] = {"chat_template_kwargs": {"thinking": True}}
        message = (await client.chat(**thinking)).json["choices"][0]["message"]
        assert message["reasoning"] == TOKENIZER.decode([100])
        assert message["content"] == TOKENIZER.decode([101, 102])
        events = (await client.chat(stream=True, **thinking)).events[:-1]
        deltas = [event["choices"][0]["delta"] for event in events]
        assert "".join(delta.get("reasoning", "") for delta in deltas) == message["reasoning"]
        assert "".join(delta["content"] for delta in deltas) == message["content"]
        hidden = (await client.chat(include_reasoning=False, reasoning_effort="high")).json
        assert "reasoning" not in hidden["choices"][0]["message"]
        plain = (await client.chat(reasoning_effort="none", chat_template_kwargs={"thinking": True})).json
        assert plain["choices"][0]["message"]["content"] == TOKENIZER.decode([100, end, 101, 102])

    run(test, FakeEngine(lambda request: [[100], [end, 101], [102]]))


def test_a_stop_string_ends_the_answer_and_the_request() -> None:
    tokens = [TOKENIZER.encode(text)[0] for text in (" one", " two", " three", " four")]

    async def test(client: Client) -> None:
        document = (await client.complete(stop=" three", return_token_ids=True, max_tokens=200)).json
        assert document["choices"][0]["text"] == " one two"
        assert document["choices"][0]["finish_reason"] == "stop"
        assert document["choices"][0]["token_ids"] == tokens[:3]
        assert client.engine.cancelled == [document["id"]]
        events = (await client.complete(stop=["nothing", "o th"], stream=True)).events
        assert "".join(event["choices"][0]["text"] for event in events[:-1]) == " one tw"
        assert events[-1]["usage"]["completion_tokens"] == 3
        late = (await client.complete(stop=" two", min_tokens=4)).json
        assert late["choices"][0]["finish_reason"] == "length"

    def script(request: Request) -> list[list[int]]:
        return [tokens[:1], tokens[1:3], *([tokens[3]] for _ in range(request.max_tokens - 3))]

    run(test, FakeEngine(script, step_s=0.005))


def test_no_event_splits_a_character() -> None:
    whole = "🙂 naïve 中文"
    tokens = TOKENIZER.encode(whole)
    assert "\ufffd" in TOKENIZER.decode(tokens[:1])  # the first token is a part of a character

    async def test(client: Client) -> None:
        answer = await client.complete(stream=True, max_tokens=len(tokens))
        texts = [event["choices"][0]["text"] for event in answer.events[:-1]]
        assert len(texts) == len(tokens)
        assert "".join(texts) == whole
        assert not any("\ufffd" in text for text in texts)
        cut = await client.complete(max_tokens=1)
        assert cut.json["choices"][0]["text"] == TOKENIZER.decode(tokens[:1])

    run(test, FakeEngine(lambda request: [[token] for token in tokens[: request.max_tokens]]))


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"n": 2}, "n", "allowed: null, 1"),
        ({"n": True}, "n", "true is not supported"),
        ({"best_of": 3}, "best_of", "3"),
        ({"echo": True}, "echo", "allowed: null, false"),
        ({"logprobs": 1}, "logprobs", "1 is not supported"),
        ({"logprobs": 0}, "logprobs", "0 is not supported"),
        ({"presence_penalty": 0.5}, "presence_penalty", "0.5"),
        ({"logit_bias": {"5": 1}}, "logit_bias", "not supported"),
        ({"tools": [{"type": "function"}]}, "tools", "not supported"),
        ({"max_tokens": 0}, "max_tokens", ">= 1"),
        ({"max_tokens": "9"}, "max_tokens", "got `str`"),
        ({"max_tokens": 254}, "max_tokens", "at most 253"),
        ({"temperature": -1}, "temperature", "from 0"),
        ({"top_p": 0}, "top_p", "above 0"),
        ({"top_k": -2}, "top_k", ">= -1"),
        ({"seed": 1 << 80}, "seed", ""),
        ({"min_tokens": 9}, "min_tokens", "more than max_tokens"),
        ({"ignore_eos": False}, "ignore_eos", "allowed: true"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "stream: true"),
        ({"stream": True, "stream_options": {"more": 1}}, "stream_options", "more"),
        ({"prompt": ["a", "b"]}, "prompt", "one prompt a request"),
        ({"prompt": []}, "prompt", ""),
        ({"prompt": ""}, "prompt", "empty"),
        ({"prompt": [1, "a"]}, "prompt", "one prompt"),
        ({"prompt": [1.5]}, "prompt", "token ids"),
        ({"prompt": [129280]}, "prompt", "0..129279"),
        ({"prompt": [-1]}, "prompt", "-1"),
        ({"prompt": [5] * 256}, "prompt", "256 tokens"),
        ({"prompt": "x" * 40000}, "prompt", "40000 characters"),
        ({"stop": [""]}, "stop", "length"),
        ({"max_tokens": 13}, None, "bad luck"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(
    fields: dict[str, Any], param: str | None, words: str
) -> None:
    async def test(client: Client) -> None:
        answer = await client.complete(**fields)
        assert answer.status == 400
        assert answer.json["object"] == "error"
        assert answer.json["message"] == answer.json["error"]["message"]
        assert answer.json["error"]["param"] == param
        assert words in answer.json["message"]
        assert (param or "") in answer.json["message"]
        assert not client.engine.requests

    run(test)


def test_values_that_change_nothing_and_null_are_taken() -> None:
    async def test(client: Client) -> None:
        neutral = {
            "n": 1,
            "echo": False,
            "logprobs": None,
            "presence_penalty": 0.0,
            "stop": None,
            "user": "me",
        }
        assert (await client.complete(**neutral)).status == 200
        answer = await client.complete(favourite_colour="red")
        assert answer.json["dsv4bench"]["ignored_fields"] == ["favourite_colour"]

    run(test)


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"[]", {}, 400),
        (b'{"prompt": "\xff"}', {}, 400),
        (b"{}", {}, 400),
        (b'{"prompt": "x"}', {"content_type": "text/plain"}, 415),
        (b'{"prompt": "' + b"x" * 70000 + b'"}', {}, 413),
        (b'{"prompt": "x"}', {"content_length": "70000"}, 413),
        (b'{"prompt": "x"}', {"x_request_id": "a b"}, 400),
        (b'{"prompt": "x", "model": "other"}', {}, 404),
    ],
)
def test_bodies_and_headers_that_are_refused(body: bytes, headers: dict[str, str], status: int) -> None:
    async def test(client: Client) -> None:
        answer = await client.post("/v1/completions", body, **headers)
        assert answer.status == status
        assert answer.json["error"]["code"] == status

    run(test)


def test_an_unknown_path_and_method_are_errors_of_the_same_shape() -> None:
    async def test(client: Client) -> None:
        for answer, status in (
            (await client.get("/v2"), 404),
            (await client.get("/v1/completions"), 405),
            (await client.post("/start_profile"), 404),
        ):
            assert answer.status == status
            assert answer.json["object"] == "error"
        assert "--profile" in answer.json["message"]

    run(test)


def test_the_request_id_is_the_clients() -> None:
    async def test(client: Client) -> None:
        answer = await client.complete(stream=True)
        assert answer.headers["x-request-id"]
        answer = await client.post(
            "/v1/completions", {"prompt": [5], "max_tokens": 1}, x_request_id="run-7.a:b_c"
        )
        assert answer.json["id"] == "cmpl-run-7.a:b_c"
        assert answer.headers["x-request-id"] == "run-7.a:b_c"
        assert client.engine.requests[-1].request_id == "cmpl-run-7.a:b_c"

    run(test)


def test_an_id_that_is_in_use_is_refused() -> None:
    async def test(client: Client) -> None:
        body = {"prompt": [5], "max_tokens": 1}
        first = asyncio.create_task(client.post("/v1/completions", body, x_request_id="same"))
        while not client.engine.requests:
            await asyncio.sleep(0.001)
        assert (await client.post("/v1/completions", body, x_request_id="same")).status == 409
        client.engine.release()
        assert (await first).status == 200

    run(test, FakeEngine(held=True))


def test_at_the_limit_requests_are_told_to_come_back() -> None:
    async def test(client: Client) -> None:
        running = [asyncio.create_task(client.complete()) for _ in range(2)]
        while len(client.engine.requests) < 2:
            await asyncio.sleep(0.001)
        answer = await client.complete()
        assert answer.status == 429
        assert int(answer.headers["retry-after"]) >= 1
        client.engine.release()
        assert [done.status for done in await asyncio.gather(*running)] == [200, 200]
        assert (await client.complete()).status == 200
        figures = (await client.get("/metrics/json")).json["replicas"][0]["counters"]
        assert (figures["requests_finished"], figures["requests_refused"]) == (3, 1)

    run(test, FakeEngine(held=True), most_requests=2)


def test_a_key_is_wanted_where_there_is_one() -> None:
    async def test(client: Client) -> None:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "sesame"}):
            answer = await client.post("/v1/completions", {"prompt": [5]}, **headers)
            assert answer.status == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert (await client.get("/v1/models", **headers)).status == 401
            assert (await client.post("/start_profile", **headers)).status == 401
        assert not client.engine.requests
        assert (await client.get("/health")).status == 200
        assert (await client.get("/v1/models", authorization="Bearer sesame")).status == 200

    run(test, api_key="sesame", profile_output=Path("nowhere"))


def test_nothing_is_answered_before_the_engine_is_up() -> None:
    async def test(client: Client) -> None:
        health = await client.get("/health")
        assert (health.status, health.json["status"]) == (503, "starting")
        answer = await client.complete()
        assert answer.status == 503
        assert answer.headers["retry-after"]
        assert (await client.get("/v1/models")).json["data"][0]["id"] == "tiny"
        assert "num_requests_running" not in (await client.get("/metrics")).body.decode()
        assert (await client.get("/metrics/json")).json["device_map"] == []

    run(test, ready=False)


def test_health_says_ok_and_then_why_not() -> None:
    async def test(client: Client) -> None:
        assert (await client.get("/health")).json == {"status": "ok"}
        client.service.lifecycle.enter("draining")
        assert (await client.get("/health")).json["status"] == "draining"
        client.service.lifecycle.enter("failed", "rank 3 died")
        client.service.lifecycle.enter("draining")
        health = await client.get("/health")
        assert health.status == 503
        assert "rank 3 died" in health.json["message"]

    run(test)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_ends_its_request(stream: bool) -> None:
    async def test(client: Client) -> None:
        leaving = asyncio.Event()
        body = b'{"prompt": [5], "max_tokens": 9, "stream": %s}' % str(stream).lower().encode()
        headers = {"content-type": "application/json"}
        asking = asyncio.create_task(client.ask("POST", "/v1/completions", body, headers, leaving=leaving))
        while not client.engine.requests:
            await asyncio.sleep(0.001)
        leaving.set()
        answer = await asking
        assert client.engine.cancelled == [client.engine.requests[0].request_id]
        assert b"DONE" not in answer.body
        figures = (await client.get("/metrics/json")).json["replicas"][0]
        assert figures["finish_reasons"] == {"aborted": 1}

    run(test, FakeEngine(held=True))


def test_a_failure_of_the_engine_ends_answers_with_an_error() -> None:
    async def test(client: Client) -> None:
        stream = asyncio.create_task(client.complete(stream=True))
        document = asyncio.create_task(client.complete())
        while len(client.engine.requests) < 2:
            await asyncio.sleep(0.001)
        client.engine.fail(RankError("rank 2 was killed by SIGKILL"))
        (error,) = (await stream).events
        assert (await stream).status == 200
        assert error["error"]["code"] == 500
        assert "rank 2" in error["error"]["message"]
        assert (await document).status == 500
        assert "rank 2" in (await document).json["message"]
        assert (await client.complete()).status == 503

    run(test, FakeEngine(held=True))


def test_answers_that_a_shutdown_cuts_off_say_so() -> None:
    async def test(client: Client) -> None:
        stream = asyncio.create_task(client.complete(stream=True, max_tokens=200))
        while not client.engine.progress().tokens:
            await asyncio.sleep(0.001)
        client.service.lifecycle.enter("draining")
        client.service.cancel_all()
        *steps, error = (await stream).events
        assert steps
        assert all(step["choices"][0]["finish_reason"] is None for step in steps)
        assert error["error"]["code"] == 503
        assert "shutting down" in error["error"]["message"]

    run(test, FakeEngine(step_s=0.01))


def test_metrics_count_what_was_published() -> None:
    async def test(client: Client) -> None:
        await client.complete(max_tokens=6)
        await client.complete(max_tokens=1)
        text = (await client.get("/metrics")).body.decode()
        samples = {
            sample.name: sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if "le" not in sample.labels and sample.labels.get("model_name") == "tiny"
        }
        for namespace in ("pypto", "vllm"):
            assert samples[f"{namespace}:generation_tokens_total"] == 7
            assert samples[f"{namespace}:prompt_tokens_total"] == 6
            assert samples[f"{namespace}:time_to_first_token_seconds_count"] == 2
            assert samples[f"{namespace}:num_requests_running"] == 0
        # Steps of 1, 2, 2 and 1 tokens, and one of 1.
        assert samples["pypto:inter_token_latency_seconds_count"] == 5
        assert samples["vllm:inter_token_latency_seconds_count"] == 3
        assert samples["pypto:request_time_per_output_token_seconds_count"] == 1
        assert samples["vllm:request_time_per_output_token_seconds_count"] == 2
        document = (await client.get("/metrics/json")).json
        assert document["schema_version"] == 1
        assert document["program_cache"] == {"hits": 3, "misses": 0}
        assert document["device_map"][0]["pid"] == 4711
        assert document["replicas"][0]["histograms"]["ttft"]["count"] == 2

    run(test)


def test_a_profile_window_is_one_trace(tmp_path: Path) -> None:
    recorder = SpanRecorder(tmp_path, {"e2e"}, "test", recording=False)

    async def test(client: Client) -> None:
        worker = client.engine.worker
        assert not worker.tracing
        assert (await client.post("/stop_profile")).status == 409
        await client.complete(max_tokens=1)
        assert (await client.post("/start_profile")).status == 200
        assert worker.tracing
        await asyncio.gather(*(client.complete(max_tokens=2) for _ in range(3)))
        assert (await client.post("/stop_profile")).status == 200
        assert not worker.tracing
        assert client.engine.settled == 2
        trace = (tmp_path / "trace.json").read_text()
        assert trace.count('"http.completions"') == 3

    run(test, recorder=recorder, profile_output=tmp_path)
    recorder.close()


def test_runtime_records_that_are_always_wanted_do_not_end_with_a_window(tmp_path: Path) -> None:
    recorder = SpanRecorder(tmp_path, {"e2e"}, "test", recording=False)

    async def test(client: Client) -> None:
        assert client.engine.worker.tracing
        await client.post("/start_profile")
        await client.post("/stop_profile")
        assert client.engine.worker.tracing

    run(test, recorder=recorder, profile_output=tmp_path, strace_always=True)
    recorder.close()
