"""Events of the serving trace (Chrome trace format). Times are in us, as in the file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SUBMIT_THREAD, WAIT_THREAD = 3, 4


def event(
    name: str,
    start: float,
    duration: float,
    *,
    pid: int = 1,
    tid: int = 1,
    category: str = "kernel",
    **ids: Any,
) -> dict[str, Any]:
    """A complete event; `ids` are its arguments."""
    times = {"ts": start, "dur": duration}
    return {"ph": "X", "name": name, "cat": category, "pid": pid, "tid": tid, **times, "args": ids}


def dispatch(
    submit: tuple[float, float],
    wait: tuple[float, float],
    *,
    program: str = "decode",
    pid: int = 1,
    **ids: Any,
) -> list[dict[str, Any]]:
    """The `worker_submit` and `worker_wait` of one dispatch, each from its start to its end."""
    return [
        event(f"{program}.worker_{part}", start, end - start, pid=pid, tid=tid, **ids)
        for part, tid, (start, end) in (("submit", SUBMIT_THREAD, submit), ("wait", WAIT_THREAD, wait))
    ]


def write_trace(path: Path, events: Iterable[dict[str, Any]]) -> Path:
    """Write a trace with an event a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in events)
    path.write_text('{"traceEvents":[\n' + lines + "\n]}", encoding="utf-8")
    return path
