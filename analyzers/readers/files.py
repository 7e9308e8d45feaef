"""Bytes of a file: compression is told by content, not by name."""

from __future__ import annotations

import zlib
from pathlib import Path

from analyzers.errors import UnusableInputError
from analyzers.readers.load import IssueCounter

_GZIP_MAGIC = b"\x1f\x8b"


def read_bytes(path: Path, issues: IssueCounter) -> bytes:
    """The content of `path`, decompressed when it is gzip; of a truncated stream, what decodes.

    Raises:
        UnusableInputError: the file cannot be read, or is gzip of which nothing decodes.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UnusableInputError(f"{path}: cannot be read: {error.strerror or error}") from error
    return _gunzip(data, path, issues) if data.startswith(_GZIP_MAGIC) else data


def _gunzip(data: bytes, path: Path, issues: IssueCounter) -> bytes:
    content = bytearray()
    while data:
        stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        # Bit by bit, so that what precedes a damaged block is kept.
        try:
            for offset in range(0, len(data), 1 << 16):
                content += stream.decompress(data[offset : offset + (1 << 16)])
                if stream.eof:
                    break
        except zlib.error as error:
            if not content:
                raise UnusableInputError(f"{path}: damaged gzip data: {error}") from error
            issues.add("gzip_truncated", f"after {len(content)} bytes", lost=1)
            break
        if not stream.eof:
            issues.add("gzip_truncated", f"after {len(content)} bytes", lost=1)
            break
        consumed = offset + (1 << 16)
        data = (stream.unused_data + data[consumed:]).lstrip(b"\0")
        if data and not data.startswith(_GZIP_MAGIC):
            # Not another member: trailing garbage after a complete stream is no part of the content.
            break
    return bytes(content)
