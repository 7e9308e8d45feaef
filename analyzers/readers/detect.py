"""What a file is, by its content."""

from __future__ import annotations

from typing import Any

from analyzers.errors import UnusableInputError
from analyzers.readers.json_objects import value_at
from analyzers.readers.load_report import InputFormat
from analyzers.readers.requests import is_request
from analyzers.readers.strace import MARKERS

_MANIFEST_KEYS = frozenset({"schema_version", "device_map", "timing"})
_LINES = 20
"""Lines of which one must be a whole record, so that a damaged first one hides nothing."""


def detect_format(head: bytes, path: str) -> InputFormat:
    """Tell by its first megabyte what a file that is no Chrome trace is; text is a log until it was read.

    Raises:
        UnusableInputError: none of the known formats.
    """
    content = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not content.startswith(b"{"):
        return "strace_log"
    text = content.decode(errors="replace")
    # Most often the first line is the first object; a whole document may be one long object instead.
    for start in (text, *text.split("\n", _LINES)[1:_LINES]):
        found = value_at(start, 0)
        detected = _format_of(found[0]) if found is not None and isinstance(found[0], dict) else None
        if detected is not None:
            return detected
    if any(marker in content for marker in MARKERS) or path.endswith(".log"):
        return "strace_log"
    raise UnusableInputError(f"{path}: not a trace: no traceEvents, no events one a line, no request records")


def _format_of(record: dict[str, Any]) -> InputFormat | None:
    if record.keys() >= _MANIFEST_KEYS:
        return "manifest"
    return "requests" if is_request(record) else None
