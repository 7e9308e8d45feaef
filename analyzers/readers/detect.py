"""What a file is, by its content."""

from __future__ import annotations

import re

from analyzers.errors import UnusableInputError
from analyzers.readers.json_objects import value_at
from analyzers.readers.load import InputFormat
from analyzers.readers.requests import is_request

_STRACE_MARKERS = (b"[STRACE]", b"[CLOCK_ANCHOR]", b"[chip_process pid=", b"[HOSTLOG_DROPS]", b"[mono_ns=")
_ARRAY = re.compile(rb"\[\s*([\{\],]|$)")
_MANIFEST_KEYS = frozenset({"schema_version", "device_map", "timing"})


def detect_format(data: bytes, path: str) -> InputFormat:
    """Tell what `data` is: an empty file is a trace without events.

    Raises:
        UnusableInputError: none of the known formats.
    """
    content = data.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not content or _ARRAY.match(content):
        return "chrome_trace"
    if content.startswith(b"{"):
        detected = _detect_object(content)
        if detected is not None:
            return detected
    if any(marker in content for marker in _STRACE_MARKERS):
        return "strace_log"
    if content.startswith(b"{"):
        raise UnusableInputError(
            f"{path}: not a trace: no traceEvents, no events one a line, no request records"
        )
    if path.endswith(".log"):
        return "strace_log"
    raise UnusableInputError(
        f"{path}: not a trace: neither Chrome trace JSON, request records nor a log with [STRACE] records"
    )


def _detect_object(content: bytes) -> InputFormat | None:
    head = content[:1_000_000].decode(errors="replace")
    # Most often the first line is the first object; a whole document may be one long object instead.
    found = value_at(head, 0)
    if found is None or not isinstance(found[0], dict):
        return "chrome_trace" if b'"traceEvents"' in content or b'"ph"' in content else None
    first = found[0]
    if first.keys() >= _MANIFEST_KEYS:
        return "manifest"
    if "traceEvents" in first or "ph" in first:
        return "chrome_trace"
    return "requests" if is_request(first) else None
