"""`dsv4bench run`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dsv4bench.faults import Fault
    from dsv4bench.profile import Profile


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
    from dsv4bench.profile import load_profile

    injected = [parse_fault(text) for text in faults or []]
    overrides = list(set_ or [])
    if backend is not None:
        overrides.append(f'engine.backend="{backend}"')
    if ranks is not None:
        overrides.append(f"engine.ranks={ranks}")
    if no_trace:
        overrides += ['trace.sa_profile="off"', "trace.strace=false"]
    resolved = load_profile(profile, overrides)
    engine = resolved.engine
    check_faults(
        injected, ranks=engine.ranks, depth=engine.depth, mtp=engine.mtp, strace=resolved.trace.strace
    )
    _run(resolved, out, injected, as_json=json)


def _run(profile: Profile, out: Path | None, faults: list[Fault], *, as_json: bool) -> None:
    from dsv4bench.cli.progress import RunDisplay
    from dsv4bench.errors import RunInterruptedError
    from dsv4bench.run.launch import Launcher, create_run_directory
    from dsv4bench.run.reporting import report_run

    directory = create_run_directory(out, profile)
    with RunDisplay(profile) as display:
        result = Launcher(profile, directory, sys.argv, display, faults).run()
        display.stage("analyzing")
        report = report_run(directory)
    report.show(as_json=as_json)
    if isinstance(result.error, KeyboardInterrupt):
        raise RunInterruptedError(f"interrupted; what was measured so far is in {directory.root}")
    if result.error is not None:
        raise result.error
    if report.verdict.exit_code:
        print(f"dsv4bench: the run completed, but {report.verdict.reason}", file=sys.stderr)
        raise typer.Exit(report.verdict.exit_code)
