"""`dsv4bench compare`: what changed from one run, or one set of runs, to another, and where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand


class ComparisonFormat(StrEnum):
    """How a comparison is rendered."""

    TABLE = "table"
    MARKDOWN = "md"
    JSON = "json"


class CompareCommand(TyperCommand):
    """Lets `--a` and `--b` take every path that follows, as a shell makes of a glob."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give each path that follows `--a` or `--b` the option of its own that the parser asks for."""
        return super().parse_args(ctx, list(_one_option_a_path(args)))


def _one_option_a_path(args: Sequence[str]) -> Iterator[str]:
    option: str | None = None
    first = False
    for word in args:
        if word in ("--a", "--b"):
            option, first = word, True
            yield word
        elif word.startswith("-"):
            option = None
            yield word
        else:
            if option is not None and not first:
                yield option
            first = False
            yield word


def compare(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="A B", help="Two runs: run directories, traces or logs; or two quoted globs."),
    ] = None,
    a: Annotated[
        list[str] | None, typer.Option("--a", metavar="PATH...", help="The runs of A, each path one run.")
    ] = None,
    b: Annotated[
        list[str] | None, typer.Option("--b", metavar="PATH...", help="The runs of B, each path one run.")
    ] = None,
    allow_different: Annotated[
        bool, typer.Option("--allow-different", help="Compare runs whose settings or machines differ.")
    ] = False,
    output_format: Annotated[
        ComparisonFormat, typer.Option("--format", help="How to render the comparison.")
    ] = ComparisonFormat.TABLE,
    as_json: Annotated[bool, typer.Option("--json", help="Short for --format json.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write the comparison to this file.")] = None,
) -> None:
    """Say what changed from A to B: per token and per step, phase by phase, rank by rank.

    It does not judge. Exit codes: 0 ok, 2 unusable input, 3 no data, 5 not comparable.
    """
    from analyzers.compare.compare import compare as compare_sides
    from analyzers.compare.render import write_comparison
    from dsv4bench.cli.overwriting import check_outputs

    if paths and (len(paths) != 2 or a or b):
        raise typer.BadParameter(
            "`compare A B` takes two paths; give several a side with --a PATH... --b PATH..."
        )
    before, after = ([paths[0]], [paths[1]]) if paths else (a, b)
    check_outputs({"--out": out}, [Path(pattern) for pattern in [*(before or []), *(after or [])]])
    if not before or not after:
        raise typer.BadParameter("name both sides: `compare A B`, or `compare --a PATH... --b PATH...`")
    comparison = compare_sides(before, after, allow_different=allow_different)
    write_comparison(comparison, "json" if as_json else output_format.value, out)
