"""A server of OpenAI's interface that does what its flags say, good and bad: a program, without a model.

`python -m tests.serving.stub_server --port P --fault reset` and so on; `FAULTS` lists what can go wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from aiohttp import web

FAULTS = (
    "none",
    "exit-at-start",
    "never-healthy",
    "health-hangs",
    "exit-in-prefill",
    "exit-mid-stream",
    "stall",
    "reset",
    "cut",
    "error-event",
    "every-third-500",
    "strict-fields",
    "busy",
    "stop-profile-hangs",
    "stop-profile-500",
    "no-trace",
    "ignore-sigterm",
    "grandchildren",
)
TEXT = "żółw 龟 🐢 ok "
"""Characters of one to four bytes, so that any place to split bytes is inside of some."""


class Stub:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.requests = 0

    async def health(self, _: web.Request) -> web.Response:
        if self.options.fault == "health-hangs":
            await asyncio.sleep(3600)
        return web.json_response(
            {"status": "ok"}, status=503 if self.options.fault == "never-healthy" else 200
        )

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "stub", "object": "model"}]})

    async def metrics(self, _: web.Request) -> web.Response:
        drafts = 11 * self.requests
        return web.Response(
            text=f"# TYPE stub:drafts counter\nstub:drafts_total {drafts}\n"
            f"# TYPE stub:accepted counter\nstub:accepted_total {10 * self.requests}\n"
        )

    async def start_profile(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def stop_profile(self, _: web.Request) -> web.Response:
        fault, output = self.options.fault, Path(self.options.profile_output)
        if fault == "stop-profile-hangs":
            await asyncio.sleep(3600)
        if fault == "stop-profile-500":
            return web.json_response({"error": {"message": "the profiler broke"}}, status=500)
        if fault != "no-trace":
            output.mkdir(parents=True, exist_ok=True)
            event = {
                "name": "stub",
                "cat": "serving",
                "ph": "X",
                "ts": 1,
                "dur": 2,
                "pid": os.getpid(),
                "tid": 1,
                "args": {},
            }
            (output / "trace.json").write_text(json.dumps({"traceEvents": [event]}))
        return web.json_response({"status": "ok"})

    async def complete(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        print("stub: asked", flush=True)
        body = await request.json()
        fault = self.options.fault
        if (refused := self._refusal(body)) is not None:
            return refused
        await asyncio.sleep(self.options.ttft_ms / 1e3)
        if fault == "exit-in-prefill":
            print("stub: out of memory", flush=True)
            os._exit(9)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            await self._stream(response, request, body)
        except ConnectionError:
            print("stub: the client went away", flush=True)
        return response

    def _refusal(self, body: dict[str, Any]) -> web.Response | None:
        fault = self.options.fault
        if fault == "every-third-500" and self.requests % 3 == 0:
            return web.json_response({"error": {"message": "the third one fails"}}, status=500)
        if fault == "strict-fields" and "ignore_eos" in body:
            detail = [
                {
                    "type": "extra_forbidden",
                    "loc": ["body", "ignore_eos"],
                    "msg": "Unexpected key 'ignore_eos'",
                }
            ]
            return web.json_response({"detail": detail}, status=422)
        if fault == "busy":
            return web.json_response(
                {"object": "error", "message": "too many requests"}, status=429, headers={"Retry-After": "1"}
            )
        return None

    async def _stream(self, response: web.StreamResponse, request: web.Request, body: dict[str, Any]) -> None:
        fault, sent = self.options.fault, 0
        async for data in self._events(body):
            if sent == 2 and fault != "none":
                if fault == "exit-mid-stream":
                    os._exit(3)
                if fault == "stall":
                    await asyncio.sleep(3600)
                if fault == "error-event":
                    await response.write(b'data: {"error": {"message": "the engine failed"}}\n\n')
                    return
                if fault == "reset":
                    assert request.transport is not None
                    request.transport.abort()
                    return
                if fault == "cut":
                    assert request.transport is not None
                    await response.write(data[: len(data) // 2])
                    request.transport.close()
                    return
            step = self.options.split_bytes or len(data)
            for begin in range(0, len(data), step):
                await response.write(data[begin : begin + step])
                if self.options.split_bytes:
                    await asyncio.sleep(0)
            sent += 1
        await response.write_eof()

    async def _events(self, body: dict[str, Any]) -> AsyncIterator[bytes]:
        """One event for `tokens_per_event` tokens; the first brings one, as a prefill does."""
        options = self.options
        left, done = int(body.get("max_tokens") or 16), 0
        while left:
            count = min(left, 1 if done == 0 else options.tokens_per_event)
            if done:
                await asyncio.sleep(options.itl_ms * options.slower / 1e3)
            left -= count
            ids = list(range(done + 5, done + 5 + count))
            done += count
            choice: dict[str, Any] = {
                "index": 0,
                "text": TEXT * count,
                "finish_reason": None if left else "length",
            }
            if options.return_ids and body.get("return_token_ids"):
                choice["token_ids"] = ids
            event: dict[str, Any] = {"id": "cmpl-stub", "object": "text_completion", "choices": [choice]}
            if options.running_usage:
                event["usage"] = {"prompt_tokens": 4, "completion_tokens": done}
            yield b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n"
        if not options.no_usage:
            usage = {"prompt_tokens": 4, "completion_tokens": done + options.wrong_usage}
            yield (
                b"data: " + json.dumps({"id": "cmpl-stub", "choices": [], "usage": usage}).encode() + b"\n\n"
            )
        if not options.no_done:
            yield b"data: [DONE]\n\n"


def options_of(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("stub_server")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--ttft-ms", type=float, default=1.0)
    parser.add_argument("--itl-ms", type=float, default=1.0)
    parser.add_argument("--slower", type=float, default=float(os.environ.get("STUB_SLOWER", "1")))
    parser.add_argument("--tokens-per-event", type=int, default=1)
    parser.add_argument("--split-bytes", type=int, default=0)
    parser.add_argument("--wrong-usage", type=int, default=0)
    parser.add_argument("--return-ids", action="store_true")
    parser.add_argument("--running-usage", action="store_true")
    parser.add_argument("--no-usage", action="store_true")
    parser.add_argument("--no-done", action="store_true")
    parser.add_argument("--profile-output", default="")
    parser.add_argument("--token", default="", help="Tells this server's processes from those of others.")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> None:
    options = options_of(arguments)
    print(f"stub: starting with {options.fault}", flush=True)
    if options.fault == "exit-at-start":
        print("stub: no such device", file=sys.stderr, flush=True)
        sys.exit(7)
    if options.fault == "grandchildren":
        for own_session in (False, True):
            command = [sys.executable, "-c", "import time; time.sleep(3600)", options.token]
            subprocess.Popen(command, start_new_session=own_session)
    stub = Stub(options)
    app = web.Application()
    app.router.add_get("/health", stub.health)
    app.router.add_get("/v1/models", stub.models)
    app.router.add_get("/metrics", stub.metrics)
    app.router.add_post("/start_profile", stub.start_profile)
    app.router.add_post("/stop_profile", stub.stop_profile)
    app.router.add_post("/v1/completions", stub.complete)
    asyncio.run(serve(app, options))


async def serve(app: web.Application, options: argparse.Namespace) -> None:
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, options.host, options.port).start()
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, (lambda: None) if options.fault == "ignore-sigterm" else ended.set)
    print("stub: ready", flush=True)
    await ended.wait()
    await runner.cleanup()


if __name__ == "__main__":
    main(sys.argv[1:])
