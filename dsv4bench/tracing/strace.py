"""Host trace records of the runtime ([STRACE]), written to the process's stderr in upstream's grammar.

The grammar is the one that simpler's `strace_timing` reads. A record is one write of less than PIPE_BUF
bytes, so that ranks sharing a pipe never tear each other's records. Times are int64 ns of CLOCK_MONOTONIC,
except for spans with the attribute `clk=dev`, which count from an origin of their own in one invocation.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import lru_cache
from threading import get_ident, get_native_id
from types import MappingProxyType
from typing import Final

from dsv4bench.tracing.append import write_all

NAME_CAPACITY: Final = 256
VALUE_CAPACITY: Final = 256
ATTRIBUTES_CAPACITY: Final = 2048

DEVICE_CLOCK: Final[Mapping[str, int | str]] = MappingProxyType({"clk": "dev"})
_NO_ATTRIBUTES: Final[Mapping[str, int | str]] = MappingProxyType({})

# Printable ASCII that is not part of the record grammar stands for itself; every other byte is escaped.
_FIELD_TEXT: Final = [
    chr(byte) if 0x20 < byte < 0x7F and chr(byte) not in "%[]=" else f"%{byte:02X}" for byte in range(256)
]


class StraceEmitter:
    """Writes the records of one process. Safe to use from any thread and after a fork.

    With `enabled=False` it writes the ready line only, as a runtime below TIMING level does.
    """

    def __init__(self, fd: int = 2, *, enabled: bool = True) -> None:
        self._fd = fd
        self.enabled = enabled

    def record(
        self,
        name: str,
        start_ns: int,
        duration_ns: int,
        *,
        invocation: int,
        hid: str,
        depth: int,
        attributes: Mapping[str, int | str] = _NO_ATTRIBUTES,
    ) -> None:
        """Write one span at its end. `hid` is the callable's content hash in hex, "0" where there is none.

        Pass `DEVICE_CLOCK` among the attributes of a device span. Names and values longer than their capacity
        are cut and end in `~`; the OSError of a closed descriptor reaches the caller.
        """
        if not self.enabled:
            return
        fields = encode_attributes(attributes) if attributes else ""
        line = (
            f"[mono_ns={time.monotonic_ns()}][T0x{get_ident():x}][TIMING] emit_host_span: [STRACE] v=1 "
            f"pid={os.getpid()} tid={get_native_id()} inv={invocation} hid={hid} depth={depth} "
            f"name={_encode_name(name)} ts={start_ns} dur={duration_ns} {fields}\n"
        )
        self._write(line.encode("ascii"))

    def clock_anchor(self) -> None:
        """Write the record that maps this process's monotonic clock to wall time, once at its start."""
        if not self.enabled:
            return
        monotonic_ns = time.monotonic_ns()
        wall_ns = time.time_ns()
        line = (
            f"[mono_ns={time.monotonic_ns()}][T0x{get_ident():x}][TIMING] clock_anchor: [CLOCK_ANCHOR] v=1 "
            f"pid={os.getpid()} mono_ns={monotonic_ns} wall_ns={wall_ns}\n"
        )
        self._write(line.encode("ascii"))

    def ready(self, device: int) -> None:
        """Write the line that names this process as the one that drives `device`."""
        self._write(f"[chip_process pid={os.getpid()} dev={device}] ready\n".encode("ascii"))

    def _write(self, line: bytes) -> None:
        write_all(self._fd, line)


def encode_field(text: str, capacity: int) -> str:
    """Escape `text` as `%XX` where it would be read as grammar; cut it to `capacity` bytes, ending in `~`."""
    units = [_FIELD_TEXT[byte] for byte in text.encode("utf-8", "surrogateescape")]
    if sum(map(len, units)) <= capacity:
        return "".join(units)
    kept: list[str] = []
    room = capacity - 1
    for unit in units:
        room -= len(unit)
        if room < 0:
            break
        kept.append(unit)
    return "".join(kept) + "~"


def encode_attributes(attributes: Mapping[str, int | str]) -> str:
    """Return the attributes as `k=v k=v`; those beyond `ATTRIBUTES_CAPACITY` bytes are left out behind a `~`.

    Keys are identifiers and are written as they are.
    """
    text = ""
    for key, value in attributes.items():
        field = f"{key}={value if type(value) is int else _encode_value(str(value))}"
        if len(text) + len(field) >= ATTRIBUTES_CAPACITY:
            return text + "~"
        text = f"{text} {field}" if text else field
    return text


@lru_cache(maxsize=1024)
def _encode_name(name: str) -> str:
    return encode_field(name, NAME_CAPACITY)


@lru_cache(maxsize=1024)
def _encode_value(value: str) -> str:
    return encode_field(value, VALUE_CAPACITY)
