"""Standard output that says what is wrong with it: a full disk is an error of its own, a closed pipe is none."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, TextIO

from analyzers.errors import UnusableInputError

_DESCRIPTOR = 1


class StandardOutput:
    """Writes to a stream; everything else about it is the stream's."""

    def __init__(self, stream: TextIO | None) -> None:
        if stream is None:
            stream = _closed()
        self._stream = stream
        self._failure: UnusableInputError | None = None
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            # File names are bytes: what is no text of the terminal's encoding is replaced.
            reconfigure(errors="replace")

    def write(self, text: str) -> int:
        """Write `text`.

        Raises:
            UnusableInputError: the stream takes nothing more.
        """
        self._try(self._stream.write, text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write `lines`; see `write`."""
        self._try(self._stream.writelines, lines)

    def flush(self) -> None:
        """Hand on what was written; see `write`. After a failure there is nothing to hand on."""
        if self._failure is None:
            self._try(self._stream.flush)

    def finish(self) -> None:
        """Hand on the rest, and report any failure until now: a library may have swallowed it; see `write`."""
        self.flush()
        if self._failure is not None:
            raise self._failure

    def _try(self, action: Callable[..., object], *arguments: object) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            action(*arguments)
        except BrokenPipeError:
            # Whoever reads wants no more of it: the command goes on, and its exit code is its own.
            _discard()
        except OSError as error:
            _discard()
            reason = error.strerror or error
            self._failure = UnusableInputError(f"standard output cannot be written: {reason}")
            raise self._failure from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _closed() -> TextIO:
    """A stream that takes nothing, for one that is closed: no file that is opened later gets its number."""
    unwritable = os.open(os.devnull, os.O_RDONLY)
    if unwritable != _DESCRIPTOR:
        os.dup2(unwritable, _DESCRIPTOR)
        os.close(unwritable)
    return open(_DESCRIPTOR, "w", encoding="utf-8", closefd=False)


def _discard() -> None:
    """Let what is still buffered go nowhere: the interpreter writes it when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, _DESCRIPTOR)
    os.close(nowhere)


def forget_unusable_width() -> None:
    """Take COLUMNS for unknown where it is no width: containers and CI terminals of size 0 x 0 set it to 0."""
    columns = os.environ.get("COLUMNS")
    if columns is not None and not (columns.isascii() and columns.isdecimal() and 0 < int(columns) < 10_000):
        del os.environ["COLUMNS"]
