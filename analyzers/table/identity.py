"""Who did something, a thread, its process and its device; and what ids, which may be any value, are in columns."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any, NamedTuple

Process = tuple[str, int | str | None]
"""A file, and the pid of a process in it; `"41#2"` is the second process of the file that had the pid 41."""


class Lane(NamedTuple):
    """One thread as its file names it: foreign traces may use strings; None is a missing pid or tid."""

    file: str
    pid: int | str | None
    tid: int | str | None
    incarnation: int = 0
    """Which of the processes that had the pid one after the other, from 0."""

    @property
    def process(self) -> Process:
        """The process this lane belongs to: equal pids of different files are different processes."""
        return (self.file, process_label(self.pid, self.incarnation))


def process_label(pid: int | str | None, incarnation: int) -> int | str | None:
    """The pid as `Process` has it."""
    return pid if not incarnation else f"{pid}#{incarnation + 1}"


class DeviceIds(NamedTuple):
    """The device that a process drives, as numbers of the two spaces; None is what nothing in the input says.

    Logical numbers count what the process sees, as its runtime does; physical ones are the host's.
    """

    logical: int | None = None
    physical: int | None = None


FIRST_NAMED = -(2**62)
"""Codes from here downwards stand for ids that are no int64 themselves: see `IdCodes`."""

_DIGEST_BYTES = 8


class IdCodes:
    """Ids as values, whatever JSON can hold, in columns of int64.

    An integer is its own code, and a float that equals it has the same. Anything else, such as a text, has a code that
    depends on nothing but the value, so that columns of different files agree without being told: 62 bits of the digest
    of its canonical JSON, as a negative number. `texts` says what each of those codes stands for.
    """

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}
        self._known: dict[str, int] = {}

    def code(self, value: Any) -> int | None:
        """The code of an id; None for a value that cannot be one: null, NaN, and what is nested without end."""
        if type(value) is str:
            if value not in self._known:
                self._known[value] = self._named(value)
            return self._known[value]
        try:
            plain = _plain(value)
            return plain if plain is None or _is_own_code(plain) else self._named(plain)
        except (RecursionError, ValueError):
            return None

    def _named(self, value: Any) -> int:
        canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
        digest = hashlib.blake2b(canonical.encode(), digest_size=_DIGEST_BYTES).digest()
        code = FIRST_NAMED - (int.from_bytes(digest) >> 2)
        self.texts[code] = value if isinstance(value, str) else canonical
        return code


def _is_own_code(value: Any) -> bool:
    # -1 is what a column holds where there is no id.
    return type(value) is int and FIRST_NAMED < value < 2**63 and value != -1


def _plain(value: Any) -> Any:
    """`value` with every number that is a whole one as an integer, so that equal values are written alike.

    Raises:
        ValueError: it holds a number that is none.
    """
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("no number")
        return int(value) if value.is_integer() else value
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
