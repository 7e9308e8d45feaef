"""Who did something: a thread, its process, and the device that the process drives."""

from __future__ import annotations

from typing import NamedTuple

Process = tuple[str, int | str | None]
"""A file, and the pid of a process in it; `"41#2"` is the second process of the file that had the pid 41."""


class Lane(NamedTuple):
    """One thread as its file names it: foreign traces may use strings; None is a missing pid or tid."""

    file: str
    pid: int | str | None
    tid: int | str | None
    incarnation: int = 0
    """Which of the processes that had the pid one after the other, from 0."""

    @property
    def process(self) -> Process:
        """The process this lane belongs to: equal pids of different files are different processes."""
        return (self.file, process_label(self.pid, self.incarnation))


def process_label(pid: int | str | None, incarnation: int) -> int | str | None:
    """The pid as `Process` has it."""
    return pid if not incarnation else f"{pid}#{incarnation + 1}"


class DeviceIds(NamedTuple):
    """The device that a process drives, as numbers of the two spaces; None is what nothing in the input says.

    Logical numbers count what the process sees, as its runtime does; physical ones are the host's.
    """

    logical: int | None = None
    physical: int | None = None
