"""No output takes the place of an input: the recording is often the only copy."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from analyzers.errors import UnusableInputError
from analyzers.recording.benchmarks import chosen_benchmark

_DERIVED = (
    "report.json",
    "report.md",
    "report.html",
    "swimlane.json",
    "swimlane.pftrace",
    "timeline.pftrace",
)
"""What is made of a recording and may lie beside it: it can be made again."""


def check_outputs(outputs: Mapping[str, Path | None], inputs: Iterable[Path]) -> None:
    """Refuse an output, by the option that names it, that is one of the inputs, under whatever name.

    Links and relative paths are seen through. Of an input directory, every file is an input but the reports in it.

    Raises:
        UnusableInputError: an output is an input, or a directory that holds inputs.
    """
    wanted = {option: path for option, path in outputs.items() if path is not None and path.exists()}
    if not wanted:
        return
    known: dict[tuple[int, int], Path] = {}
    for path in inputs:
        for file in _files(path):
            status = file.stat()
            known.setdefault((status.st_dev, status.st_ino), file)
    for option, path in wanted.items():
        status = path.stat()
        taken = known.get((status.st_dev, status.st_ino))
        if taken is not None:
            other = "" if str(taken) == str(path) else f" ({taken})"
            raise UnusableInputError(
                f"{option} {path}: that is an input{other}, which would be lost: name another file"
            )


def _files(path: Path) -> Iterator[Path]:
    if (chosen := chosen_benchmark(path)) is not None:
        yield chosen.file
    elif path.is_file():
        yield path
    elif path.is_dir():
        yield from (file for file in path.rglob("*") if file.is_file() and file.name not in _DERIVED)
    elif not path.exists():
        # A pattern, which the commands that take patterns expand themselves.
        for match in glob.glob(str(path)):  # noqa: PTH207 (Path.glob takes no absolute pattern)
            yield from _files(Path(match))
