"""The options that say what a gate judges and where its verdict goes, for every command that gives one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

MetricsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="NAME[=SHARE]",
        help="Judge this metric, and the share it may be worse by, as tpot=0.05; may be repeated.",
    ),
]
LimitsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--limit", metavar="NAME=VALUE", help="Absolute bound on the candidate's median, as tpot=60."
    ),
]
ExcludedOption = Annotated[
    str | None,
    typer.Option(
        "--excluded",
        metavar="SHARE",
        help="The regression that a PASS must exclude at 95 %, as 0.05 or 5%; 10 % if nothing else is said.",
    ),
]
ProofOption = Annotated[
    bool,
    typer.Option(
        "--proof", help="A PASS must exclude any regression beyond the share that a metric is allowed."
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="TOML with a table `gate`; dsv4bench.toml if not given."),
]
ForceCompareOption = Annotated[
    bool,
    typer.Option(
        "--force-compare",
        "--allow-different",
        help="Warn of another configuration or machine only, such as other versions of Python or torch.",
    ),
]
MarkdownOption = Annotated[
    Path | None, typer.Option("--markdown", metavar="FILE", help="Also write the verdict as Markdown.")
]
JunitOption = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Also write the verdict as JUnit XML.")
]
