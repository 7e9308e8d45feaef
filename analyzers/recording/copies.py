"""Which paths hold one run: copies of a run are no further evidence of anything, wherever they lie.

A run directory is known by its manifest and its requests, as the history knows it. Requests whose times are ns of a
clock are those of one run alone, whatever its manifest has become since. Anything else is known by its content.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from analyzers.errors import UnusableInputError
from analyzers.recording.benchmarks import chosen_benchmark
from analyzers.rundir import RunDirectory

_TIMES_IN_NS = b'"token_times_ns"'
_HEAD = 1 << 16


class Copy(NamedTuple):
    """A path that holds the run of another."""

    path: Path
    of: Path


def run_identity(run: RunDirectory) -> str:
    """SHA-256 of the manifest and the requests of a run: the same wherever its directory lies.

    Of the manifest as it stands, not as this version reads it: a later one may know more keys.

    Raises:
        UnusableInputError: one of them cannot be read.
    """
    try:
        content = run.manifest.read_bytes()
        requests = run.requests.read_bytes() if run.requests.is_file() else b""
    except OSError as error:
        raise UnusableInputError(f"{run.root}: cannot be read: {error.strerror or error}") from error
    try:
        manifest = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError):
        # No manifest at all; its copies are the same bytes.
        manifest = hashlib.sha256(content).hexdigest()
    return digest_of([manifest, hashlib.sha256(requests).hexdigest()])


def digest_of(value: object) -> str:
    """SHA-256 of a value, in whatever order its keys stand."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()


def content_identity(path: Path) -> str:
    """What a path shares with its copies and with nothing else.

    Raises:
        UnusableInputError: it cannot be read.
    """
    try:
        if (chosen := chosen_benchmark(path)) is not None:
            return digest_of([_of_file(chosen.file), chosen.number])
        if path.is_file():
            return _of_file(path)
        if not path.is_dir():
            # A pipe is read once: what came out of it is nobody's to compare.
            return digest_of(_name(path))
        run = RunDirectory(path)
        if run.requests.is_file() and _may_be_requests(run.requests):
            return _of_file(run.requests)
        if run.manifest.is_file():
            return run_identity(run)
        # The names of its files say what they are: a rank's log, a process's fragment.
        files = sorted(
            (_name(file.relative_to(path)), _of_file(file)) for file in path.rglob("*") if file.is_file()
        )
    except OSError as error:
        raise UnusableInputError(f"{path}: cannot be read: {error.strerror or error}") from error
    return digest_of(files)


def copies_among(paths: Sequence[Path]) -> list[Copy]:
    """The paths that hold the run of one before.

    Raises:
        UnusableInputError: one cannot be read.
    """
    sizes = Counter(path.stat().st_size for path in paths if path.is_file())
    first: dict[str, Path] = {}
    copies = []
    for path in paths:
        # A file of another size than all others is no copy of any, and may be large.
        if path.is_file() and sizes[path.stat().st_size] == 1 and not _may_be_requests(path):
            continue
        known = first.setdefault(content_identity(path), path)
        if known is not path:
            copies.append(Copy(path, known))
    return copies


def notes_on(copies: Iterable[Copy]) -> list[str]:
    """One note for each run that is there more than once."""
    by_run: dict[Path, list[str]] = {}
    for copy in copies:
        by_run.setdefault(copy.of, []).append(str(copy.path))
    return [
        f"{', '.join(names)}: {'a copy' if len(names) == 1 else 'copies'} of {run}: one run, counted once"
        for run, names in by_run.items()
    ]


def _may_be_requests(path: Path) -> bool:
    """Whether a file may hold requests whose times are ns of a clock, as those of a run directory do."""
    with path.open("rb") as file:
        return _TIMES_IN_NS in file.read(_HEAD)


def _name(path: Path) -> str:
    """A name as text, another one for every name: what is no text in it is escaped."""
    return str(path).encode(errors="backslashreplace").decode()


def _of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
