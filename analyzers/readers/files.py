"""Bytes of a file, whole or in pieces: compression is told by content, not by name."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from analyzers.errors import UnusableInputError
from analyzers.readers.load import IssueCounter

GZIP_MAGIC = b"\x1f\x8b"
_PIECE = 1 << 20
_COMPRESSED_PIECE = 1 << 16
"""Small, so that what precedes a damaged block is kept."""


def is_compressed(path: Path) -> bool:
    """Whether a regular file is gzip.

    Raises:
        UnusableInputError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(2) == GZIP_MAGIC
    except OSError as error:
        raise UnusableInputError(f"{path}: cannot be read: {error.strerror or error}") from error


def read_bytes(path: Path, issues: IssueCounter) -> bytes:
    """The content of `path`, decompressed when it is gzip; of a truncated stream, what decodes.

    Raises:
        UnusableInputError: the file cannot be read, or is gzip of which nothing decodes.
    """
    return b"".join(iterate_bytes(path, issues))


def iterate_bytes(path: Path, issues: IssueCounter) -> Iterator[bytes]:
    """The content of `read_bytes`, in pieces of about a megabyte.

    Raises:
        UnusableInputError: as `read_bytes` does.
    """
    try:
        with path.open("rb") as file:
            first = file.read(_COMPRESSED_PIECE)
            if first.startswith(GZIP_MAGIC):
                yield from _gunzip(first, file, path, issues)
                return
            yield first
            while piece := file.read(_PIECE):
                yield piece
    except OSError as error:
        raise UnusableInputError(f"{path}: cannot be read: {error.strerror or error}") from error


def _gunzip(data: bytes, file: BinaryIO, path: Path, issues: IssueCounter) -> Iterator[bytes]:
    """The members of a gzip file one after the other."""
    stream = _member()
    produced = 0
    while data:
        try:
            content = stream.decompress(data)
        except zlib.error as error:
            if not produced:
                raise UnusableInputError(f"{path}: damaged gzip data: {error}") from error
            issues.add("gzip_truncated", f"after {produced} bytes", lost=1)
            return
        produced += len(content)
        yield content
        data = file.read(_COMPRESSED_PIECE)
        if stream.eof:
            data = (stream.unused_data + data).lstrip(b"\0")
            while not data and (data := file.read(_COMPRESSED_PIECE)):
                data = data.lstrip(b"\0")
            if not data:
                return
            if not data.startswith(GZIP_MAGIC):
                issues.add("trailing_data", f"after {produced} bytes", lost=1)
                return
            stream = _member()
    if not stream.eof:
        issues.add("gzip_truncated", f"after {produced} bytes", lost=1)


def _member() -> zlib._Decompress:
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
