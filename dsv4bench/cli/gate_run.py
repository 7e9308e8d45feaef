"""`dsv4bench gate run` and `gate calibrate`: runs made for a verdict, in turn on this machine."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from dsv4bench.cli.gate_options import (
    ConfigOption,
    ExcludedOption,
    ForceCompareOption,
    JunitOption,
    LimitsOption,
    MarkdownOption,
    MetricsOption,
    ProofOption,
)

if TYPE_CHECKING:
    from dsv4bench.gate.execute import RunOutcome
    from dsv4bench.gate.sides import Name, Side

Profile = Annotated[str, typer.Argument(help="A shipped profile or the path of a .toml file.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the profile on both sides."),
]
ServerKind = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="KIND|FILE",
        help="Start a server of this kind for every run (see `dsv4bench servers`); --base-set server.key=value and "
        "--head-set make its two revisions.",
    ),
]
Out = Annotated[
    Path | None, typer.Option(help="Where the runs are kept; gates/<profile>-<time> if not given.")
]
Timeout = Annotated[
    float, typer.Option(min=1, metavar="SECONDS", help="A run that takes longer is ended, and has failed.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
_SIDE = "A checkout or virtual environment, a git revision, or a command line; dir:, ref: or cmd: says which."


def run(
    base: Annotated[str, typer.Option(metavar="CMD|REF|DIR", help=_SIDE)],
    head: Annotated[str, typer.Option(metavar="CMD|REF|DIR", help="The candidate, in the same way.")],
    profile: Profile = "smoke",
    runs: Annotated[
        int | None,
        typer.Option(min=1, help="Runs a side in each stage; stage_runs of the gate table, else 10."),
    ] = None,
    max_runs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Runs a side at most; max_runs of the gate table, else those of four stages."
        ),
    ] = None,
    set_: Settings = None,
    base_set: Annotated[
        list[str] | None,
        typer.Option(
            "--base-set",
            metavar="KEY=VALUE",
            help="Override a key of the base's profile, to differ on purpose.",
        ),
    ] = None,
    head_set: Annotated[
        list[str] | None,
        typer.Option("--head-set", metavar="KEY=VALUE", help="The same of the candidate's profile."),
    ] = None,
    server: ServerKind = None,
    metrics: MetricsOption = None,
    limits: LimitsOption = None,
    excluded: ExcludedOption = None,
    proof: ProofOption = False,
    config: ConfigOption = None,
    out: Out = None,
    timeout: Timeout = 600,
    markdown: MarkdownOption = None,
    junit: JunitOption = None,
    force_compare: ForceCompareOption = False,
    json: Json = False,
) -> None:
    """Run base and candidate in turn (ABBA) on this machine, as often as a verdict takes, and exit by it.

    A PASS excludes, at 95 %, a regression of the share that --excluded or --proof says.

    Exit codes: 0 PASS, 1 FAIL (also when a run of the candidate failed), 3 NO-DATA (a run of the base failed), 5
    NOT-COMPARABLE or UNDECIDED, 2 bad usage, 130 interrupted.
    """
    from analyzers.gate.model import Leniency
    from analyzers.gate.policy import PolicyOptions, judged_metrics
    from analyzers.gate.write import Outputs, write_result
    from dsv4bench.cli.gate_policy import divided, gate_policy, policy_files
    from dsv4bench.cli.overwriting import check_outputs
    from dsv4bench.errors import UsageError
    from dsv4bench.gate.interleave import Interleaved, keys_of, run_gate
    from dsv4bench.gate.sides import open_side

    check_outputs({"--markdown": markdown, "--junit": junit}, policy_files(profile, config))
    for option, texts in (("--base-set", base_set), ("--head-set", head_set)):
        if wrong := divided(texts or [])[0]:
            raise UsageError(f"{option} {wrong[0]}: one policy judges both sides; say it with --set")
    options = PolicyOptions(metrics or [], limits or [], excluded, proof, runs, max_runs)
    policy = gate_policy(profile, config, options, set_ or [])
    names = list(judged_metrics(policy))
    _, shared = divided(set_ or [])
    declared = keys_of([*(base_set or []), *(head_set or [])])
    root = _directory(out, profile)
    with _terminable(), ExitStack() as stack:
        sides: dict[Name, Side] = {
            "base": stack.enter_context(
                open_side("base", base, profile, [*shared, *(base_set or [])], server)
            ),
            "head": stack.enter_context(
                open_side("head", head, profile, [*shared, *(head_set or [])], server)
            ),
        }
        display = _Display(names[0])
        for side in sides.values():
            display.says(f"{side.name}: {side.description}")
        display.says(f"runs are kept in {root}")
        gate = Interleaved(sides, root, display, timeout, names, declared)
        result = run_gate(gate, policy, Leniency(allow_different=force_compare))
    write_result(result, Outputs("json" if json else "table", markdown=markdown, junit=junit))
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def calibrate(
    profile: Profile = "smoke",
    runs: Annotated[
        int, typer.Option(min=2, help="Runs on each of two sides that are alike, made in turn.")
    ] = 10,
    command: Annotated[
        str | None,
        typer.Option(
            metavar="CMD|REF|DIR", help="What runs, as --base of gate run; this dsv4bench by default."
        ),
    ] = None,
    set_: Settings = None,
    server: ServerKind = None,
    metrics: MetricsOption = None,
    config: ConfigOption = None,
    out: Out = None,
    timeout: Timeout = 600,
    json: Json = False,
) -> None:
    """Measure how noisy runs are on this machine, and what a gate here can see.

    The same thing runs as both sides of a gate; gates are then drawn from these runs, the same ones every time, and
    judged by the gate's own rule: false alarms, the smallest regression that is caught, runs and threshold to use.
    """
    from rich.console import Console

    from analyzers.gate.policy import PolicyOptions, judged_metrics
    from analyzers.json_text import json_document
    from analyzers.text.terminal import print_table
    from dsv4bench.cli.gate_policy import divided, gate_policy
    from dsv4bench.gate.interleave import Interleaved, run_alike
    from dsv4bench.gate.noise import calibrate_gate
    from dsv4bench.gate.noise_tables import advice, calibration_tables
    from dsv4bench.gate.sides import open_side, this_side

    policy = gate_policy(profile, config, PolicyOptions(metrics or []), set_ or [])
    names = list(judged_metrics(policy))
    _, shared = divided(set_ or [])
    root = _directory(out, profile)
    display = _Display(names[0])
    with _terminable(), ExitStack() as stack:
        sides: dict[Name, Side] = {
            name: this_side(name, profile, shared, server)
            if command is None
            else stack.enter_context(open_side(name, command, profile, shared, server))
            for name in ("base", "head")
        }
        display.says(f"both sides: {sides['base'].description}")
        display.says(f"runs are kept in {root}")
        base, head = run_alike(Interleaved(sides, root, display, timeout, names), runs)
    display.says("drawing gates from these runs")
    found = calibrate_gate(base, head, policy)
    if json:
        typer.echo(json_document(found), nl=False)
        return
    console = Console(highlight=False)
    for table in calibration_tables(found):
        print_table(table, console)
    for warning in found.warnings:
        console.print(f"warning: {warning}", markup=False, soft_wrap=not console.is_terminal)
    console.print(advice(found), markup=False, soft_wrap=not console.is_terminal)


class _Display:
    """How the runs go, on stderr: a line a run."""

    def __init__(self, metric: str) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self._metric = metric
        self._progress = ""

    def begins(self, label: str, number: int, total: int) -> None:
        """See `interleave.GateObserver`."""
        self._progress = f"{number}/{total} {label}" if number else f"{label} (not counted)"

    def ended(self, outcome: RunOutcome) -> None:
        """See `interleave.GateObserver`."""
        from analyzers.gate.metrics import unit_of
        from analyzers.gate.wording import amount

        found = outcome.failure or ""
        if outcome.samples is not None:
            values = outcome.samples.metrics.get(self._metric) or [None]
            value = values[0]
            found = f"{self._metric} " + (
                amount(value, unit_of(self._metric)) if value is not None else "unavailable"
            )
        self.says(f"{self._progress}: {found} ({outcome.duration_s:.1f} s)")

    def says(self, text: str) -> None:
        """See `interleave.GateObserver`."""
        self._console.print(f"gate: {text}", markup=False, soft_wrap=True)


def _directory(out: Path | None, profile: str) -> Path:
    """An empty directory for the runs of a gate."""
    from dsv4bench.errors import UsageError

    root = out or Path("gates") / f"{Path(profile).stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        if any(root.iterdir()):
            raise UsageError(f"the output directory {root} is not empty; name a new one with --out")
    except OSError as error:
        raise UsageError(f"cannot write to {root}: {error.strerror}; name another one with --out") from error
    return root.resolve()


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends as Ctrl-C does: with the processes of the run, and what was measured kept."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    from dsv4bench.errors import RunInterruptedError

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt as stop:
        raise RunInterruptedError("interrupted before the first run") from stop
    finally:
        signal.signal(signal.SIGTERM, before)
