"""Damage to valid inputs, by a seeded generator: the kinds that disks, writers, terminals and transfers do."""

from __future__ import annotations

import gzip
import re
from random import Random

FRAGMENTS = (
    b"", b"-1", b"0", b"1e999", b"-1e999", b"NaN", b"Infinity", b'"', b"{", b"}", b"[", b"]", b",", b":", b"null",
    b"true", b"\xff", b"\xc3", b"\\ud800", b"\\u0000", b"99999999999999999999", b"9" * 400, b"-" + b"9" * 30,
    b"1.5", b"1e-400", b"[STRACE] v=1 ", b"[STRACE] v=2 ", b"\n", b"\r", b"\x00", b"\x1b[31m", b"dur=", b"dur=-1",
    b"inv=0", b'"ph":"E"', b'"ph":"b"', b"{}", b"[[", b'"traceEvents":[', b'"distributedInfo":{"rank":1},',
    b"[HOSTLOG_DROPS] dropped=3\n", b"]}", b"%", b"~", b"\xef\xbb\xbf", b"\x1f\x8b", b"}{", b"},{", b"]}{", b"],[",
    b"\x1b[0m\r 45%|###   | 3/7 ", b" clk=dev", b'"benchmarks":[', b"\\", b'\\"', b"'", b"\xe2\x80\xa8", b"}\n{",
    b"\\U", b"\\x41", b"C:\\models\\v4", b"\\u12", b"\\u12z4", b'"id2":{"local":"0x9"},', b'"pid":8,', b'"ph":"M"',
    b'"process_name"', b'"ts":-2000', b'"dur":10800000000',
)  # fmt: skip
NUMBERS = (
    b"1e3", b'" 12 "', b'"12.5"', b'"0x10"', b'"12x"', b'""', b"NaN", b"-Infinity", b"null", b"true", b"-0.0", b"1e400",
    b"0.0005", b"18446744073709551615", b"-9223372036854775809", b"4611686018427387905", b"7" * 5000, b"1.7976e308",
    b"-1", b"0", b"[1]", b"{}", b'"7"', b'"0x7"',
)  # fmt: skip
KEYS = (
    b"ts",
    b"dur",
    b"ph",
    b"pid",
    b"tid",
    b"name",
    b"id",
    b"id2",
    b"args",
    b"rank",
    b"traceEvents",
    b"send_ns",
    b"error",
)

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_KEY = re.compile(rb'"\w+"(?=\s*:)')
_CONTROLS = re.compile(rb"[\[\]{},:\"]")


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


def _replace_match(pattern: re.Pattern[bytes], content: bytes, replacement: bytes, random: Random) -> bytes:
    found = list(pattern.finditer(content))
    if not found:
        return content
    match = random.choice(found)
    return content[: match.start()] + replacement + content[match.end() :]


def _odd_number(content: bytes, random: Random) -> bytes:
    return _replace_match(_NUMBER, content, random.choice(NUMBERS), random)


def _other_key(content: bytes, random: Random) -> bytes:
    return _replace_match(_KEY, content, b'"' + random.choice(KEYS) + b'"', random)


def _control(content: bytes, random: Random) -> bytes:
    """A bracket, comma, colon or quote lost, doubled or mistaken for another."""
    return _replace_match(
        _CONTROLS, content, random.choice((b"", b'""', b"{", b"}", b"[", b"]", b",", b":")), random
    )


def _glue_lines(content: bytes, random: Random) -> bytes:
    lines = content.split(b"\n")
    for _ in range(random.choice((1, 1, 2, 5))):
        if len(lines) > 1:
            index = random.randrange(len(lines) - 1)
            between = random.choice((b"", b"", b" ", b"xx", b"\x1b[0m", b"\r 12%|# | ", b","))
            lines[index : index + 2] = [lines[index] + between + lines[index + 1]]
    return b"\n".join(lines)


def _tear_into_next(content: bytes, random: Random) -> bytes:
    """A line cut by the writer of the next one."""
    lines = content.split(b"\n")
    index = random.randrange(len(lines))
    if index + 1 < len(lines):
        lines[index : index + 2] = [lines[index][: random.randint(0, len(lines[index]))] + lines[index + 1]]
    return b"\n".join(lines)


def _swap_lines(content: bytes, random: Random) -> bytes:
    lines = content.split(b"\n")
    first, second = random.randrange(len(lines)), random.randrange(len(lines))
    lines[first], lines[second] = lines[second], lines[first]
    return b"\n".join(lines)


def _other_line_ends(content: bytes, random: Random) -> bytes:
    return content.replace(b"\n", random.choice((b"\r\n", b"\r", b" ", b"")))


def _nest(content: bytes, random: Random) -> bytes:
    start, depth = random.randint(0, len(content)), random.choice((3, 50, 3000))
    opening, closing = random.choice(((b"[", b"]"), (b'{"a":', b"}")))
    return content[:start] + opening * depth + closing * random.choice((0, depth)) + content[start:]


def _zeros(content: bytes, random: Random) -> bytes:
    """Blocks that a crashed machine never wrote."""
    start, length = random.randint(0, len(content)), random.choice((1, 16, 512))
    return content[:start] + b"\0" * len(content[start : start + length]) + content[start + length :]


def _twice(content: bytes, random: Random) -> bytes:
    return content + random.choice((b"", b"\n", b",", b"\0")) + content


def _recode(content: bytes, random: Random) -> bytes:
    encoding = random.choice(("utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-32", "latin-1"))
    return content.decode(errors="replace").encode(encoding, errors="replace")


def _damaged_gzip(content: bytes, random: Random) -> bytes:
    packed = gzip.compress(content, 1, mtime=0)
    if random.random() < 0.3:
        half = random.randint(0, len(content))
        packed = gzip.compress(content[:half], 1, mtime=0) + gzip.compress(content[half:], 1, mtime=0)
    damage = random.choice((_truncate, _flip, _delete, _double, _zeros, _garbage_behind, _header_only))
    return damage(packed, random)


def _garbage_behind(content: bytes, random: Random) -> bytes:
    return content + random.choice((b"garbage", b"\0" * 100, b"\0\0x", b"\x1f\x8b", b"\x1f\x8b\x08"))


def _header_only(content: bytes, random: Random) -> bytes:
    return content[: random.randint(2, 20)]


_MUTATIONS = (
    _truncate, _behead, _flip, _flip, _delete, _double, _insert, _insert, _replace, _replace, _odd_number, _odd_number,
    _other_key, _control, _control, _glue_lines, _tear_into_next, _swap_lines, _other_line_ends, _nest, _zeros, _twice,
    _recode, _damaged_gzip,
)  # fmt: skip
