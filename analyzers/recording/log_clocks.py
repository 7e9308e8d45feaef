"""The clocks of a recording: its logs and serving traces, with every anchor that is of one of their processes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from analyzers.readers.chrome_trace import ChromeTrace
from analyzers.readers.log_processes import ClockAnchor
from analyzers.readers.strace import StraceLog
from analyzers.recording.clocks import STATED, ProcessClock, process_windows
from analyzers.recording.devices import of_processes
from analyzers.rundir import Manifest
from analyzers.table.spans import Process, process_label


def process_clocks(
    logs: Sequence[StraceLog],
    traces: Sequence[ChromeTrace],
    manifest: Manifest | None = None,
    run_files: Collection[Path] = (),
    *,
    one_clock: bool = False,
) -> list[ProcessClock]:
    """The clock of every process on a monotonic clock: of the logs, then of the serving traces.

    `run_files` are the files of a run directory: one launcher on one host wrote them. The reading of `manifest`
    of both clocks is an anchor of the serving trace. `one_clock` is the user's word that all files are of one host.
    """
    stated: dict[Process, tuple[ClockAnchor, ...]] = {}
    for log in logs:
        for anchor in log.processes.anchors:
            process = (log.report.path, process_label(anchor.pid, anchor.incarnation))
            stated[process] = (*stated.get(process, ()), anchor)
    files = {str(path) for path in run_files}
    trees = _process_trees(logs)

    def written_to(file: str) -> str:
        if one_clock:
            return STATED
        return "run" if file in files else trees.get(file, "")

    windows = process_windows(log.spans for log in logs)
    logged = list(dict.fromkeys(lane.process for log in logs for lane in log.spans.lanes))
    known = {pid for _, pid in logged}
    logged += [process for process in stated if process[1] not in known]
    anchors = of_processes(stated, logged)
    clocks = [
        ProcessClock(
            process,
            anchors.get(process, ()),
            windows.get(process),
            written_to=written_to(process[0]),
        )
        for process in logged
    ]
    serving_windows = process_windows(trace.spans for trace in traces)
    serving_anchors = of_processes(stated, serving_windows)
    launcher = _launcher_anchor(manifest)
    for process, window in serving_windows.items():
        # An anchor is a process's first record: one behind its spans is of another process with that pid.
        own = tuple(anchor for anchor in serving_anchors.get(process, ()) if anchor.mono_ns <= window[1])
        if process[0] in files:
            own += launcher
        clocks.append(ProcessClock(process, own, window, is_serving=True, written_to=written_to(process[0])))
    return clocks


def _process_trees(logs: Sequence[StraceLog]) -> dict[str, str]:
    """Logs of one process tree: one has the ready line of a process whose records are in the other. Log -> its tree.

    A pid that several logs have records of may be of a container each: it ties none of them.
    """
    holders: dict[object, set[str]] = {}
    for log in logs:
        for lane in log.spans.lanes:
            holders.setdefault(lane.pid, set()).add(log.report.path)
    trees = {log.report.path: log.report.path for log in logs}
    for log in logs:
        for line in log.processes.ready:
            held = holders.get(line.pid, set())
            if len(held) == 1 and log.report.path not in held:
                old, new = trees[next(iter(held))], trees[log.report.path]
                trees = {file: new if tree == old else tree for file, tree in trees.items()}
    return trees


def _launcher_anchor(manifest: Manifest | None) -> tuple[ClockAnchor, ...]:
    if manifest is None or not {"monotonic_ns", "wall_ns"} <= manifest.clocks.keys():
        return ()
    return (ClockAnchor(0, manifest.clocks["monotonic_ns"], manifest.clocks["wall_ns"]),)
