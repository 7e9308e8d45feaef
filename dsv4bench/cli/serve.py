"""`dsv4bench serve`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer


def serve(
    profile: Annotated[
        str, typer.Argument(help="A shipped profile (see `dsv4bench profiles`) or the path of a .toml file.")
    ] = "smoke",
    ranks: Annotated[
        int | None, typer.Option(help="Number of ranks; short for --set engine.ranks=N.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Override a key of the profile, e.g. engine.depth=1."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any free one.")
    ] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="DSV4BENCH_API_KEY",
            show_envvar=True,
            help="Key that requests must bear; without one, anybody's are answered.",
        ),
    ] = None,
    served_model_name: Annotated[
        str | None, typer.Option(help="The model's name; deepseek-v4-<preset> if not given.")
    ] = None,
    profile_: Annotated[
        bool, typer.Option("--profile", help="Offer POST /start_profile and /stop_profile.")
    ] = False,
    profile_output: Annotated[
        Path | None,
        typer.Option(help="Directory, or *.json file, of the serving trace; ./profile_out if not given."),
    ] = None,
    profile_level: Annotated[
        str | None, typer.Option(help="Levels of the serving trace, a comma list: e2e, kernel, verbose.")
    ] = None,
    max_concurrent: Annotated[
        int | None,
        typer.Option(min=1, help="Most requests that are answered at once, waiting ones included."),
    ] = None,
    max_queue: Annotated[int, typer.Option(min=0, help="Most requests that wait for a place.")] = 1024,
    max_body: Annotated[int, typer.Option(min=1, help="Most bytes of a request's body.")] = 8 << 20,
    drain_timeout: Annotated[
        float, typer.Option(min=0, help="Seconds that running answers get after a signal to stop.")
    ] = 30.0,
) -> None:
    """Serve the embedded engine behind pypto-serving's HTTP interface, until SIGTERM or Ctrl-C.

    The engine, model and trace of the profile are used; its load is not.
    """
    from dsv4bench.run.tracing import load_traced_profile
    from dsv4bench.serving.launch import ServeOptions
    from dsv4bench.serving.launch import serve as serve_profile

    flags = [f"engine.ranks={ranks}"] if ranks is not None else []
    resolved, tracing = load_traced_profile(profile, set_ or [], flags, os.environ)
    options = ServeOptions(
        host=host,
        port=port,
        api_key=api_key or None,
        served_model_name=served_model_name,
        profile=profile_,
        profile_output=profile_output,
        profile_level=profile_level,
        max_concurrent=max_concurrent,
        max_queue=max_queue,
        max_body=max_body,
        drain_timeout_s=drain_timeout,
    )
    serve_profile(resolved, tracing, options)
