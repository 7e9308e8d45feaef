"""What a reader says about its input: what was read, repaired and lost, and where."""

from __future__ import annotations

from typing import Literal

import msgspec

InputFormat = Literal[
    "chrome_trace",
    "strace_log",
    "requests",
    "manifest",
    "resources",
    "mtp_accuracy",
    "observations",
    "statements",
]

ReadAs = Literal["streamed", "whole", "repaired"]
"""How a file was read: in pieces, all of it at once, or in pieces with its damage skipped."""

IssueKind = Literal[
    "unterminated",
    "gzip_truncated",
    "gzip_damaged",
    "transcoded",
    "trailing_data",
    "damaged_document",
    "commas_ignored",
    "commas_missing",
    "torn_tail",
    "malformed",
    "bad_line",
    "glued_lines",
    "invalid_utf8",
    "invalid_escape",
    "bad_ts",
    "bad_dur",
    "unfinished",
    "invalid_dur",
    "implausible_dur",
    "zero_ts",
    "missing_pid",
    "unmatched_begin",
    "unmatched_end",
    "shared_id",
    "unknown_phase",
    "torn_record",
    "record_repeated",
    "unsupported_version",
    "out_of_range",
    "attributes_cut",
    "truncated_names",
    "old_root_name",
    "logger_drops",
    "bad_request",
    "torn_statement",
    "bad_statement",
    "request_repeated",
    "request_id_twice",
]

REPAIRS: frozenset[IssueKind] = frozenset(
    {
        "unterminated",
        "gzip_truncated",
        "gzip_damaged",
        "trailing_data",
        "damaged_document",
        "commas_ignored",
        "commas_missing",
        "torn_tail",
        "malformed",
        "bad_line",
        "glued_lines",
        "invalid_utf8",
        "invalid_escape",
    }
)
"""What damages the text of a trace."""

ISSUE_TEXT: dict[IssueKind, str] = {
    "unterminated": "the file ends before its closing bracket",
    "gzip_truncated": "the compressed stream ends before its end marker",
    "gzip_damaged": "the compressed data is damaged; what follows the damage is lost",
    "transcoded": "text of another encoding, read as UTF-8",
    "trailing_data": "data after the end of the content",
    "damaged_document": "what stands around the events is no JSON",
    "commas_ignored": "stray commas were ignored",
    "commas_missing": "commas missing between events were supplied",
    "torn_tail": "an event cut off by the end of the file",
    "malformed": "events that are no JSON objects of a known shape",
    "bad_line": "lines that are no JSON",
    "glued_lines": "lines that hold more than one object",
    "invalid_utf8": "events or lines whose bytes are not UTF-8",
    "invalid_escape": "backslashes that begin no JSON escape, kept as they are",
    "bad_ts": "events whose ts is no number",
    "bad_dur": "events whose dur is no number",
    "unfinished": "spans without an end (dur -1)",
    "invalid_dur": "spans with a negative duration",
    "implausible_dur": "spans that end impossibly late: more than 1000 times the window of all starts behind the last start",
    "zero_ts": "events at time 0 although the others start more than a day later",
    "missing_pid": "events without pid or tid",
    "unmatched_begin": "begin events without an end",
    "unmatched_end": "end events without a begin",
    "shared_id": "asynchronous ids that several processes use, each for spans of its own",
    "unknown_phase": "events of other phases (counters, flows, ...)",
    "torn_record": "records torn by another writer",
    "record_repeated": "records that are there again, byte for byte: each counts once",
    "unsupported_version": "records of an unknown version",
    "out_of_range": "records with a number beyond 64 bits",
    "attributes_cut": "records whose attributes are incomplete",
    "truncated_names": "names the runtime cut to its limit (they end in ~)",
    "old_root_name": "roots named simpler_run by an older runtime, read as chip.run",
    "logger_drops": "records the runtime's logger says it dropped",
    "bad_request": "request records that cannot be used",
    "torn_statement": "lines of the server's own words that are cut",
    "bad_statement": "stated figures that cannot be what they say",
    "request_repeated": "request records that were there before: each counts once",
    "request_id_twice": "request records of one id that differ: none of them is used",
}


class LoadIssue(msgspec.Struct, frozen=True):
    """One kind of peculiarity: how often, how many records it cost, and where it was met first."""

    kind: IssueKind
    count: int
    lost: int
    where: str

    @property
    def text(self) -> str:
        """The kind in words."""
        return ISSUE_TEXT[self.kind]


class LoadReport(msgspec.Struct, frozen=True):
    """What one file gave. `records` were found, `parsed` of them could be read."""

    path: str
    format: InputFormat
    records: int
    parsed: int
    issues: list[LoadIssue]
    read_as: ReadAs = "whole"

    @property
    def lost(self) -> int:
        """Records this file held that no figure contains."""
        return sum(issue.lost for issue in self.issues)

    def count(self, kind: IssueKind) -> int:
        """How often `kind` was met."""
        return sum(issue.count for issue in self.issues if issue.kind == kind)


class IssueCounter:
    """Counts issues while a reader works; keeps where each kind was met first."""

    def __init__(self) -> None:
        self._counts: dict[IssueKind, int] = {}
        self._lost: dict[IssueKind, int] = {}
        self._where: dict[IssueKind, str] = {}

    def add(self, kind: IssueKind, where: str = "", *, count: int = 1, lost: int = 0) -> None:
        """Count one more of `kind`; `lost` is the number of records it costs."""
        if count == 0:
            return
        self._counts[kind] = self._counts.get(kind, 0) + count
        self._lost[kind] = self._lost.get(kind, 0) + lost
        self._where.setdefault(kind, where)

    @property
    def repaired(self) -> bool:
        """Whether the text itself was damaged, rather than what it says."""
        return not REPAIRS.isdisjoint(self._counts)

    def lost(self, *kinds: IssueKind) -> int:
        """Records that issues of these kinds have cost so far."""
        return sum(self._lost.get(kind, 0) for kind in kinds)

    def issues(self) -> list[LoadIssue]:
        """Everything counted so far, in the order it was first met."""
        return [
            LoadIssue(kind=kind, count=count, lost=self._lost[kind], where=self._where[kind])
            for kind, count in self._counts.items()
        ]
