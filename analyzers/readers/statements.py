"""What a server says of its requests in words and small files: figures with a source (docs/formats.md, Stated figures).

Nothing here was measured by a client: `analyzers.clients.stated` tells which of it agrees, and names who said it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from analyzers.readers.json_objects import LineNumbers, value_at
from analyzers.readers.load_report import IssueCounter, LoadReport

StatedField = Literal["prompt_tokens", "output_tokens", "ttft_ns", "e2e_ns", "accepted", "proposed"]

_SECOND_NS = 1_000_000_000
_LARGEST = 2**62

BATCH_KEYS = frozenset(
    {
        "batch_elapsed_seconds",
        "total_output_tokens",
        "tokens_per_request",
        "throughput_tokens_per_second",
        "effective_tpot_ms",
    }
)
"""What tells the summary of a batch from other JSON objects."""


@dataclass(frozen=True)
class Fact:
    """One value that a source states of the request that it names."""

    request_id: str
    field: StatedField
    value: int


@dataclass(frozen=True)
class StatedBatch:
    """What a source states of several requests together; None is what it does not say."""

    requests: int | None = None
    prompt_tokens: tuple[int, ...] | None = None
    """Of each request."""
    output_tokens: tuple[int, ...] | None = None
    """Of each request."""
    total_output_tokens: int | None = None
    elapsed_ns: int | None = None
    throughput_per_s: float | None = None
    effective_tpot_ns: float | None = None


@dataclass(frozen=True)
class Statements:
    """Everything that one source states."""

    path: str
    facts: tuple[Fact, ...] = ()
    batches: tuple[StatedBatch, ...] = ()
    is_log: bool = False
    """Whether the server itself says it, by its own ids."""

    def __bool__(self) -> bool:
        """Whether it states anything."""
        return bool(self.facts or self.batches)


@dataclass(frozen=True)
class StatementFile:
    """A file that holds statements alone, and how it was read."""

    statements: Statements
    report: LoadReport


# A count ends with white space or punctuation: one at the end of a piece of text may have been cut.
_COUNT = rb"\b%s=(\d{1,12})(?=[\s,;)\"\\])"
_SECONDS = rb"\b%s=(\d{1,9}(?:\.\d{1,9})?)s(?!\w)"
# A line ends where a record begins that another process wrote into it.
_REQUEST = re.compile(rb"\brequest (\S+) finished:([^\r\n\[]*[\r\n]?)")
_ACCEPTANCE = re.compile(rb"\bMTP acceptance for (\S+):([^\r\n\[]*[\r\n]?)")
_SUMMARY = re.compile(rb"^\{[^\r\n]*\"batch_elapsed_seconds\"[^\r\n]*", re.MULTILINE)
_REQUEST_WORDS: Mapping[bytes, tuple[StatedField, re.Pattern[bytes]]] = {
    b"prompt": ("prompt_tokens", re.compile(_COUNT % b"prompt")),
    b"out": ("output_tokens", re.compile(_COUNT % b"out")),
    b"ttft": ("ttft_ns", re.compile(_SECONDS % b"ttft")),
    b"e2e": ("e2e_ns", re.compile(_SECONDS % b"e2e")),
}
_ACCEPTED, _PROPOSED = re.compile(_COUNT % b"accepted"), re.compile(_COUNT % b"proposed")
_RATE = re.compile(rb"\brate=(\d{1,5}(?:\.\d{1,9})?)%")


class StatementFinder:
    """Collects the server's own words out of a log, piece by piece."""

    def __init__(self, path: str, issues: IssueCounter) -> None:
        self._path = path
        self._issues = issues
        self._facts: dict[Fact, None] = {}
        self._batches: dict[StatedBatch, None] = {}

    def add(self, text: bytes, numbers: LineNumbers) -> None:
        """Take one piece of the log: whole lines, without the codes of a terminal."""
        if b"request " in text:
            for found in _REQUEST.finditer(text):
                self._add_request(found, numbers)
        if b"MTP acceptance for " in text:
            for found in _ACCEPTANCE.finditer(text):
                self._add_acceptance(found, numbers)
        if b'"batch_elapsed_seconds"' in text:
            for found in _SUMMARY.finditer(text):
                self._add_summary(found, numbers)

    def statements(self) -> Statements:
        """Everything that was found; what was said twice in the same words is there once."""
        return Statements(self._path, tuple(self._facts), tuple(self._batches), is_log=True)

    def _add_request(self, found: re.Match[bytes], numbers: LineNumbers) -> None:
        identity, rest = found[1].decode(errors="replace"), found[2]
        is_torn = not rest.strip()
        for word, (field, pattern) in _REQUEST_WORDS.items():
            value = pattern.search(rest)
            if value is not None:
                unit = _SECOND_NS if field.endswith("_ns") else 1
                self._facts[Fact(identity, field, int(Decimal(value[1].decode()) * unit))] = None
            else:
                is_torn = is_torn or re.search(rb"\b" + word + rb"=", rest) is not None
        if is_torn:
            self._issues.add("torn_statement", numbers.at(found.start()), lost=1)

    def _add_acceptance(self, found: re.Match[bytes], numbers: LineNumbers) -> None:
        """Take both counts or, where one is missing or they are not those of the rate, neither."""
        where = numbers.at(found.start())
        accepted, proposed, rate = (pattern.search(found[2]) for pattern in (_ACCEPTED, _PROPOSED, _RATE))
        if accepted is None or proposed is None:
            self._issues.add("torn_statement", where, lost=1)
            return
        counts = int(accepted[1]), int(proposed[1])
        if rate is not None and not _is_rate_of(*counts, rate[1]):
            self._issues.add("bad_statement", f"{where}: the rate is not that of the counts", lost=1)
            return
        identity = found[1].decode(errors="replace")
        self._facts[Fact(identity, "accepted", counts[0])] = None
        self._facts[Fact(identity, "proposed", counts[1])] = None

    def _add_summary(self, found: re.Match[bytes], numbers: LineNumbers) -> None:
        value = value_at(found[0].decode(errors="replace"), 0)
        if value is None or not isinstance(value[0], dict):
            self._issues.add("torn_statement", numbers.at(found.start()), lost=1)
        else:
            self._batches[batch_of_summary(value[0], self._issues)] = None


def _is_rate_of(accepted: int, proposed: int, percent: bytes) -> bool:
    """Whether a share in % is that of two counts, as far as its decimals tell."""
    last_digit = 10.0 ** -len(percent.partition(b".")[2])
    return proposed > 0 and abs(100 * accepted / proposed - float(percent)) <= last_digit


def batch_of_summary(record: Mapping[str, Any], issues: IssueCounter) -> StatedBatch:
    """The summary of a batch (performance_summary.json), as far as its keys hold figures."""
    reader = _Keys(record, issues)
    requests = reader.count("request_count")
    outputs = reader.counts("tokens_per_request")
    prompt = reader.count("prompt_tokens_per_request")
    seconds = reader.figure("batch_elapsed_seconds")
    milliseconds = reader.figure("effective_tpot_ms")
    return StatedBatch(
        requests=len(outputs) if requests is None and outputs is not None else requests,
        prompt_tokens=(prompt,) * requests if prompt is not None and requests is not None else None,
        output_tokens=outputs,
        total_output_tokens=reader.count("total_output_tokens"),
        elapsed_ns=None if seconds is None else round(seconds * _SECOND_NS),
        throughput_per_s=reader.figure("throughput_tokens_per_second"),
        effective_tpot_ns=None if milliseconds is None else milliseconds * 1e6,
    )


class _Keys:
    """The figures of one JSON object by key: None where it has none, and a key that holds something else is counted."""

    def __init__(self, record: Mapping[str, Any], issues: IssueCounter) -> None:
        self._record = record
        self._issues = issues

    def figure(self, key: str) -> float | None:
        value = self._record.get(key)
        if value is None:
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and math.isfinite(value) and 0 <= value < _LARGEST / _SECOND_NS:
            return float(value)
        self._refuse(key)
        return None

    def count(self, key: str) -> int | None:
        value = self._record.get(key)
        if value is not None and not is_count(value):
            self._refuse(key)
            return None
        return value

    def counts(self, key: str) -> tuple[int, ...] | None:
        value = self._record.get(key)
        if value is None:
            return None
        if isinstance(value, list) and all(map(is_count, value)):
            return tuple(value)
        self._refuse(key)
        return None

    def _refuse(self, key: str) -> None:
        self._issues.add("bad_statement", key, lost=1)


def is_count(value: Any) -> bool:
    """Whether a JSON value is a number of things."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
