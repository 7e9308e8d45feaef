"""`dsv4bench profiles`: what can be run."""

from __future__ import annotations

from typing import Annotated

import typer


def profiles(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[PROFILE]", help="Show this profile (a name or a .toml file) with every key resolved."
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="SECTION.KEY=VALUE", help="Override a key of the profile; may be repeated."
        ),
    ] = None,
) -> None:
    """List the benchmark profiles, or show one as TOML with every key resolved."""
    from dsv4bench.errors import UsageError
    from dsv4bench.profile import list_profiles, load_profile, profile_as_toml

    if name is not None:
        typer.echo(profile_as_toml(load_profile(name, overrides or [])), nl=False)
        return
    if overrides:
        raise UsageError("--set needs the profile it applies to: dsv4bench profiles PROFILE --set ...")

    from rich.console import Console
    from rich.table import Table

    table = Table("profile", "ranks", "requests", "tokens", "mtp", "description", box=None)
    for profile in list_profiles():
        table.add_row(
            profile.name,
            str(profile.engine.ranks),
            str(profile.load.requests),
            str(profile.load.output_tokens),
            str(profile.engine.mtp),
            profile.description,
        )
    Console().print(table)
