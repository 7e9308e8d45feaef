"""How many streamed events a second one client process on one core keeps up with.

    python -m benchmarks.load_client --streams 64

A stub process on another core sends nothing but prepared bytes, at a rate that is set, and writes the time of sending
into each event. The client is that of `dsv4bench run --server`: it parses every event and takes its arrival. It has kept
up with a rate where its events arrive no later at the end than at the beginning.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import socket
import statistics
import time
from multiprocessing.connection import Connection

from dsv4bench.load.driver import drive
from dsv4bench.load.endpoint import Endpoint
from dsv4bench.load.http_target import HttpTarget
from dsv4bench.load.requests import LoadRequest, Prompt
from dsv4bench.load.sse import EventParser

_REQUIRED = 2000
_BEHIND_MS = 50.0
"""How much later the last tenth of the events may arrive than the first tenth, as a median."""
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_TAIL = (
    b'data: {"id":"cmpl-stub","choices":[{"index":0,"text":"","finish_reason":"length"}],'
    b'"usage":{"prompt_tokens":4,"completion_tokens":%d}}\n\ndata: [DONE]\n\n'
)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(sent_ns: int) -> bytes:
    """One token; its id is the time of sending in whole us, so that the client reads it as it reads any."""
    return chunk(
        b'data: {"id":"cmpl-stub","object":"text_completion","model":"stub","choices":[{"index":0,"text":" token",'
        b'"token_ids":[%d],"finish_reason":null}]}\n\n' % (sent_ns // 1000)
    )


def serve(pipe: Connection, core: int) -> None:
    os.sched_setaffinity(0, {core})
    asyncio.run(_serve(pipe))


async def _serve(pipe: Connection) -> None:
    """A server of prepared bytes: request bodies say how many events at which rate."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        body = (await reader.readexactly(length)).decode()
        events = int(body.partition('"max_tokens":')[2].split(",")[0].rstrip("}"))
        rate = float(body.partition('"rate":')[2].split(",")[0].rstrip("}"))
        writer.write(_HEAD)
        begin = time.perf_counter_ns()
        for number in range(events):
            due = begin + int(number * 1e9 / rate)
            if (wait := due - time.perf_counter_ns()) > 0:
                await asyncio.sleep(wait / 1e9)
            writer.write(event(time.perf_counter_ns()))
        writer.write(chunk(_TAIL % events) + b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=4096)
    pipe.send(server.sockets[0].getsockname()[1])
    async with server:
        await server.serve_forever()


async def measure(port: int, streams: int, rate: float, seconds: float) -> tuple[list[float], float]:
    """Delays in ms of all events in order of arrival, and the share of its core that the client took."""
    events = int(rate * seconds / streams)
    fields = {"rate": rate / streams}
    endpoint = Endpoint(f"http://127.0.0.1:{port}", "stub", fields=fields, return_token_ids=True)
    requests = [LoadRequest(f"stream-{number}", Prompt((1,), "x"), events) for number in range(streams)]
    async with HttpTarget(endpoint) as target:
        result = await drive(requests, target, phase="measured", concurrency=None, progress=lambda _: None)
    failed = [record.error for record in result.records if record.error is not None]
    if failed:
        raise RuntimeError(f"{len(failed)} streams failed, the first with: {failed[0]}")
    arrivals = sorted(
        (arrived, arrived - sent * 1000)
        for record in result.records
        for arrived, sent in zip(record.token_times_ns, record.output_token_ids, strict=True)
    )
    return [delay / 1e6 for _, delay in arrivals], result.client.cpu_share or 0.0


def parsed_per_s() -> float:
    """Events a second that are parsed out of memory, without a connection: the limit."""
    from dsv4bench.load.answers import Answer

    data = event(123_456_789).split(b"\r\n")[1]
    parser, answer = EventParser(), Answer()
    begin = time.perf_counter()
    count = 20_000
    for _ in range(count):
        for found in parser.feed(data):
            answer.take(found, 1)
    return count / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--most", type=float, default=64_000.0, help="Events a second at which to give up.")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=serve, args=(theirs, cores[-1]), daemon=True)
    server.start()
    port = ours.recv()
    os.sched_setaffinity(0, {cores[0]})
    socket.setdefaulttimeout(10)
    print(
        f"client on core {cores[0]}, stub on core {cores[-1]}, {options.streams} streams, {options.seconds:g} s a rate"
    )
    print("events/s   arrived/s   delay p50   p99   last tenth - first tenth   client's core")
    rate, kept = float(_REQUIRED), 0.0
    while rate <= options.most:
        begin = time.perf_counter()
        delays, share = asyncio.run(measure(port, options.streams, rate, options.seconds))
        arrived = len(delays) / (time.perf_counter() - begin)
        tenth = max(1, len(delays) // 10)
        trend = statistics.median(delays[-tenth:]) - statistics.median(delays[:tenth])
        p99 = statistics.quantiles(delays, n=100)[98]
        print(
            f"{rate:8.0f}   {arrived:9.0f}   {statistics.median(delays):6.2f} ms   {p99:.2f} ms   {trend:+.2f} ms   "
            f"{share:.0%}"
        )
        if trend > _BEHIND_MS or arrived < 0.8 * rate:
            break
        kept, rate = rate, rate * 2
    print(
        f"kept up with {kept:.0f} events/s, {_REQUIRED} are required; parsing alone: {parsed_per_s():.0f} events/s"
    )
    server.terminate()
    server.join()
    raise SystemExit(kept < _REQUIRED)


if __name__ == "__main__":
    main()
