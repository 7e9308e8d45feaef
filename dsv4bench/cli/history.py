"""`dsv4bench history`: trends of runs over time, kept in one file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from analyzers.history.trends import Selection, Series

history = typer.Typer(
    name="history",
    help="Keep runs in one file, and see how their figures move from revision to revision. "
    "It shows trends and judges nothing: that is what `dsv4bench gate` is for.",
    no_args_is_help=True,
)

_Database = Annotated[
    Path,
    typer.Option("--db", metavar="FILE", envvar="DSV4BENCH_HISTORY", help="The history: a SQLite file."),
]
_Profile = Annotated[
    str | None, typer.Option("--profile", metavar="NAME", help="Only this profile; * is any.")
]
_Backend = Annotated[str | None, typer.Option("--backend", metavar="NAME", help="Only this backend.")]
_Model = Annotated[str | None, typer.Option("--model", metavar="NAME", help="Only this model.")]
_Machine = Annotated[
    str | None, typer.Option("--machine", metavar="TEXT", help="Only machines with this in their name.")
]
_SeriesId = Annotated[
    str | None, typer.Argument(metavar="[SERIES]", help="The id of a series, or how it begins: see `list`.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]

_DEFAULT = Path("dsv4bench-history.sqlite")


@history.command()
def add(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories.")],
    db: _Database = _DEFAULT,
) -> None:
    """Keep runs: figures, configuration, machine, revision, time. A run that is there already is kept once.

    Runs that failed or did not complete are kept without figures. Exit code 2 if one of RUN... is no run directory;
    the others are kept.
    """
    from analyzers.errors import AnalyzerError
    from analyzers.history.entry import read_entry
    from analyzers.history.store import open_history
    from dsv4bench.cli.overwriting import check_outputs

    check_outputs({"--db": db}, runs)
    unusable = None
    with open_history(db, create=True) as kept:
        for run in runs:
            try:
                entry = read_entry(run)
            except AnalyzerError as error:
                print(f"dsv4bench: {error}", file=sys.stderr)
                unusable = error
                continue
            note = f" ({entry.status}, without figures: {entry.note})" if not entry.figures else ""
            typer.echo(f"{kept.add(entry)}: {run}, revision {entry.label}{note}")
    if unusable is not None:
        raise typer.Exit(unusable.exit_code)


@history.command(name="list")
def list_series(
    db: _Database = _DEFAULT,
    profile: _Profile = None,
    backend: _Backend = None,
    model: _Model = None,
    machine: _Machine = None,
    json: _Json = False,
) -> None:
    """Show the series there are: runs of one profile, backend, model, machine and configuration."""
    from rich.console import Console

    from analyzers.history.documents import series_document
    from analyzers.history.tables import series_tables
    from analyzers.history.trends import Selection
    from analyzers.text.terminal import print_table

    found = _selected(db, Selection(profile, backend, model, machine))
    if json:
        sys.stdout.write(series_document(found))
    else:
        console = Console()
        for table in series_tables(found):
            print_table(table, console)


@history.command()
def show(
    series: _SeriesId = None,
    metric: Annotated[str, typer.Option("--metric", metavar="NAME", help="Which figure.")] = "tpot",
    db: _Database = _DEFAULT,
    profile: _Profile = None,
    backend: _Backend = None,
    model: _Model = None,
    machine: _Machine = None,
    json: _Json = False,
) -> None:
    """Show the runs of one series, and since which revision its figure holds another level."""
    from rich.console import Console

    from analyzers.history.documents import trend_document
    from analyzers.history.plot import print_steps
    from analyzers.history.tables import runs_table
    from analyzers.history.trends import Selection, known_metric, only_one, trend
    from analyzers.text.terminal import print_table

    name = known_metric(metric)
    chosen = only_one(_selected(db, Selection(profile, backend, model, machine, series)))
    found = trend(chosen, name)
    if json:
        sys.stdout.write(trend_document(chosen, found))
        return
    console = Console()
    print_table(runs_table(chosen, [found], chosen.title), console)
    print_steps(found, console)


@history.command()
def plot(
    series: _SeriesId = None,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", metavar="NAME", help="Which figure; may be repeated. [tpot; in HTML all]"),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write one HTML file instead.")
    ] = None,
    db: _Database = _DEFAULT,
    profile: _Profile = None,
    backend: _Backend = None,
    model: _Model = None,
    machine: _Machine = None,
) -> None:
    """Draw the runs of every series that matches, on the terminal or as an HTML file."""
    from rich.console import Console

    from analyzers.gate.metrics import REGISTRY
    from analyzers.history import plot as terminal
    from analyzers.history.html import write_history
    from analyzers.history.trends import Selection, known_metric, trend
    from dsv4bench.cli.overwriting import check_outputs

    names = [known_metric(name) for name in metric or ()]
    found = _selected(db, Selection(profile, backend, model, machine, series))
    if html is not None:
        check_outputs({"--html": html}, [db])
        write_history(html, [(entry, [trend(entry, name) for name in names or REGISTRY]) for entry in found])
        typer.echo(f"{html}: {sum(len(entry.entries) for entry in found)} runs in {len(found)} series")
        return
    for entry in found:
        for name in names or ["tpot"]:
            terminal.plot(entry, trend(entry, name), Console())


def _selected(db: Path, selection: Selection) -> list[Series]:
    from analyzers.history.store import open_history
    from analyzers.history.trends import group, select

    with open_history(db, create=False) as kept:
        return select(group(kept.entries()), selection)
