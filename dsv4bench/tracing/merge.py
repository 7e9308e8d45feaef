"""Merging the fragments of a traced run into one Chrome trace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from dsv4bench.errors import UsageError
from dsv4bench.tracing.settings import fragments_directory, merged_trace


@dataclass(frozen=True)
class MergeResult:
    """What a merge wrote: the trace, its number of events, and the lines that were no JSON object."""

    path: Path
    events: int
    bad_lines: int


def merge_fragments(output: Path) -> MergeResult:
    """Concatenate the fragments of `output` into its Chrome trace, one event a line, in file order.

    Bad lines (cut short by a killed process, say) are left out and counted. The trace appears at once,
    through a rename. Raises UsageError when `output` has no fragments directory.
    """
    directory = fragments_directory(output)
    if not directory.is_dir():
        raise UsageError(f"no trace fragments in {directory}; was the run traced with this output?")
    path = merged_trace(output)
    partial = path.with_name(path.name + ".partial")
    events = bad_lines = 0
    with partial.open("wb") as merged:
        merged.write(b'{"traceEvents":[')
        for fragment in sorted(directory.glob("trace.*.jsonl")):
            with fragment.open("rb") as lines:
                for line in lines:
                    text = line.strip()
                    if not text:
                        continue
                    if not _is_object(text):
                        bad_lines += 1
                        continue
                    merged.write(b",\n" if events else b"\n")
                    merged.write(text)
                    events += 1
        merged.write(b"\n]}\n")
    partial.replace(path)
    return MergeResult(path, events, bad_lines)


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
