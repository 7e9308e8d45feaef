"""What files and the server's log state, and where they contradict each other; and which files nobody looked into."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from analyzers.measurement import Measured
from analyzers.recording.run_directory import MOST_FILES
from analyzers.report.model import Finding, Report
from analyzers.report.stated_table import TITLES, disagreement
from analyzers.text.words import counted

FILES_NAMED = 8


def stated(measured: Measured, report: Report) -> Iterable[Finding]:
    """Sources that contradict each other, counts that cannot be, and the files that were not read."""
    if report.stated is not None:
        for name, values in report.stated.contradicted.items():
            others = len({value.request_id for value in values}) - 1
            more = f", and of {counted(others, 'more request')}" if others else ""
            yield Finding(
                "sources_contradict",
                "warning",
                f"{TITLES[name]}: sources contradict each other, so that none is used",
                disagreement(name, values) + more,
                "find out which file is of another run, and analyze without it",
            )
        if report.stated.impossible:
            first = report.stated.impossible[0]
            yield Finding(
                "mtp_impossible",
                "error",
                f"{counted(len(report.stated.impossible), 'request')} with more drafts accepted than proposed",
                f"first: {first}, by the server's own words",
            )
    yield from _not_read(measured.recording.unread, measured.recording.paths)


def _not_read(unread: list[Path], directories: tuple[str, ...]) -> Iterable[Finding]:
    if not unread:
        return
    number = f"more than {MOST_FILES} files" if len(unread) > MOST_FILES else counted(len(unread), "file")
    names = [_below(path, directories) for path in unread[:FILES_NAMED]]
    more = f" and {len(unread) - len(names)} more" if len(unread) > len(names) else ""
    title = f"{number} of the directory {'was' if len(unread) == 1 else 'were'} not read"
    whom = "it" if len(unread) == 1 else "them"
    yield Finding(
        "files_not_read", "info", title, f"{', '.join(names)}{more}: no figure is taken from {whom}"
    )


def _below(path: Path, directories: tuple[str, ...]) -> str:
    """The name of a file as the one who named its directory looks for it."""
    below = next((path.relative_to(place) for place in directories if path.is_relative_to(place)), path)
    return below.as_posix()
