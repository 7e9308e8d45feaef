"""Standard output that says what is wrong with it: a full disk is an error of its own, a closed pipe is none."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, TextIO, TypeVar

from analyzers.errors import UnusableInputError

Result = TypeVar("Result")


class StandardOutput:
    """Writes to a stream; everything else about it is the stream's."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            # File names are bytes: what is no text of the terminal's encoding is replaced.
            reconfigure(errors="replace")

    def write(self, text: str) -> int:
        """Write `text`.

        Raises:
            UnusableInputError: the stream takes nothing more.
        """
        _reported(self._stream.write, text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write `lines`; see `write`."""
        _reported(self._stream.writelines, lines)

    def flush(self) -> None:
        """Hand on what was written; see `write`."""
        _reported(self._stream.flush)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _reported(action: Callable[..., Result], *arguments: Any) -> Result | None:
    try:
        return action(*arguments)
    except BrokenPipeError:
        # Whoever reads wants no more of it: the command goes on, and its exit code is its own.
        _discard()
        return None
    except OSError as error:
        _discard()
        raise UnusableInputError(f"standard output cannot be written: {error.strerror or error}") from error


def _discard() -> None:
    """Let what is still buffered go nowhere: the interpreter writes it when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def forget_unusable_width() -> None:
    """Take COLUMNS for unknown where it is no width: containers and CI terminals of size 0 x 0 set it to 0."""
    columns = os.environ.get("COLUMNS")
    if columns is not None and not (columns.isascii() and columns.isdecimal() and 0 < int(columns) < 10_000):
        del os.environ["COLUMNS"]


def flush_standard_output() -> None:
    """Hand on what was written so far, and report what keeps it from arriving; see `StandardOutput.write`."""
    sys.stdout.flush()
