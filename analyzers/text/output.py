"""Where renderings go: standard output, or the file that an option names."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from rich.console import Console

from analyzers.errors import UnusableInputError

FILE_WIDTH = 120
"""Columns of a table in a file, where no terminal says how wide it is."""


@contextmanager
def writing(path: Path, option: str = "") -> Iterator[None]:
    """Make the directory of `path` and let the caller write it; `option` is what named the path.

    Raises:
        UnusableInputError: the operating system refuses.
    """
    try:
        if not path.parent.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        where = f"{option} {path}".lstrip()
        raise UnusableInputError(f"{where}: cannot be written: {error.strerror or error}") from error


@contextmanager
def replacing(path: Path, option: str = "") -> Iterator[BinaryIO]:
    """Let the caller write what takes the place of `path` once it is whole; `option` is what named the path.

    Raises:
        UnusableInputError: the operating system refuses, or `path` is no regular file.
    """
    if path.exists() and not path.is_file():
        raise UnusableInputError(f"{option} {path}: cannot be written: no regular file".lstrip())
    # A name that no other file has, which may be an input.
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    with writing(path, option):
        try:
            with partial.open("xb") as file:
                yield file
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def write_file(path: Path, text: str, option: str) -> None:
    """Write `text` as UTF-8 to the `path` that `option` named, over what was there.

    Raises:
        UnusableInputError: it cannot be written.
    """
    with writing(path, option):
        path.write_text(text, encoding="utf-8", errors="replace")


def write_output(text: str, out: Path | None) -> None:
    """Write `text` to the file that `--out` named, to standard output when it named none.

    Raises:
        UnusableInputError: the file cannot be written.
    """
    if out is None:
        sys.stdout.write(text)
    else:
        write_file(out, text, "--out")


def drawn(draw: Callable[[Console], None], width: int = FILE_WIDTH) -> str:
    """What `draw` prints, as plain text of `width` columns."""
    text = io.StringIO()
    draw(Console(file=text, width=width, highlight=False))
    return text.getvalue()
