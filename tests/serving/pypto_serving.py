"""A program that stands in for the production engine: its documented flags and no others, its order, its answers.

Behind it is the embedded engine, served in this process. What the production engine does not say, is taken out of answers.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

PROGRAM = "pypto-serving"
ROOT = Path(__file__).parents[2]
_MOST_SEQUENCES = ((4, 16), (2, 32), (0, 64))
"""Least number of drafts, and the most sequences from there on."""
_SILENT_COUNTERS = ("accepted_tokens_total", "spec_decode_")
"""With one draft a step these stay 0."""


def parser() -> argparse.ArgumentParser:
    """The documented flags."""
    flags = argparse.ArgumentParser(PROGRAM, allow_abbrev=False)
    flags.add_argument("--model", required=True)
    flags.add_argument("--served-model-name")
    flags.add_argument("--backend", choices=["npu"], required=True)
    flags.add_argument("--platform", choices=["a2a3"], required=True)
    flags.add_argument("--devices", required=True)
    for name in ("dp", "ep", "tp"):
        flags.add_argument(f"--{name}", type=int, default=1)
    flags.add_argument("--block-size", type=int, default=128)
    flags.add_argument("--max-model-len", type=int, default=1024)
    flags.add_argument("--max-num-seqs", type=int, default=16)
    flags.add_argument("--max-num-batched-tokens", type=int, default=512)
    flags.add_argument("--long-prefill-token-threshold", type=int)
    flags.add_argument("--speculative-config", type=json.loads, default={})
    flags.add_argument("--no-enable-prefix-caching", action="store_true")
    for name in ("ring-dep-pool", "ring-task-window", "ring-heap"):
        flags.add_argument(f"--{name}", type=int)
    flags.add_argument("--host", default="0.0.0.0")
    flags.add_argument("--port", type=int, default=8000)
    flags.add_argument("--npu-memory-utilization", type=float)
    flags.add_argument("--use-compile-cache", action="store_true")
    flags.add_argument("--show-startup-logs", action="store_true")
    flags.add_argument("--profile", action="store_true")
    flags.add_argument("--profile-output")
    flags.add_argument("--profile-level")
    flags.add_argument("--prompt", action="append")
    return flags


def checked(arguments: list[str]) -> argparse.Namespace:
    """The flags, as far as DeepSeek-V4 can be run with them; else the program ends with 2."""
    flags = parser()
    options = flags.parse_args(arguments)
    devices = options.devices.split(",")
    if len(devices) != 8 or options.dp != 8 or options.ep != 8 or options.tp != 1:
        flags.error("DeepSeek-V4 needs exactly eight devices, dp = ep = 8 and tp = 1")
    drafts = int(options.speculative_config.get("num_speculative_tokens", 0))
    most = next(most for least, most in _MOST_SEQUENCES if drafts >= least)
    if options.max_num_seqs > most:
        flags.error(f"--max-num-seqs is at most {most} with {drafts} drafts")
    if "SA_PROFILE_MAIN_PID" in os.environ:
        flags.error("SA_PROFILE_MAIN_PID is internal")
    return options


def main(arguments: list[str]) -> None:
    options = checked(arguments)
    from dsv4bench.profile import load_profile
    from dsv4bench.run.tracing import load_traced_profile
    from dsv4bench.serving import server
    from dsv4bench.serving.app import make_app
    from dsv4bench.serving.launch import ServeOptions, serve

    drafts = int(options.speculative_config.get("num_speculative_tokens", 0))
    sets = [
        f"engine.ranks={options.dp}",
        f"engine.requests_per_rank={options.max_num_seqs // options.dp}",
        f"engine.max_model_len={options.max_model_len}",
        f"engine.mtp={drafts}",
        'trace.sa_profile="off"'
        if not options.profile
        else f'trace.sa_profile="{options.profile_level or "e2e"}"',
    ]
    load_profile("gbs32-mtp1", sets)
    profile, tracing = load_traced_profile("gbs32-mtp1", sets, [], os.environ)
    # What the server makes its application with.
    vars(server)["make_app"] = lambda service: hidden(make_app(service), drafts)
    serve(
        profile,
        tracing,
        ServeOptions(
            host=options.host,
            port=options.port,
            served_model_name=options.served_model_name,
            profile=options.profile,
            profile_output=Path(options.profile_output) if options.profile_output else None,
            profile_level=options.profile_level,
        ),
    )


def hidden(app: Any, drafts: int) -> Any:
    """The application without what the production engine does not say."""

    async def wrapped(scope: Message, receive: Any, send: Send) -> None:
        async def clean(message: Message) -> None:
            body = message.get("body")
            if message["type"] == "http.response.body" and body:
                if scope.get("path") == "/metrics" and drafts == 1:
                    message = {**message, "body": b"\n".join(map(_silenced, body.split(b"\n")))}
                elif body.startswith(b"data: {"):
                    message = {**message, "body": b"\n\n".join(map(_plain, body.split(b"\n\n")))}
            if message["type"] == "http.response.start":
                headers = [(name, value) for name, value in message["headers"] if name != b"content-length"]
                message = {**message, "headers": headers}
            await send(message)

        await app(scope, receive, clean)

    return wrapped


def _plain(event: bytes) -> bytes:
    """An event without our own counts and token ids."""
    if not event.startswith(b"data: {"):
        return event
    document = json.loads(event.removeprefix(b"data: "))
    document.pop("dsv4bench", None)
    for choice in document.get("choices", ()):
        choice.pop("token_ids", None)
    return b"data: " + json.dumps(document, ensure_ascii=False).encode()


def _silenced(line: bytes) -> bytes:
    if not line.startswith(b"#") and any(name.encode() in line for name in _SILENT_COUNTERS):
        return line.rpartition(b" ")[0] + b" 0"
    return line


def install(directory: Path) -> Path:
    """Put the program into `directory` under its name; returns where it is."""
    program = directory / PROGRAM
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.serving.pypto_serving import main\nif __name__ == '__main__':\n    main(sys.argv[1:])\n"
    )
    program.chmod(0o755)
    return program
