"""The options that choose a part of a recording, for every command that measures or draws one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from analyzers.recording.filters import Filters

OneClockOption = Annotated[
    bool, typer.Option("--one-clock", help="The files are of one host, though nothing in them shows it.")
]
StepsOption = Annotated[
    str | None, typer.Option("--steps", metavar="A:B", help="Only steps A to B, B not included.")
]
RanksOption = Annotated[
    str | None, typer.Option("--ranks", metavar="R,...", help="Only these ranks, such as 0,3.")
]
CallableOption = Annotated[
    str | None, typer.Option("--callable", metavar="GLOB", help="Only steps of these callables.")
]
WindowOption = Annotated[
    str | None,
    typer.Option("--window", metavar="START:END", help="Only what lies between these times, in ms."),
]
ExcludeWarmupOption = Annotated[
    bool, typer.Option("--exclude-warmup", help="Without warm-up requests and what ran before its end.")
]


def chosen_filters(
    *,
    steps: str | None,
    ranks: str | None,
    callable_glob: str | None,
    window: str | None,
    exclude_warmup: bool,
) -> Filters:
    """The options as filters.

    Raises:
        FilterError: one of them cannot be read.
    """
    from analyzers.recording.filters import Filters, parse_ranks, parse_steps, parse_window

    return Filters(
        steps=parse_steps(steps) if steps is not None else None,
        ranks=parse_ranks(ranks) if ranks is not None else None,
        callable=callable_glob,
        window_ns=parse_window(window) if window is not None else None,
        exclude_warmup=exclude_warmup,
    )
