"""STRACE logs of the runtime (formats.md, section 1): records anywhere in any text, torn or glued."""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import numpy as np

from analyzers.readers.load import IssueCounter, IssueKind, LoadReport
from analyzers.spans import ABSENT, Clock, Ids, Lane, Source, SpanTable, SpanTableBuilder, as_id

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_HEAD = re.compile(r"\[STRACE\][ \t]+v=(?P<version>\d+)(?:[ \t]+pid=(?P<pid>\d{1,18})[ \t])?", re.ASCII)
# Brackets inside values are percent-encoded, so a record runs up to the next "[" or the line end.
_RECORD = re.compile(
    r"\[STRACE\][ \t]+v=1[ \t]+pid=(\d{1,20})[ \t]+tid=(\d{1,20})[ \t]+inv=(\d{1,20})"
    r"[ \t]+hid=([0-9a-fA-F]{1,16})[ \t]+depth=(\d{1,20})[ \t]+name=([^\s\[\]]+)"
    r"[ \t]+ts=(-?\d{1,20})[ \t]+dur=(-?\d{1,20})(?=[\s\[]|$)([^\[\r\n]*)",
    re.ASCII,
)
_ATTRIBUTE = re.compile(r"[A-Za-z_][\w.]*=\S*", re.ASCII)
_ANCHOR = re.compile(
    r"\[CLOCK_ANCHOR\][ \t]+v=1[ \t]+pid=(\d+)[ \t]+mono_ns=(\d+)[ \t]+wall_ns=(\d+)", re.ASCII
)
_READY = re.compile(r"\[chip_process pid=(\d+) dev=(\d+)\] ready", re.ASCII)
_DROPS = re.compile(r"\[HOSTLOG_DROPS\](?P<text>[^\r\n]*)")
_DROP_COUNT = re.compile(
    r"(?:drop\w*|count|lost)\s*[=:]\s*(\d+)|(\d+)\s+(?:record|line|message|drop)", re.IGNORECASE
)

_LONGEST_INTEGER = 20
"""Digits of 2**64 - 1; a longer run of digits is no number of this format."""

_LARGEST = 2**62
"""The sum and difference of two numbers up to this still fit int64; as a time it is 146 years."""

OLD_ROOT = "simpler_run"
ROOT = "chip.run"
INVOCATION_FAMILIES = frozenset({"chip", "core", "unknown"})
"""Families whose spans belong to an invocation; the inv field of node and ext spans means something else."""


@dataclass(frozen=True)
class ClockAnchor:
    """One process's mapping from CLOCK_MONOTONIC to wall time: wall = wall_ns + (t - mono_ns)."""

    pid: int
    mono_ns: int
    wall_ns: int


@dataclass(frozen=True)
class StraceLog:
    """One STRACE log. Ranks are not yet assigned: `analyzers.readers.ranks` does that."""

    spans: SpanTable
    invalid: SpanTable
    """Spans with a negative duration: kept for the lifecycle check, in no statistic."""
    anchors: dict[int, ClockAnchor]
    ready_devices: dict[int, int]
    """pid -> device number, from the ready lines."""
    report: LoadReport
    torn_pids: tuple[int, ...]
    """Pids of records that could not be read, as far as they name one."""


def family(name: str) -> str:
    """The producer of a span by the first word of its name: chip, node, core, ext or unknown."""
    word = name.split(".", 1)[0]
    if word in ("chip", "core", "ext", "node"):
        return word
    return "node" if word in ("network1", "network2", "network3") else "unknown"


def read_strace(data: bytes, path: str, *, issues: IssueCounter | None = None) -> StraceLog:
    """Read one log. Loss is record heads minus parsed records; the report says where each was met first.

    Never fails: bytes that are no record are skipped.
    """
    issues = issues if issues is not None else IssueCounter()
    text = _decode(data, issues)
    lines = _LineNumbers(text)
    rows = _Rows(path, issues, lines)
    readable: set[int] = set()
    for match in _RECORD.finditer(text):
        readable.add(match.start())
        rows.add(match)
    parsed = len(rows.spans) + len(rows.invalid)
    heads = 0
    torn_pids = []
    for head in _HEAD.finditer(text):
        heads += 1
        if head.start() not in readable:
            kind: IssueKind = "torn_record" if head["version"] == "1" else "unsupported_version"
            issues.add(kind, f"line {lines.at(head.start())}", lost=1)
            if kind == "torn_record" and head["pid"]:
                torn_pids.append(int(head["pid"]))
    _count_drops(text, issues, lines)
    return StraceLog(
        spans=rows.spans.build(),
        invalid=rows.invalid.build(),
        anchors=_anchors(text),
        ready_devices={
            int(pid): int(device) for pid, device in _READY.findall(text) if len(pid) + len(device) < 19
        },
        report=LoadReport(
            path=path, format="strace_log", records=heads, parsed=parsed, issues=issues.issues()
        ),
        torn_pids=tuple(torn_pids),
    )


def _decode(data: bytes, issues: IssueCounter) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode(errors="replace")
        bad_lines = [number for number, line in enumerate(text.split("\n"), 1) if "\ufffd" in line]
        issues.add("invalid_utf8", f"line {bad_lines[0]}", count=len(bad_lines))
    return _ANSI.sub("", text)


class _Rows:
    """Turns matched records into rows. Names repeat without end, so each is decoded once."""

    def __init__(self, path: str, issues: IssueCounter, lines: _LineNumbers) -> None:
        self.spans = SpanTableBuilder(Source.STRACE)
        self.invalid = SpanTableBuilder(Source.STRACE)
        self._path = path
        self._issues = issues
        self._lines = lines
        self._names: dict[str, tuple[str, str, IssueKind | None]] = {}

    def add(self, match: re.Match[str]) -> None:
        pid, tid, inv, hid, depth, raw_name, ts, dur, raw_attributes = match.groups()
        start, duration, invocation = int(ts), int(dur), int(inv)
        process, thread, level = int(pid), int(tid), int(depth)
        if max(abs(start), abs(duration), process, thread, level) > _LARGEST or invocation >= 2**64:
            self._note("out_of_range", match, lost=1)
            return
        known = self._names.get(raw_name)
        if known is None:
            known = self._names[raw_name] = _decode_name(raw_name)
        name, category, issue = known
        if issue is not None:
            self._note(issue, match)
        attributes: dict[str, Any] = {}
        if raw_attributes and not raw_attributes.isspace():
            attributes, complete = _attributes(raw_attributes)
            if not complete:
                self._note("attributes_cut", match)
        if duration < 0:
            self._note("invalid_dur", match, lost=1)
        builder = self.spans if duration >= 0 else self.invalid
        builder.append(
            name,
            start,
            duration,
            Lane(self._path, process, thread),
            clock=Clock.DEVICE if attributes.get("clk") == "dev" else Clock.HOST,
            category=category,
            hid=hid.lower().lstrip("0"),
            arguments=attributes,
            **_ids(attributes, invocation if category in INVOCATION_FAMILIES else ABSENT, level),
        )

    def _note(self, kind: IssueKind, match: re.Match[str], lost: int = 0) -> None:
        self._issues.add(kind, f"line {self._lines.at(match.start())}", lost=lost)


def _decode_name(raw: str) -> tuple[str, str, IssueKind | None]:
    """The name, its family, and what is peculiar about it."""
    name = unquote(raw)
    issue: IssueKind | None = "truncated_names" if name.endswith("~") else None
    if name == OLD_ROOT or name.startswith(OLD_ROOT + "."):
        name, issue = ROOT + name.removeprefix(OLD_ROOT), "old_root_name"
    return name, family(name), issue


def _ids(attributes: dict[str, Any], invocation: int, depth: int) -> Ids:
    if not attributes:
        return {"invocation": as_id(invocation), "depth": depth}
    return {
        "invocation": as_id(invocation),
        "depth": depth,
        "step_id": as_id(attributes.get("step_id")),
        "slot": as_id(attributes.get("slot_id")),
        "dispatch_id": as_id(attributes.get("dispatch_id")),
        "generation": as_id(attributes.get("generation")),
        "run_id": as_id(attributes.get("run_id")),
        "run_epoch": as_id(attributes.get("run_epoch")),
        "worker_id": as_id(attributes.get("worker_id")),
    }


def _attributes(text: str) -> tuple[dict[str, Any], bool]:
    """The k=v words of `text`, and whether every word was one."""
    attributes: dict[str, Any] = {}
    for word in text.split():
        if not _ATTRIBUTE.fullmatch(word):
            return attributes, False
        key, _, value = word.partition("=")
        decoded = unquote(value)
        number = decoded.removeprefix("-")
        is_integer = number.isascii() and number.isdecimal() and len(number) <= _LONGEST_INTEGER
        attributes[key] = int(decoded) if is_integer else decoded
    return attributes, True


def _anchors(text: str) -> dict[int, ClockAnchor]:
    """The last anchor of each process: a process that logs several has re-anchored."""
    return {
        int(pid): ClockAnchor(int(pid), int(mono), int(wall))
        for pid, mono, wall in _ANCHOR.findall(text)
        if max(len(pid), len(mono), len(wall)) <= _LONGEST_INTEGER
    }


def _count_drops(text: str, issues: IssueCounter, lines: _LineNumbers) -> None:
    for match in _DROPS.finditer(text):
        found = _DROP_COUNT.search(match["text"])
        digits = (found[1] or found[2]) if found else "1"
        # A drop line without a readable number still proves that at least one record is missing.
        dropped = int(digits) if len(digits) <= _LONGEST_INTEGER else 1
        issues.add("logger_drops", f"line {lines.at(match.start())}", count=dropped, lost=dropped)


class _LineNumbers:
    """Line numbers of offsets; the line index is built when the first one is asked for."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts: list[int] | None = None

    def at(self, offset: int) -> int:
        if self._starts is None:
            self._starts = [match.end() for match in re.finditer("\n", self._text)]
        return bisect.bisect_right(self._starts, offset) + 1


def roots(spans: SpanTable) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Rows of the `chip.run` roots: one a rank's run."""
    return np.flatnonzero(spans.named(ROOT) & (spans.clock == Clock.HOST))
