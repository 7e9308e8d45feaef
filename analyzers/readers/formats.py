"""Every format that a file may be in, told by its content: a new one is a reader and a line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from analyzers.errors import UnusableInputError
from analyzers.readers import chrome_trace, manifest, requests, responses, strace
from analyzers.readers.chrome_trace import ChromeTrace
from analyzers.readers.files import OpenedFile, open_file
from analyzers.readers.observations import counters, draft_steps, events, rank_steps, samples
from analyzers.readers.observations.observation import ObservedFile
from analyzers.readers.requests import RequestFile
from analyzers.readers.statements import StatementFile
from analyzers.readers.strace import StraceLog
from analyzers.rundir import Manifest

Reading = ChromeTrace | StraceLog | RequestFile | ObservedFile | StatementFile | Manifest
"""What the readers make of files."""


@dataclass(frozen=True)
class Format:
    """One format: how its files begin, and how they are read from there on."""

    name: str
    looks_like: Callable[[OpenedFile], bool]
    """Whether a file is of it, by its head."""
    read: Callable[[OpenedFile], Reading]
    """Reads what `looks_like` accepted, front to back and once."""


FORMATS: tuple[Format, ...] = (
    Format("answers", responses.looks_like, responses.read),
    Format("Chrome trace", chrome_trace.looks_like, chrome_trace.read),
    Format(samples.KIND, samples.looks_like, samples.read),
    Format(events.KIND, events.looks_like, events.read),
    Format(rank_steps.KIND, rank_steps.looks_like, rank_steps.read),
    Format(draft_steps.KIND, draft_steps.looks_like, draft_steps.read),
    Format(counters.KIND, counters.looks_like, counters.read),
    Format("manifest", manifest.looks_like, manifest.read),
    Format("requests", requests.looks_like, requests.read),
    Format("STRACE log", strace.looks_like, strace.read),
)
"""The first whose `looks_like` holds is what a file is; any text may be a log, so that logs come last."""


def format_of(opened: OpenedFile) -> Format | None:
    """What a file is; None when it is none of the known formats."""
    return next((known for known in FORMATS if known.looks_like(opened)), None)


def read_file(path: Path) -> Reading:
    """Read one file by what it is.

    Raises:
        UnusableInputError: it cannot be read, or is none of the known formats.
    """
    opened = open_file(path)
    known = format_of(opened)
    if known is None:
        raise UnusableInputError(
            f"{path}: not a trace: no traceEvents, no events one a line, no request records"
        )
    return known.read(opened)
