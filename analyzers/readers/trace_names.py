"""Names of processes and threads in a Chrome trace, and which process a name's record begins."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import NamedTuple

from analyzers.table.identity import Lane, Process
from analyzers.table.processes import with_incarnations
from analyzers.table.spans import SpanTable

Label = int | str | None


class _Name(NamedTuple):
    at_ns: int | None
    """When it was given; None for a record without a time, or at 0, as most writers have them."""
    text: str


class TraceNames:
    """Collects name records; once all are known, tells apart the processes that had one pid after the other.

    The first name of a pid is that of its process from the beginning on. A record with a time that names it otherwise ends
    that process, and begins the next. Threads change names as they like.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self._processes: dict[Label, list[_Name]] = {}
        self._threads: dict[tuple[Label, Label], list[_Name]] = {}
        self._begins: dict[Label, list[int]] = {}
        """pid -> where its second process begins, its third, ...; only pids that several had."""

    def add(self, kind: object, pid: Label, tid: Label, at_ns: int | None, name: str) -> None:
        """Take a record of metadata; other kinds than names are of no interest."""
        entry = _Name(at_ns or None, name)
        if kind == "process_name":
            self._processes.setdefault(pid, []).append(entry)
        elif kind == "thread_name":
            self._threads.setdefault((pid, tid), []).append(entry)

    def settle(self) -> None:
        """All records are there: find where processes begin."""
        for pid, entries in self._processes.items():
            begins = [begin for begin, _ in _lives(entries)[1:]]
            if begins:
                self._begins[pid] = begins

    def _incarnation(self, pid: Label, at_ns: int) -> int:
        """Which of the processes that had the pid had it at that time, from 0."""
        begins = self._begins.get(pid)
        return bisect.bisect_right(begins, at_ns) if begins else 0

    def tell_apart(self, spans: SpanTable) -> SpanTable:
        """`spans` with a lane for each process of a pid: that which had it when the span began."""
        for pid, begins in self._begins.items():
            spans = with_incarnations(spans, _of((self._file, pid)), begins, spans.start_ns)
        return spans

    def process_names(self) -> dict[Process, str]:
        """The name of every process that has one."""
        return {
            Lane(self._file, pid, None, incarnation).process: name
            for pid, entries in self._processes.items()
            for incarnation, (_, name) in enumerate(_lives(entries))
        }

    def thread_names(self) -> dict[Lane, str]:
        """The last name of every thread, of each process that had its pid."""
        return {
            Lane(self._file, pid, tid, incarnation): entry.text
            for (pid, tid), entries in self._threads.items()
            for incarnation in range(len(self._begins.get(pid, ())) + 1)
            for entry in entries
            if entry.at_ns is None or self._incarnation(pid, entry.at_ns) == incarnation
        }


def _lives(entries: list[_Name]) -> list[tuple[int, str]]:
    """Begin and name of each process that had a pid; the begin of the first is of no use."""
    timed: dict[int, str] = {}
    lives: list[tuple[int, str]] = []
    for entry in entries:
        if entry.at_ns is None:
            lives = [(0, entry.text)]
        else:
            timed[entry.at_ns] = entry.text
    for at_ns, name in sorted(timed.items()):
        if not lives or name != lives[-1][1]:
            lives.append((at_ns, name))
    return lives


def _of(process: Process) -> Callable[[Lane], bool]:
    return lambda lane: lane.process == process
