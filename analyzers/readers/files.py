"""Bytes of a file, whole or in pieces: compression and encoding are told by content, not by name."""

from __future__ import annotations

import codecs
import contextlib
import functools
import itertools
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from analyzers.errors import UnusableInputError
from analyzers.readers.load_report import IssueCounter

GZIP_MAGIC = b"\x1f\x8b"
PIECE = 1 << 20
"""Bytes of content that are read at once."""

_COMPRESSED_PIECE = 1 << 16
_SALVAGED_AT_ONCE = 1 << 10
_HEAD = 1 << 20
_FIRST_TEXT = 1 << 16
LONGEST_LINE = 1 << 24
"""Bytes after which a line is cut: what holds no line end for so long is no text."""

_LONGEST_MARK = 4
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def is_plain(path: Path) -> bool:
    """Whether an offset in the content is an offset in the file: neither compressed nor of another encoding.

    Raises:
        UnusableInputError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            first = file.read(_LONGEST_MARK)
    except OSError as error:
        raise UnusableInputError(f"{path}: cannot be read: {error.strerror or error}") from error
    return not first.startswith(GZIP_MAGIC) and _wide_encoding(first) is None


def read_bytes(path: Path, issues: IssueCounter) -> bytes:
    """The content of `path` in one piece; see `iterate_bytes`.

    Raises:
        UnusableInputError: as `iterate_bytes` does.
    """
    return b"".join(iterate_bytes(path, issues))


def iterate_bytes(path: Path, issues: IssueCounter) -> Iterator[bytes]:
    """The content of `path` in pieces of about a megabyte: decompressed when it is gzip, as UTF-8 when it is UTF-16.

    Of a truncated or damaged stream, what decodes.

    Raises:
        UnusableInputError: the file cannot be read, or is gzip of which nothing decodes.
    """
    try:
        with path.open("rb") as file:
            first = file.read(_COMPRESSED_PIECE)
            if first.startswith(GZIP_MAGIC):
                pieces = _Gunzip(file, path, issues).pieces(first)
            else:
                pieces = itertools.chain([first], iter(lambda: file.read(PIECE), b""))
            yield from _as_utf8(pieces, issues)
    except OSError as error:
        raise UnusableInputError(f"{path}: cannot be read: {error.strerror or error}") from error


class OpenedFile:
    """The content of one file, front to back and once: its head may be looked at before."""

    def __init__(
        self, name: str, pieces: Iterator[bytes], issues: IssueCounter, *, is_plain: bool = False
    ) -> None:
        self.name = name
        """Its path, as reports have it."""
        self.issues = issues
        """What is met in its text while it is read."""
        self.is_plain = is_plain
        """Whether an offset in the content is an offset in the file of that name."""
        self.head = b""
        self._pieces = pieces

    def look_further(self) -> bool:
        """Read about as much again into `head`; False when nothing is left."""
        more = list(itertools.islice(self._pieces, 1 + len(self.head) // PIECE))
        self.head = b"".join([self.head, *more])
        return bool(more)

    def first_megabyte(self) -> bytes:
        """The first megabyte of the content, or a little more."""
        while len(self.head) < _HEAD and self.look_further():
            pass
        return self.head

    @functools.cached_property
    def first_text(self) -> str:
        """The first 64 KiB as text, from the first character that is no white space."""
        return self.first_megabyte()[:_FIRST_TEXT].decode("utf-8-sig", errors="replace").lstrip()

    def pieces(self) -> Iterator[bytes]:
        """The content in pieces of about a megabyte, the head among them."""
        head, self.head = self.head, b""
        return itertools.chain([head], self._pieces)

    def whole(self) -> bytes:
        """The content in one piece."""
        return b"".join(self.pieces())


def open_file(path: Path) -> OpenedFile:
    """Open `path`, whose content comes as `iterate_bytes` gives it.

    Raises:
        UnusableInputError: as `iterate_bytes` does, also while it is read.
    """
    issues = IssueCounter()
    # A pipe gives its content once: nothing may look at it before, or come back to it.
    plain = (path.is_file() or not path.exists()) and is_plain(path)
    return OpenedFile(str(path), iterate_bytes(path, issues), issues, is_plain=plain)


class Lines(NamedTuple):
    """Whole lines that follow each other."""

    content: bytes
    offset: int
    """Where they start, in bytes of the content."""
    line: int
    """The number of the first, from 1."""


def whole_lines(pieces: Iterable[bytes]) -> Iterator[Lines]:
    """Pieces cut at line ends. A line longer than `LONGEST_LINE` is cut at a carriage return or a bracket."""
    buffer, offset, line = b"", 0, 1
    for piece in pieces:
        buffer += piece
        cut = buffer.rfind(b"\n") + 1
        if not cut and len(buffer) > LONGEST_LINE:
            # A record starts with a bracket and holds none inside.
            cut = buffer.rfind(b"\r") + 1 or max(buffer.rfind(b"["), 0) or len(buffer)
        if cut:
            yield Lines(buffer[:cut], offset, line)
            line += buffer.count(b"\n", 0, cut)
            buffer, offset = buffer[cut:], offset + cut
    if buffer:
        yield Lines(buffer, offset, line)


class _Gunzip:
    """Decompresses the members of a gzip file one after the other."""

    def __init__(self, file: BinaryIO, path: Path, issues: IssueCounter) -> None:
        self._file = file
        self._path = path
        self._issues = issues
        self._produced = 0

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """The content; `data` is what was already read of the file.

        Raises:
            UnusableInputError: nothing decodes.
        """
        stream = _member()
        is_more = False
        while data or is_more:
            # A copy, since a failing call keeps what it has decoded to itself.
            before = stream.copy()
            try:
                content = stream.decompress(data, PIECE)
            except zlib.error as error:
                yield from self._salvage(before, data)
                if not self._produced:
                    raise UnusableInputError(f"{self._path}: damaged gzip data: {error}") from error
                self._issues.add("gzip_damaged", f"{self._where()}: {error}", lost=1)
                return
            if content:
                self._produced += len(content)
                yield content
            data = stream.unconsumed_tail or self._file.read(_COMPRESSED_PIECE)
            # A full piece may leave content in the decompressor even when no input is left.
            is_more = len(content) == PIECE
            if stream.eof:
                data = self._without_padding(stream.unused_data + data)
                if data and not data.startswith(GZIP_MAGIC):
                    self._issues.add("trailing_data", f"{self._where()}: no gzip member", lost=1)
                    return
                if not data:
                    return
                stream = _member()
        if not stream.eof:
            if not self._produced:
                raise UnusableInputError(f"{self._path}: truncated gzip data: nothing of it decodes")
            self._issues.add("gzip_truncated", self._where(), lost=1)

    def _salvage(self, stream: zlib._Decompress, data: bytes) -> Iterator[bytes]:
        """What of `data` decodes before its damage."""
        content = bytearray()
        for start in range(0, len(data), _SALVAGED_AT_ONCE):
            part = data[start : start + _SALVAGED_AT_ONCE]
            before = stream.copy()
            try:
                content += stream.decompress(part)
            except zlib.error:
                content += _up_to_damage(before, part)
                break
        self._produced += len(content)
        yield bytes(content)

    def _without_padding(self, data: bytes) -> bytes:
        """The next member; tapes and block devices pad files with zeros."""
        data = data.lstrip(b"\0")
        while not data and (more := self._file.read(_COMPRESSED_PIECE)):
            data = more.lstrip(b"\0")
        return data

    def _where(self) -> str:
        return f"byte {self._produced} of the decompressed content"


def _up_to_damage(stream: zlib._Decompress, data: bytes) -> bytes:
    """All that decodes: byte for byte, since a failing call keeps what it has decoded to itself."""
    content = bytearray()
    # The damage is for the caller to report.
    with contextlib.suppress(zlib.error):
        for value in data:
            decoded = stream.decompress(bytes([value]), 1)
            while decoded:
                content += decoded
                decoded = stream.decompress(stream.unconsumed_tail, 1)
    return bytes(content)


def _member() -> zlib._Decompress:
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)


def _wide_encoding(first: bytes) -> str | None:
    """UTF-16 or UTF-32 by its mark, or by the zeros around a first ASCII character; None for any other."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if first.startswith(mark):
            return encoding
    zeros = bytes(value == 0 for value in first[:_LONGEST_MARK])
    return {b"\0\1\0\1": "utf-16-le", b"\1\0\1\0": "utf-16-be"}.get(zeros)


def _as_utf8(pieces: Iterator[bytes], issues: IssueCounter) -> Iterator[bytes]:
    first = b""
    while len(first) < _LONGEST_MARK and (piece := next(pieces, b"")):
        first += piece
    encoding = _wide_encoding(first)
    if encoding is None:
        yield first
        yield from pieces
        return
    issues.add("transcoded", encoding.upper())
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    for piece in itertools.chain([first], pieces):
        yield decoder.decode(piece).encode(errors="replace")
    yield decoder.decode(b"", final=True).encode(errors="replace")
