"""STRACE logs of the runtime (docs/formats.md, Runtime records): records anywhere in any text, torn or glued.

A log is read in pieces of whole lines and kept as columns: its length does not matter.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from analyzers.errors import UnusableInputError
from analyzers.readers.durations import DurationCheck
from analyzers.readers.files import LONGEST_LINE, Lines, OpenedFile, open_file, whole_lines
from analyzers.readers.json_objects import LineNumbers
from analyzers.readers.load_report import IssueCounter, IssueKind, LoadReport
from analyzers.readers.log_processes import ClockAnchor, LogProcesses, ProcessFinder
from analyzers.readers.repeats import first_of_each
from analyzers.readers.statements import StatementFinder, Statements
from analyzers.readers.utf8 import damaged_lines
from analyzers.readers.wrapped_log import unwrapped
from analyzers.table.arguments import ArgumentFile, ArgumentList
from analyzers.table.families import family
from analyzers.table.spans import ABSENT, Clock, Lane, Source, SpanTable, SpanTableBuilder, as_id

MARKERS = (b"[STRACE]", b"[CLOCK_ANCHOR]", b"[chip_process pid=", b"[HOSTLOG_DROPS]", b"[mono_ns=")
"""What tells a log of the runtime from any other text."""

_ANSI = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]")
_HEAD = re.compile(rb"\[STRACE\][ \t]+v=(?P<version>\d+)(?:[ \t]+pid=(?P<pid>\d{1,18})[ \t])?")
# Brackets inside values are percent-encoded, so a record runs up to the next "[" or the line end.
_RECORD = re.compile(
    rb"\[STRACE\][ \t]+v=1[ \t]+pid=(\d{1,20})[ \t]+tid=(\d{1,20})[ \t]+inv=(\d{1,20})"
    rb"[ \t]+hid=([0-9a-fA-F]{1,16})[ \t]+depth=(\d{1,20})[ \t]+name=([^\s\[\]]+)"
    rb"[ \t]+ts=(-?\d{1,20})[ \t]+dur=(-?\d{1,20})(?=[\s\[]|$)([^\[\r\n]*)"
)
_ATTRIBUTE = re.compile(rb"[A-Za-z_][\w.]*=\S*")
_DROPS = re.compile(rb"\[HOSTLOG_DROPS\](?P<text>[^\r\n]*)")
_DROP_COUNT = re.compile(
    rb"(?:drop\w*|count|lost)\s*[=:]\s*(\d+)|(\d+)\s+(?:record|line|message|drop)", re.IGNORECASE
)

_LONGEST_INTEGER = 20
"""Digits of 2**64 - 1; a longer run of digits is no number of this format."""

_SAFE_DIGITS = 18
"""Numbers of so many digits are below `_LARGEST`, whatever they are."""

_LARGEST = 2**62
"""The sum and difference of two numbers up to this still fit int64; as a time it is 146 years."""

OLD_ROOT = "simpler_run"
ROOT = "chip.run"
INVOCATION_FAMILIES = frozenset({"chip", "core", "unknown"})
"""Families whose spans belong to an invocation; the inv field of node and ext spans means something else."""

_ID_ATTRIBUTES = {
    "step_id": "step_id",
    "slot": "slot_id",
    "dispatch_id": "dispatch_id",
    "generation": "generation",
    "run_id": "run_id",
    "run_epoch": "run_epoch",
    "worker_id": "worker_id",
}
"""Column of ids -> the attribute that fills it."""


@dataclass(frozen=True)
class StraceLog:
    """One STRACE log. Ranks are not yet assigned: `analyzers.recording.rank_naming` does that."""

    spans: SpanTable
    invalid: SpanTable
    """Spans with a negative duration: kept for the lifecycle check, in no statistic."""
    processes: LogProcesses
    """Clock anchors and devices of the processes that wrote the log."""
    report: LoadReport
    torn_pids: tuple[int, ...]
    """Pids of records that could not be read, as far as they name one."""
    statements: Statements
    """The server's own words about its requests."""

    @property
    def anchors(self) -> dict[int, ClockAnchor]:
        """pid -> the last anchor of the last process that had it."""
        return {anchor.pid: anchor for anchor in self.processes.anchors}

    @property
    def ready_devices(self) -> dict[int, int]:
        """pid -> logical device, from the ready lines; of the last process that had the pid."""
        return {ready.pid: ready.logical_device for ready in self.processes.ready}


def read_strace(data: bytes, path: str, *, issues: IssueCounter | None = None) -> StraceLog:
    """Read one log that is in memory. Loss is record heads minus parsed records.

    Never fails: bytes that are no record are skipped.
    """
    reader = _Reader(path, issues if issues is not None else IssueCounter(), ArgumentList())
    return reader.read([data])


def stream_strace(path: Path, *, is_log: bool = False) -> StraceLog:
    """Read one log in pieces; the attributes of a plain file's records stay in it until somebody asks for them.

    `is_log` tells that the file is known to be a log, though nothing in it may say so.

    Raises:
        UnusableInputError: the file cannot be read, or holds nothing of the runtime.
    """
    return read(open_file(path), is_log=is_log)


def looks_like(opened: OpenedFile) -> bool:
    """Whether a file may be a log: any text is one until it was read, and of JSON what holds or is named a log."""
    content = opened.first_megabyte().removeprefix(b"\xef\xbb\xbf").lstrip()
    return (
        not content.startswith(b"{")
        or any(marker in content for marker in MARKERS)
        or opened.name.endswith(".log")
    )


def read(opened: OpenedFile, *, is_log: bool = False) -> StraceLog:
    """Read one log in pieces; see `stream_strace`."""
    head = opened.first_megabyte()
    pieces = opened.pieces()
    inside = unwrapped(pieces, head, opened.name, MARKERS)
    in_file = opened.is_plain and inside is None
    arguments = ArgumentFile(Path(opened.name), _attributes_in_file) if in_file else ArgumentList()
    reader = _Reader(opened.name, opened.issues, arguments)
    log = reader.read(pieces if inside is None else inside)
    if not reader.has_markers and not is_log and Path(opened.name).suffix != ".log":
        raise UnusableInputError(
            f"{opened.name}: not a trace: neither Chrome trace JSON, request records nor a log with [STRACE] records"
        )
    return log


class _Places:
    """Where positions in a text without its ANSI codes lie in the file."""

    def __init__(self, offset: int, codes: Sequence[re.Match[bytes]] = ()) -> None:
        self._offset = offset
        self._removed = [0, *itertools.accumulate(len(code[0]) for code in codes)]
        self._at = [code.start() - removed for code, removed in zip(codes, self._removed[:-1], strict=True)]

    def offset(self, position: int) -> int:
        """The offset in the file of one position; of one behind a code, the byte after that code."""
        return self._offset + position + self._removed[bisect.bisect_right(self._at, position)]


class _Reader:
    """Turns lines into columns of rows. Names, hashes and threads repeat without end: each is decoded once."""

    def __init__(self, path: str, issues: IssueCounter, arguments: ArgumentList | ArgumentFile) -> None:
        self.has_markers = False
        self._path = path
        self._issues = issues
        self._arguments = arguments
        self._spans = SpanTableBuilder(Source.STRACE)
        self._invalid = SpanTableBuilder(Source.STRACE, self._spans.ids)
        self._names: dict[bytes, tuple[str, str, IssueKind | None]] = {}
        self._hids: dict[bytes, str] = {}
        self._lanes: dict[tuple[int, int], Lane] = {}
        self._processes = ProcessFinder()
        self._statements = StatementFinder(path, issues)
        self._durations = DurationCheck()
        self._heads = 0
        self._torn_pids: list[int] = []

    def read(self, pieces: Iterable[bytes]) -> StraceLog:
        """Everything in `pieces`."""
        for lines in whole_lines(pieces):
            self._add(lines)
        spans, invalid = self._spans.build(), self._invalid.build()
        plausible = self._durations.plausible(spans, np.ones(len(spans), dtype=np.bool_), self._issues)
        first = first_of_each(spans)
        repeats = 0 if first is None else int((~first).sum())
        parsed = len(spans) + len(invalid) - repeats
        if first is not None:
            again = int(np.argmin(first))
            self._issues.add(
                "record_repeated",
                f"{spans.name_of(again)} of pid {spans.lane_of(again).pid} at {int(spans.start_ns[again])} ns",
                count=repeats,
            )
        kept = plausible if first is None else plausible & first
        if not kept.all():
            self._processes.without_rows(kept)
            spans = spans.select(kept)
        spans, invalid, processes = self._processes.tell_apart(spans, invalid)
        return StraceLog(
            spans=spans,
            invalid=invalid,
            processes=processes,
            report=LoadReport(
                path=self._path,
                format="strace_log",
                records=self._heads - repeats,
                parsed=parsed,
                issues=self._issues.issues(),
                read_as="streamed",
            ),
            torn_pids=tuple(self._torn_pids),
            statements=self._statements.statements(),
        )

    def _add(self, lines: Lines) -> None:
        text = lines.content
        if damaged := damaged_lines(text, lines.line):
            self._issues.add("invalid_utf8", f"line {damaged[0]}", count=len(damaged))
        self.has_markers = self.has_markers or any(marker in text for marker in MARKERS)
        places = _Places(lines.offset)
        if b"\x1b" in text:
            places = _Places(lines.offset, list(_ANSI.finditer(text)))
            text = _ANSI.sub(b"", text)
        numbers = LineNumbers(text, first_line=lines.line)
        matches = list(_RECORD.finditer(text))
        self._processes.add(text, matches, len(self._spans), len(self._invalid))
        if matches:
            self._add_records(matches, places, numbers)
        self._count_heads(text, {match.start() for match in matches}, numbers)
        for found in _DROPS.finditer(text):
            self._count_drops(found, numbers)
        self._statements.add(text, numbers)

    def _count_heads(self, text: bytes, readable: set[int], numbers: LineNumbers) -> None:
        for head in _HEAD.finditer(text):
            self._heads += 1
            if head.start() in readable:
                continue
            kind: IssueKind = "torn_record" if head["version"] == b"1" else "unsupported_version"
            self._issues.add(kind, numbers.at(head.start()), lost=1)
            if kind == "torn_record" and head["pid"]:
                self._torn_pids.append(int(head["pid"]))

    def _count_drops(self, found: re.Match[bytes], numbers: LineNumbers) -> None:
        count = _DROP_COUNT.search(found["text"])
        digits = (count[1] or count[2]) if count else b"1"
        # A drop line without a readable number still proves that at least one record is missing.
        dropped = int(digits) if len(digits) <= _LONGEST_INTEGER else 1
        self._issues.add("logger_drops", numbers.at(found.start()), count=dropped, lost=dropped)

    def _add_records(self, matches: Sequence[re.Match[bytes]], places: _Places, numbers: LineNumbers) -> None:
        fields = list(zip(*(match.groups() for match in matches), strict=True))
        pid, tid, inv, depth, ts, dur = (
            [int(text) for text in fields[index]] for index in (0, 1, 2, 4, 6, 7)
        )
        if max(max(map(len, fields[index])) for index in (0, 1, 2, 4, 6, 7)) > _SAFE_DIGITS:
            fits = [
                max(process, thread, level, abs(start), abs(duration)) <= _LARGEST and invocation < 2**64
                for process, thread, invocation, level, start, duration in zip(
                    pid, tid, inv, depth, ts, dur, strict=True
                )
            ]
            if not all(fits):
                for match, fit in zip(matches, fits, strict=True):
                    if not fit:
                        self._issues.add("out_of_range", numbers.at(match.start()), lost=1)
                kept = [match for match, fit in zip(matches, fits, strict=True) if fit]
                if kept:
                    self._add_records(kept, places, numbers)
                return
        starts = [match.start() for match in matches]
        names = self._known_names(fields[5], starts, numbers)
        attributes = self._attributes(fields[8], starts, places, numbers)
        columns: dict[str, npt.NDArray[Any]] = {
            "start_ns": np.array(ts, dtype=np.int64),
            "duration_ns": np.array(dur, dtype=np.int64),
            "depth": np.array(depth, dtype=np.int64),
            "invocation": np.array(
                [
                    as_id(number) if name[1] in INVOCATION_FAMILIES else ABSENT
                    for number, name in zip(inv, names, strict=True)
                ],
                dtype=np.int64,
            ),
            **attributes,
        }
        labels: dict[str, list[Any]] = {
            "name": [name[0] for name in names],
            "category": [name[1] for name in names],
            "hid": [self._hid(text) for text in fields[3]],
            "lane": [self._lane(*thread) for thread in zip(pid, tid, strict=True)],
        }
        negative = columns["duration_ns"] < 0
        self._watch_durations(columns, starts, numbers)
        if not negative.any():
            self._extend(self._spans, labels, columns)
            return
        for row in np.flatnonzero(negative).tolist():
            self._issues.add("invalid_dur", numbers.at(starts[row]), lost=1)
        for builder, rows in ((self._spans, ~negative), (self._invalid, negative)):
            chosen = np.flatnonzero(rows).tolist()
            self._extend(
                builder,
                {column: [values[row] for row in chosen] for column, values in labels.items()},
                {column: values[rows] for column, values in columns.items()},
            )

    def _watch_durations(
        self, columns: dict[str, npt.NDArray[Any]], starts: Sequence[int], numbers: LineNumbers
    ) -> None:
        sound = columns["duration_ns"] >= 0
        rows = np.cumsum(sound) - 1 + len(self._spans)
        chosen = np.flatnonzero(sound & (columns["clock"] == Clock.HOST))
        self._durations.watch(
            rows[chosen],
            columns["start_ns"][chosen],
            columns["duration_ns"][chosen],
            lambda index: numbers.at(starts[int(chosen[index])]),
        )

    def _extend(
        self,
        builder: SpanTableBuilder,
        labels: dict[str, list[Any]],
        columns: dict[str, npt.NDArray[Any]],
    ) -> None:
        builder.extend(
            len(labels["name"]),
            kind=0,
            argument_source=builder.codes("argument_source", [self._arguments])[0],
            **{column: builder.codes(column, values) for column, values in labels.items()},
            **columns,
        )

    def _known_names(
        self, raw_names: Sequence[bytes], starts: Sequence[int], numbers: LineNumbers
    ) -> list[tuple[str, str, IssueKind | None]]:
        names = self._names
        new = set(raw_names).difference(names)
        names.update((raw, _decode_name(raw)) for raw in new)
        known = [names[raw] for raw in raw_names]
        for (_, _, issue), start in zip(known, starts, strict=True):
            if issue is not None:
                self._issues.add(issue, numbers.at(start))
        return known

    def _attributes(
        self, texts: Sequence[bytes], starts: Sequence[int], places: _Places, numbers: LineNumbers
    ) -> dict[str, npt.NDArray[Any]]:
        """The columns that attributes fill: ids, the clock, and where the attributes lie."""
        count = len(texts)
        columns: dict[str, npt.NDArray[Any]] = {
            column: np.broadcast_to(np.int64(ABSENT), count) for column in _ID_ATTRIBUTES
        }
        columns["clock"] = np.full(count, Clock.HOST, dtype=np.int8)
        columns["arguments"] = np.full(count, ABSENT, dtype=np.int64)
        columns["failed"] = np.broadcast_to(np.int8(0), count)
        for row, text in enumerate(texts):
            if not text or text.isspace():
                continue
            attributes, complete = _attributes(text)
            if not complete:
                self._issues.add("attributes_cut", numbers.at(starts[row]))
            if not attributes:
                continue
            if attributes.get("clk") == "dev":
                columns["clock"][row] = Clock.DEVICE
            for column, attribute in _ID_ATTRIBUTES.items():
                if attribute in attributes:
                    _written(columns, column)[row] = self._id(column, attributes[attribute])
            if attributes.get("outcome"):
                _written(columns, "failed")[row] = _outcome(attributes["outcome"])
            keep = self._arguments
            columns["arguments"][row] = (
                keep.add(attributes) if isinstance(keep, ArgumentList) else places.offset(starts[row])
            )
        return columns

    def _id(self, column: str, text: str) -> int:
        """An id that an attribute gives: digits are a number, and other words an id where it counts nothing."""
        number = as_id(text)
        if number != ABSENT or column == "worker_id" or text in ("", "-1"):
            return number
        code = self._spans.ids.code(text)
        return ABSENT if code is None else code

    def _hid(self, text: bytes) -> str:
        known = self._hids.get(text)
        if known is None:
            known = self._hids[text] = text.decode().lower().lstrip("0")
        return known

    def _lane(self, process: int, thread: int) -> Lane:
        known = self._lanes.get((process, thread))
        if known is None:
            known = self._lanes[process, thread] = Lane(self._path, process, thread)
        return known


def _decode_name(raw: bytes) -> tuple[str, str, IssueKind | None]:
    """The name, its family, and what is peculiar about it."""
    name = unquote(raw.decode(errors="replace"))
    issue: IssueKind | None = "truncated_names" if name.endswith("~") else None
    if name == OLD_ROOT or name.startswith(OLD_ROOT + "."):
        name, issue = ROOT + name.removeprefix(OLD_ROOT), "old_root_name"
    return name, family(name), issue


def _attributes(text: bytes) -> tuple[dict[str, Any], bool]:
    """The k=v words of `text`, and whether every word was one."""
    attributes: dict[str, Any] = {}
    for word in text.split():
        if not _ATTRIBUTE.fullmatch(word):
            return attributes, False
        key, _, value = word.decode(errors="replace").partition("=")
        decoded = unquote(value) if "%" in value else value
        number = decoded.removeprefix("-")
        is_integer = number.isascii() and number.isdecimal() and len(number) <= _LONGEST_INTEGER
        attributes[key] = int(decoded) if is_integer else decoded
    return attributes, True


def _written(columns: dict[str, npt.NDArray[Any]], column: str) -> npt.NDArray[Any]:
    """A column that can be written to: until then it is one value for all rows."""
    if not columns[column].flags.writeable:
        columns[column] = columns[column].copy()
    return columns[column]


def _outcome(value: object) -> int:
    """The outcome of node.complete as `SpanTable.failed` has it; one that is not known has failed, too."""
    return value if isinstance(value, int) and 0 < value < 128 else 1


def _attributes_in_file(file: BinaryIO) -> dict[str, Any]:
    """The attributes of the record that starts where `file` stands."""
    match = _RECORD.match(_ANSI.sub(b"", file.readline(LONGEST_LINE)))
    return _attributes(match[9])[0] if match else {}


def roots(spans: SpanTable) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Rows of the `chip.run` roots: one a rank's run."""
    return np.flatnonzero(spans.named(ROOT) & (spans.clock == Clock.HOST))
