"""What a small file of figures becomes: figures by name, None where one cannot be had, and notes on them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Self

import msgspec

from analyzers.readers.load_report import IssueCounter, LoadReport

ObservationKind = Literal["rank steps", "draft steps", "counters", "samples", "events"]


class Figure(StrEnum):
    """The name of a figure, `key` or `key (unit)`; each kind of observation lists its own."""

    unit: str

    def __new__(cls, key: str, unit: str = "") -> Self:
        """A member: its value is its name."""
        name = f"{key} ({unit})" if unit else key
        figure = str.__new__(cls, name)
        figure._value_ = name
        figure.unit = unit
        return figure


class Observation(msgspec.Struct, frozen=True):
    """The figures of one file, or of a pair that belongs together. Names carry their unit."""

    path: str
    kind: ObservationKind
    n: int
    figures: dict[str, float | None]
    """By `Figure`."""
    notes: list[str] = []


@dataclass(frozen=True)
class ObservedFile:
    """One file of figures, and how it was read."""

    observation: Observation
    report: LoadReport


def report_of(path: str, n: int, issues: IssueCounter) -> LoadReport:
    """The report of a file of which `n` records were used."""
    lost = issues.lost("bad_line", "malformed", "torn_tail")
    return LoadReport(path=path, format="observations", records=n + lost, parsed=n, issues=issues.issues())
