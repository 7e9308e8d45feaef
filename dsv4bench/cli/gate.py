"""`dsv4bench gate`: is a candidate slower than its baseline."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

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
from dsv4bench.cli.gate_run import calibrate, run

gate = typer.Typer(
    name="gate",
    help="Tell whether a candidate is slower than its baseline; what cannot be told never passes.",
    no_args_is_help=True,
)
baseline = typer.Typer(name="baseline", help="Save runs as a baseline, and show one.", no_args_is_help=True)
gate.add_typer(baseline)
gate.command()(run)
gate.command()(calibrate)


class GateFormat(StrEnum):
    """How a verdict is rendered."""

    TABLE = "table"
    MARKDOWN = "md"
    JSON = "json"


@gate.command()
def check(
    candidates: Annotated[
        list[Path],
        typer.Argument(
            metavar="CANDIDATE...", help="Run directories, directories of runs, globs, or samples files."
        ),
    ],
    baseline_: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="NAME|PATH",
            help="A saved baseline, a samples file, or runs. Without it absolute limits alone are judged.",
        ),
    ] = None,
    metrics: MetricsOption = None,
    limits: LimitsOption = None,
    excluded: ExcludedOption = None,
    proof: ProofOption = False,
    config: ConfigOption = None,
    profile: Annotated[
        str | None, typer.Option("--profile", help="A profile whose table `gate` says what is judged.")
    ] = None,
    allow_new: Annotated[
        bool, typer.Option("--allow-new", help="List metrics that the baseline lacks instead of refusing.")
    ] = False,
    force_compare: ForceCompareOption = False,
    drop_failed: Annotated[
        bool, typer.Option("--drop-failed", help="Leave failed runs out, with a warning.")
    ] = False,
    output_format: Annotated[
        GateFormat, typer.Option("--format", help="How to render the verdict.")
    ] = GateFormat.TABLE,
    json: Annotated[bool, typer.Option("--json", help="Short for --format json.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write the verdict to this file.")] = None,
    markdown: MarkdownOption = None,
    junit: JunitOption = None,
) -> None:
    """Compare candidate runs with a baseline, metric by metric, and exit by the verdict.

    A PASS excludes, at 95 %, a regression of the share that --excluded or --proof says. Exit codes: 0 PASS, 1 FAIL, 3
    NO-DATA, 4 INVALID, 5 NOT-COMPARABLE or UNDECIDED, 2 unusable input.
    """
    from analyzers.gate.baseline import baseline_path
    from analyzers.gate.check import check_runs
    from analyzers.gate.model import Leniency
    from analyzers.gate.policy import PolicyOptions
    from analyzers.gate.write import Outputs, write_result
    from dsv4bench.cli.gate_policy import gate_policy, policy_files
    from dsv4bench.cli.overwriting import check_outputs

    inputs = [
        *candidates,
        *policy_files(profile, config),
        *([baseline_path(baseline_)] if baseline_ is not None else []),
    ]
    check_outputs({"--out": out, "--markdown": markdown, "--junit": junit}, inputs)
    options = PolicyOptions(metrics or [], limits or [], excluded, proof)
    policy = gate_policy(profile, config, options)
    leniency = Leniency(allow_new=allow_new, allow_different=force_compare, drop_failed=drop_failed)
    result = check_runs(candidates, baseline_, policy, leniency)
    rendering = GateFormat.JSON if json else output_format
    write_result(result, Outputs(rendering.value, out, markdown, junit))
    if result.exit_code:
        raise typer.Exit(result.exit_code)


@baseline.command("save")
def save(
    name: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="baselines/NAME.json, or the file itself.")
    ],
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run directories, directories of runs, or globs.")
    ],
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metric", metavar="PATH", help=r"Keep this figure of the report too, as step_time\[0].wall.p50."
        ),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite a baseline of that name.")] = False,
) -> None:
    """Save runs as a baseline: their metrics, configuration, machine, revision and date."""
    from analyzers.gate.baseline import baseline_path, save_baseline
    from dsv4bench.cli.overwriting import check_outputs

    check_outputs({"baseline save": baseline_path(name)}, runs)
    path, samples = save_baseline(name, runs, metrics or [], replace=replace)
    typer.echo(f"{path}: {len(samples.runs)} run{'s' * (len(samples.runs) != 1)} saved")
    for warning in samples.warnings:
        typer.echo(f"warning: {warning}", err=True)


@baseline.command("show")
def show(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE", help="A saved baseline or any samples file.")],
    json: Annotated[bool, typer.Option("--json", help="Print it as one JSON document.")] = False,
) -> None:
    """Print a baseline: where it is from, and its metrics."""
    from rich.console import Console

    from analyzers.gate.baseline import baseline_path, baseline_tables
    from analyzers.gate.samples import read_samples
    from analyzers.json_text import json_document
    from analyzers.text.terminal import print_table

    samples = read_samples([baseline_path(name)])
    if json:
        typer.echo(json_document(samples), nl=False)
        return
    console = Console()
    for table in baseline_tables(samples):
        print_table(table, console)
