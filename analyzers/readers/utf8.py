"""Which bytes are UTF-8: text that says U+FFFD is, whoever wrote it."""

from __future__ import annotations


def is_utf8(data: bytes) -> bool:
    """Whether all of `data` is UTF-8."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def damaged_lines(data: bytes, first_line: int = 1) -> list[int]:
    """The numbers of the lines that are not UTF-8; no character goes on over the end of a line."""
    if is_utf8(data):
        return []
    return [number for number, line in enumerate(data.split(b"\n"), first_line) if not is_utf8(line)]
