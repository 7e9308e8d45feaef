"""`dsv4bench run`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dsv4bench.faults import Fault
    from dsv4bench.profile import Profile
    from dsv4bench.run.tracing import RunTracing


def run(
    profile: Annotated[
        str, typer.Argument(help="A shipped profile (see `dsv4bench profiles`) or the path of a .toml file.")
    ] = "smoke",
    backend: Annotated[
        str | None, typer.Option(help="What runs the ranks: torch, the embedded default.")
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
    """Run a DeepSeek-V4 decode engine under both traces, then analyze what it did."""
    from dsv4bench.faults import check_faults, parse_fault
    from dsv4bench.run.tracing import load_traced_profile
    from dsv4bench.tracing.delivery import prepare_output

    injected = [parse_fault(text) for text in faults or []]
    flags = []
    if backend is not None:
        flags.append(f'engine.backend="{backend}"')
    if ranks is not None:
        flags.append(f"engine.ranks={ranks}")
    if no_trace:
        flags += ['trace.sa_profile="off"', "trace.strace=false", "trace.device_phases=false"]
    resolved, tracing = load_traced_profile(profile, set_ or [], flags, os.environ)
    engine = resolved.engine
    check_faults(
        injected, ranks=engine.ranks, depth=engine.depth, mtp=engine.mtp, strace=resolved.trace.strace
    )
    if tracing.output is not None:
        prepare_output(tracing.output, out)
    _run(resolved, out, injected, tracing, as_json=json)


def _run(
    profile: Profile, out: Path | None, faults: list[Fault], tracing: RunTracing, *, as_json: bool
) -> None:
    from dsv4bench.cli.progress import RunDisplay
    from dsv4bench.errors import RunInterruptedError
    from dsv4bench.run.launch import Launcher, create_run_directory
    from dsv4bench.run.reporting import report_run
    from dsv4bench.tracing.settings import merged_trace

    directory = create_run_directory(out, profile)
    with RunDisplay(profile) as display:
        result = Launcher(profile, directory, sys.argv, display, faults, tracing).run()
        display.stage("analyzing")
        report = report_run(directory)
    report.show(as_json=as_json)
    if tracing.output is not None and not as_json:
        print(f"Serving trace: {merged_trace(tracing.output)} (SA_PROFILE_OUTPUT), and in the run directory")
    if isinstance(result.error, KeyboardInterrupt):
        raise RunInterruptedError(f"interrupted; what was measured so far is in {directory.root}")
    if result.error is not None:
        raise result.error
    if report.verdict.exit_code:
        print(f"dsv4bench: the run completed, but {report.verdict.reason}", file=sys.stderr)
        raise typer.Exit(report.verdict.exit_code)
