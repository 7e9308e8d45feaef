"""Lines of the runtime's log, as the device processes write them. Times are in ns."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def record(
    name: str,
    start: int,
    duration: int,
    *,
    pid: int,
    inv: int = 1,
    tid: int | None = None,
    hid: str = "ab",
    depth: int | None = None,
    **attributes: Any,
) -> str:
    """One `[STRACE]` record, which ends with a blank where it has no attributes.

    Its thread is the process's first, and its depth follows from the dots of the name.
    """
    values = " ".join(f"{key}={value}" for key, value in attributes.items())
    return (
        f"[STRACE] v=1 pid={pid} tid={pid if tid is None else tid} inv={inv} hid={hid} "
        f"depth={name.count('.') - 1 if depth is None else depth} name={name} ts={start} dur={duration} {values}"
    )


def logged(record: str, at: int = 1) -> str:
    """The record behind what the runtime's logger puts in front of it."""
    return f"[mono_ns={at}][T0x7f][TIMING] emit_host_span: {record}"


def ready(pid: int, device: int) -> str:
    """The line that says which device a rank process has."""
    return f"[chip_process pid={pid} dev={device}] ready"


def write_log(path: Path, *lines: str) -> Path:
    """Write the lines to `path`, its folder included."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path
