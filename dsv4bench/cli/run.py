"""`dsv4bench run`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from analyzers.rundir import RunDirectory
    from dsv4bench.cli.progress import RunDisplay
    from dsv4bench.faults import Fault
    from dsv4bench.profile import Profile
    from dsv4bench.run.launch import RunResult
    from dsv4bench.run.tracing import RunTracing


def run(
    profile: Annotated[
        str, typer.Argument(help="A shipped profile (see `dsv4bench profiles`) or the path of a .toml file.")
    ] = "smoke",
    backend: Annotated[
        str | None, typer.Option(help="What runs the ranks: torch, the embedded default.")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="KIND|FILE",
            help="Start a server of this kind and measure it (see `dsv4bench servers`); --set server.key=value "
            "overrides its keys.",
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Measure the server that runs there; it is never started, stopped or configured. --server says of "
            "which kind it is.",
        ),
    ] = None,
    server_output: Annotated[
        Path | None,
        typer.Option(help="Where the profiler of the server at --url writes, if that can be read from here."),
    ] = None,
    ranks: Annotated[
        int | None, typer.Option(help="Number of ranks; short for --set engine.ranks=N.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Override a key of the profile, e.g. engine.depth=1."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run directory to make; runs/<profile>-<time> if not given.")
    ] = None,
    no_trace: Annotated[
        bool, typer.Option("--no-trace", help="Run without SA_PROFILE spans and STRACE records.")
    ] = False,
    faults: Annotated[
        list[str] | None,
        typer.Option(
            "--fault",
            metavar="rank=R,step=N,kind=KIND",
            help="For developers: make a rank fail at a decode step of the measured batch; may be repeated. "
            "KIND: kill, hang, raise, slow:20ms, slow:10%, drop-strace or torn-strace. rank=rotate,kind=slow:20ms: the "
            "slow rank changes with every step. kind=serialise: the engine keeps one step in flight, whatever its depth. "
            "kind=spoil-drafts:0.5: half of the drafts are wrong.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON document.")] = False,
) -> None:
    """Run a DeepSeek-V4 decode engine, or a server, under both traces, then analyze what it did."""
    from dsv4bench.errors import UsageError
    from dsv4bench.faults import check_faults, parse_fault
    from dsv4bench.run.tracing import load_traced_profile
    from dsv4bench.server_kinds.load import split_server_overrides
    from dsv4bench.tracing.delivery import prepare_output

    injected = [parse_fault(text) for text in faults or []]
    flags = []
    if backend is not None:
        flags.append(f'engine.backend="{backend}"')
    if ranks is not None:
        flags.append(f"engine.ranks={ranks}")
    if no_trace:
        flags += ['trace.sa_profile="off"', "trace.strace=false", "trace.device_phases=false"]
    profile_sets, server_sets = split_server_overrides(set_ or [])
    resolved, tracing = load_traced_profile(profile, profile_sets, flags, os.environ)
    if server is not None or url is not None:
        if injected:
            raise UsageError("--fault: faults are injected into the embedded engine, not into a server")
        if backend is not None:
            raise UsageError(
                "--backend: which engine runs is the server kind's matter; leave it out with --server"
            )
        _run_on_server(resolved, out, tracing, server, url, server_sets, server_output, as_json=json)
        return
    if server_sets or server_output is not None:
        given = f"--set {server_sets[0]}" if server_sets else "--server-output"
        raise UsageError(f"{given} is for a server: name one with --server or --url")
    engine = resolved.engine
    check_faults(
        injected, ranks=engine.ranks, depth=engine.depth, mtp=engine.mtp, strace=resolved.trace.strace
    )
    if tracing.output is not None:
        prepare_output(tracing.output, out)
    _run_embedded(resolved, out, injected, tracing, as_json=json)


def _run_embedded(
    profile: Profile, out: Path | None, faults: list[Fault], tracing: RunTracing, *, as_json: bool
) -> None:
    from dsv4bench.run.launch import Launcher, create_run_directory
    from dsv4bench.tracing.settings import merged_trace

    directory = create_run_directory(out, profile)

    def run(display: RunDisplay) -> RunResult:
        return Launcher(profile, directory, sys.argv, display, faults, tracing).run()

    trace = merged_trace(tracing.output) if tracing.output is not None else None
    _show(profile, directory, run, trace, as_json=as_json)


def _run_on_server(
    profile: Profile,
    out: Path | None,
    tracing: RunTracing,
    name: str | None,
    url: str | None,
    overrides: list[str],
    server_output: Path | None,
    *,
    as_json: bool,
) -> None:
    from dsv4bench.run.launch import create_run_directory
    from dsv4bench.run.served import ServedRun
    from dsv4bench.server_kinds.load import load_kind
    from dsv4bench.server_kinds.resolve import running_server, startable_server

    kind = load_kind(name or "openai", overrides)
    if url is not None:
        server = running_server(kind, profile, url, server_output)
        directory = create_run_directory(out, profile)
    else:
        # What is wrong with the kind is said before a directory is made.
        startable_server(kind, profile, Path())
        directory = create_run_directory(out, profile)
        server = startable_server(kind, profile, directory.server_output)

    def run(display: RunDisplay) -> RunResult:
        return ServedRun(profile, directory, sys.argv, display, server, tracing).run()

    _show(profile, directory, run, None, as_json=as_json)


def _show(
    profile: Profile,
    directory: RunDirectory,
    run: Callable[[RunDisplay], RunResult],
    trace: Path | None,
    *,
    as_json: bool,
) -> None:
    """Run, report, and end as the run did; `trace` is the second place of the serving trace."""
    from dsv4bench.cli.progress import RunDisplay
    from dsv4bench.errors import RunInterruptedError
    from dsv4bench.run.reporting import report_run

    with RunDisplay(profile) as display:
        result = run(display)
        display.stage("analyzing")
        report = report_run(directory)
    report.show(as_json=as_json)
    if trace is not None and not as_json:
        print(f"Serving trace: {trace} (SA_PROFILE_OUTPUT), and in the run directory")
    if isinstance(result.error, KeyboardInterrupt):
        raise RunInterruptedError(f"interrupted; what was measured so far is in {directory.root}")
    if result.error is not None:
        raise result.error
    if report.verdict.exit_code:
        print(f"dsv4bench: the run completed, but {report.verdict.reason}", file=sys.stderr)
        raise typer.Exit(report.verdict.exit_code)
