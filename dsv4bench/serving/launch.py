"""From a profile and flags to a running server."""

from __future__ import annotations

import asyncio
import ipaddress
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dsv4bench.engine.engine import Engine, EngineOptions, check_options
from dsv4bench.errors import UsageError
from dsv4bench.model.checkpoint import ensure_checkpoint
from dsv4bench.model.config import preset
from dsv4bench.model.tokenizer import Tokenizer
from dsv4bench.profile import Profile
from dsv4bench.run.launch import cache_directory
from dsv4bench.run.tracing import RunTracing
from dsv4bench.serving.generation import PromptReader
from dsv4bench.serving.limits import raise_file_limit
from dsv4bench.serving.profiling import TracingPlan
from dsv4bench.serving.server import Server, StartedEngine, listen, url_of
from dsv4bench.serving.service import Service, ServiceOptions
from dsv4bench.tracing.delivery import prepare_output
from dsv4bench.tracing.recorder import Recorder, SpanRecorder
from dsv4bench.tracing.settings import (
    DEFAULT_LEVELS,
    DEFAULT_OUTPUT,
    RUNTIME_LOG_VARIABLE,
    fragments_directory,
    parse_levels,
)


@dataclass(frozen=True)
class ServeOptions:
    """What the command line says beside the profile; sizes in bytes, times in seconds."""

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    served_model_name: str | None = None
    profile: bool = False
    profile_output: Path | None = None
    profile_level: str | None = None
    max_concurrent: int | None = None
    max_queue: int = 1024
    max_body: int = 8 << 20
    drain_timeout_s: float = 30.0


def serve(profile: Profile, tracing: RunTracing, options: ServeOptions) -> None:
    """Serve the engine of a profile until a signal ends it; says on stdout where it listens.

    Raises:
        UsageError: what cannot be run, listened on or written to, before anything is started.
        EngineError: the engine did not start, or failed.
        RunInterruptedError: a second signal cut off answers.
    """
    config = preset(profile.model.preset)
    engine_options = EngineOptions(
        config=config,
        checkpoint=Path(),
        program_cache=cache_directory() / "programs",
        log_to_stderr=True,
        **msgspec.structs.asdict(profile.engine),
    )
    check_options(engine_options)
    plan = tracing_plan(profile, tracing, options)
    listener = listen(options.host, options.port)
    recorder = _make_recorder(profile, plan, options)
    seats = profile.engine.ranks * profile.engine.requests_per_rank
    most = seats + options.max_queue
    service_options = ServiceOptions(
        model=options.served_model_name or f"deepseek-v4-{profile.model.preset}",
        created_s=int(time.time()),
        api_key=options.api_key,
        most_requests=most if options.max_concurrent is None else min(most, options.max_concurrent),
        most_body_bytes=options.max_body,
        speculative_tokens=profile.engine.mtp,
        prefix_reuse=profile.engine.prefix_reuse,
        max_model_len=profile.engine.max_model_len,
    )
    prompts = PromptReader(Tokenizer(), config.vocab_size, profile.engine.max_model_len)
    service = Service(service_options, prompts, recorder, profiled=plan.output is not None)
    raise_file_limit()
    if options.api_key is None and not _is_loopback(options.host):
        print(
            f"dsv4bench: {options.host} may be reached by others, and without --api-key anybody's requests are answered",
            file=sys.stderr,
        )
    print(f"Serving {service_options.model} on {url_of(listener, options.host)}", flush=True)

    def start_engine() -> StartedEngine:
        checkpoint = ensure_checkpoint(
            config, profile.model.seed, cache_directory() / "checkpoints", profile.model.weights
        )
        engine = Engine(msgspec.structs.replace(engine_options, checkpoint=checkpoint), recorder)
        cache = engine.program_cache
        return StartedEngine(engine, {"hits": cache.hits, "misses": cache.misses})

    async def run() -> None:
        server = Server(
            service,
            listener,
            start_engine,
            plan,
            options.drain_timeout_s,
            restarts_allowed=profile.engine.max_restarts > 0,
        )
        await server.run()

    asyncio.run(run())


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def tracing_plan(profile: Profile, tracing: RunTracing, options: ServeOptions) -> TracingPlan:
    """What is traced, by the flags, the environment and the profile, in this order of weight.

    Runtime records are written all the time where the environment or an override asks for them, as upstream's runtime
    does; where the profile alone does, in profile windows.

    Raises:
        UsageError: a level that nobody knows, or an output without a profile.
    """
    asked = options.profile or tracing.output is not None
    if not asked and (options.profile_output or options.profile_level):
        raise UsageError("--profile-output and --profile-level need --profile")
    output = (options.profile_output or tracing.output or DEFAULT_OUTPUT) if asked else None
    said_outright = tracing.settings[RUNTIME_LOG_VARIABLE].source != "profile"
    return TracingPlan(
        output=output,
        strace=profile.trace.strace,
        strace_always=profile.trace.strace and said_outright,
        device_phases=profile.trace.device_phases,
    )


def _make_recorder(profile: Profile, plan: TracingPlan, options: ServeOptions) -> Recorder | None:
    if plan.output is None:
        return None
    if options.profile_level is not None:
        levels = parse_levels(options.profile_level, source="--profile-level")
    else:
        levels = profile.trace.levels or DEFAULT_LEVELS
    prepare_output(plan.output, None)
    # As upstream: what an earlier server left there is not part of this one's trace.
    for stale in fragments_directory(plan.output).glob("trace.*.jsonl"):
        stale.unlink()
    return SpanRecorder(plan.output, levels, "dsv4bench serve", recording=False)
