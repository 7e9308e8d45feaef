"""`dsv4bench servers`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dsv4bench.server_kinds.resolve import ResolvedServer


def servers(
    name: Annotated[
        str | None, typer.Argument(metavar="[KIND|FILE]", help="A shipped kind, or the path of a .toml file.")
    ] = None,
    profile: Annotated[
        str, typer.Option(help="The profile that its placeholders are filled from.")
    ] = "gbs32-mtp1",
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override a key of the kind (server.model=DIR) or of the profile.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List the kinds of servers, or show one as a run would start it: command line, environment, how it is asked."""
    from analyzers.json_text import json_document
    from dsv4bench.errors import UsageError
    from dsv4bench.profile import load_profile
    from dsv4bench.server_kinds.load import load_kind, shipped_kinds, split_server_overrides
    from dsv4bench.server_kinds.resolve import resolve
    from dsv4bench.server_kinds.show import described, kinds_table, server_lines

    if name is None:
        if set_:
            raise UsageError(f"--set {set_[0]}: name the kind that it is for")
        kinds = [load_kind(kind) for kind in shipped_kinds()]
        if json:
            typer.echo(json_document(kinds), nl=False)
        else:
            _print_table(kinds_table(kinds))
        return
    profile_sets, server_sets = split_server_overrides(set_ or [])
    kind = load_kind(name, server_sets)
    server: ResolvedServer = resolve(kind, load_profile(profile, profile_sets), Path("RUN"))
    if json:
        typer.echo(json_document(described(server)), nl=False)
    else:
        typer.echo("\n".join(server_lines(server)))


def _print_table(table: object) -> None:
    from rich.console import Console

    from analyzers.text.tables import Table
    from analyzers.text.terminal import print_table

    assert isinstance(table, Table)
    print_table(table, Console(highlight=False))
