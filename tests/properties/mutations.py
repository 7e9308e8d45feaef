"""Damage to valid inputs, by a seeded generator: the kinds that disks, writers and transfers do."""

from __future__ import annotations

import gzip
from random import Random

FRAGMENTS = (
    b"", b"-1", b"0", b"1e999", b"-1e999", b"NaN", b"Infinity", b'"', b"{", b"}", b"[", b"]", b",", b":", b"null",
    b"true", b"\xff", b"\xc3", b"\\ud800", b"\\u0000", b"99999999999999999999", b"9" * 400, b"-" + b"9" * 30,
    b"1.5", b"1e-400", b"[STRACE] v=1 ", b"[STRACE] v=2 ", b"\n", b"\r", b"\x00", b"\x1b[31m", b"dur=", b"dur=-1",
    b"inv=0", b'"ph":"E"', b'"ph":"b"', b"{}", b"[[", b'"traceEvents":[', b'"distributedInfo":{"rank":1},',
    b"[HOSTLOG_DROPS] dropped=3\n", b"]}", b"%", b"~", b"\xef\xbb\xbf", b"\x1f\x8b",
)  # fmt: skip


def mutate(content: bytes, random: Random) -> bytes:
    """`content` with one to five pieces damaged."""
    for _ in range(random.choice((1, 1, 1, 2, 3, 5))):
        content = random.choice(_MUTATIONS)(content, random)
    return content


def _truncate(content: bytes, random: Random) -> bytes:
    return content[: random.randint(0, len(content))]


def _behead(content: bytes, random: Random) -> bytes:
    return content[random.randint(0, len(content)) :]


def _flip(content: bytes, random: Random) -> bytes:
    if not content:
        return content
    position = random.randrange(len(content))
    return (
        content[:position] + bytes([content[position] ^ 1 << random.randrange(8)]) + content[position + 1 :]
    )


def _delete(content: bytes, random: Random) -> bytes:
    start, length = random.randint(0, len(content)), random.randint(1, 40)
    return content[:start] + content[start + length :]


def _double(content: bytes, random: Random) -> bytes:
    start, length = random.randint(0, len(content)), random.randint(1, 200)
    return content[: start + length] + content[start:]


def _insert(content: bytes, random: Random) -> bytes:
    start = random.randint(0, len(content))
    return content[:start] + random.choice(FRAGMENTS) + content[start:]


def _replace(content: bytes, random: Random) -> bytes:
    start, length = random.randint(0, len(content)), random.randint(1, 12)
    return content[:start] + random.choice(FRAGMENTS) + content[start + length :]


def _glue_lines(content: bytes, random: Random) -> bytes:
    lines = content.split(b"\n")
    if len(lines) > 1:
        index = random.randrange(len(lines) - 1)
        lines[index : index + 2] = [lines[index] + lines[index + 1]]
    return b"\n".join(lines)


def _swap_lines(content: bytes, random: Random) -> bytes:
    lines = content.split(b"\n")
    first, second = random.randrange(len(lines)), random.randrange(len(lines))
    lines[first], lines[second] = lines[second], lines[first]
    return b"\n".join(lines)


def _nest(content: bytes, random: Random) -> bytes:
    start, depth = random.randint(0, len(content)), random.choice((3, 50, 3000))
    opening, closing = random.choice(((b"[", b"]"), (b'{"a":', b"}")))
    return content[:start] + opening * depth + closing * random.choice((0, depth)) + content[start:]


def _damaged_gzip(content: bytes, random: Random) -> bytes:
    packed = gzip.compress(content, 1, mtime=0)
    if random.random() < 0.3:
        packed += gzip.compress(content, 1, mtime=0)
    return random.choice((_truncate, _flip, _delete, _double))(packed, random)


_MUTATIONS = (
    _truncate, _behead, _flip, _flip, _delete, _double, _insert, _insert, _replace, _replace,
    _glue_lines, _swap_lines, _nest, _damaged_gzip,
)  # fmt: skip
