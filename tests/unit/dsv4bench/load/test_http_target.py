"""Requests over HTTP against small servers that answer one way or another."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from analyzers.rundir import RequestRecord
from dsv4bench.load.endpoint import Endpoint
from dsv4bench.load.http_target import HttpTarget
from dsv4bench.load.requests import LoadRequest, Prompt

Handler = Callable[[dict[str, str], bytes, asyncio.StreamWriter], Awaitable[None]]
REQUEST = LoadRequest("request-0", Prompt((4, 5), "two words"), 3)
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def record_of(
    handler: Handler, endpoint: dict[str, Any] | None = None, timeout_s: float = 20.0
) -> RequestRecord:
    """The record of one request to a server that answers by `handler`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        body = await reader.readexactly(int(headers["Content-Length"]))
        try:
            await handler(headers, body, writer)
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        except ConnectionError:
            return  # that is what the test is about
        finally:
            writer.transport.abort()

    async def send() -> RequestRecord:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        given = endpoint or {}
        async with (
            server,
            HttpTarget(Endpoint(f"http://127.0.0.1:{port}", "m", **given), timeout_s=timeout_s) as target,
        ):
            return await target.send(REQUEST, 7, "measured")

    return asyncio.run(send())


def plain(status: str, body: bytes, *headers: str) -> Handler:
    async def answer(_: dict[str, str], __: bytes, writer: asyncio.StreamWriter) -> None:
        lines = [
            f"HTTP/1.1 {status}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            *headers,
        ]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    return answer


def stream(*parts: bytes, hang: bool = False, chunked: bool = False) -> Handler:
    async def answer(_: dict[str, str], __: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(
            STREAM.replace(b"Connection: close", b"Transfer-Encoding: chunked") if chunked else STREAM
        )
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.01)
        if hang:
            await asyncio.sleep(30)

    return answer


TOKEN = b'data: {"id":"cmpl-9","choices":[{"text":"a","token_ids":[5],"finish_reason":null}]}\n\n'
END = b'data: {"id":"cmpl-9","choices":[{"text":"b","token_ids":[6,7],"finish_reason":"length"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":3}}\n\n'


def test_a_whole_answer_is_a_record_with_times_and_counts() -> None:
    record = record_of(stream(TOKEN[:30], TOKEN[30:], END, USAGE, b"data: [DONE]\n\n"))
    assert (record.error, record.http_status, record.server_request_id) == (None, 200, "cmpl-9")
    assert record.output_token_ids == [5, 6, 7]
    assert record.send_ns < record.token_times_ns[0] < record.token_times_ns[1] == record.token_times_ns[2]
    assert (record.prompt_tokens, record.completion_tokens, record.planned_ns) == (2, 3, 7)


def test_the_body_is_what_the_endpoint_wants() -> None:
    seen: list[tuple[dict[str, str], bytes]] = []

    async def answer(headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter) -> None:
        seen.append((headers, body))
        writer.write(STREAM + END)

    fields = {"ignore_eos": True, "generation_config.do_sample": False}
    lengths = ("max_tokens", "generation_config.max_new_tokens")
    record_of(answer, {"fields": fields, "length_fields": lengths, "stream_usage": False, "api_key": "k"})
    ((headers, raw),) = seen
    body = msgspec.json.decode(raw)
    assert headers["X-Request-Id"] == "request-0"
    assert headers["Authorization"] == "Bearer k"
    config = msgspec.json.decode(body.pop("generation_config"))
    assert config == {"do_sample": False, "max_new_tokens": 3}
    assert body == {"model": "m", "stream": True, "prompt": "two words", "ignore_eos": True, "max_tokens": 3}


def test_a_field_that_is_refused_is_named_with_the_key_that_governs_it() -> None:
    body = b'{"detail": "Unexpected fields in the request: {\'ignore_eos\'}"}'
    record = record_of(
        plain("422 Unprocessable Entity", body),
        {"governed_by": {"ignore_eos": "server.endpoint.fields", "seed": "no"}},
    )
    assert record.http_status == 422
    assert record.error is not None
    assert record.error.endswith("; ignore_eos is governed by server.endpoint.fields")


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (
            plain("429 Too Many Requests", b'{"object":"error","message":"busy"}', "Retry-After: 2"),
            "busy (Retry-After: 2)",
        ),
        (plain("500 Internal Server Error", b"oops"), "HTTP 500: oops"),
        (plain("200 OK", b'{"choices": []}'), "in one piece"),
        (plain("200 OK", b'{"error": {"message": "late"}}'), "late"),
        (stream(TOKEN, b'data: {"error": {"message": "engine gone"}}\n\n'), "engine gone"),
        (stream(TOKEN), "ended before the server said that it was complete"),
        (stream(TOKEN, END[:40]), "ended inside an event"),
        (stream(b"%x\r\n%s\r\n" % (len(TOKEN), TOKEN), b"5\r\nda", chunked=True), "the connection failed"),
        (stream(TOKEN, END.replace(b"length", b"error")), "finish_reason error"),
        (stream(TOKEN, END, USAGE.replace(b":3", b":4")), "counts 4 output tokens and sent 3 token ids"),
    ],
)
def test_whatever_fails_is_a_record_that_says_why(handler: Handler, says: str) -> None:
    record = record_of(handler)
    assert record.error is not None
    assert says in record.error


def test_a_stalled_answer_times_out_and_keeps_its_tokens() -> None:
    record = record_of(stream(TOKEN, hang=True), timeout_s=0.5)
    assert record.error == "timed out after 0.5 s (load.timeout_s)"
    assert record.output_token_ids == [5]


def test_nobody_listens() -> None:
    async def send() -> RequestRecord:
        async with HttpTarget(Endpoint("http://127.0.0.1:9", "m")) as target:
            return await target.send(REQUEST, None, "measured")

    assert (asyncio.run(send()).error or "").startswith("the connection failed: ")
