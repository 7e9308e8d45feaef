"""The clocks of a recording: its logs and serving traces, with every anchor that is of one of their processes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from analyzers.readers.chrome_trace import ChromeTrace
from analyzers.readers.log_processes import ClockAnchor
from analyzers.readers.strace import StraceLog
from analyzers.recording.clocks import ProcessClock, process_windows
from analyzers.recording.devices import of_processes
from analyzers.rundir import Manifest
from analyzers.table.spans import Process, process_label


def process_clocks(
    logs: Sequence[StraceLog],
    traces: Sequence[ChromeTrace],
    manifest: Manifest | None = None,
    run_files: Collection[Path] = (),
) -> list[ProcessClock]:
    """The clock of every process on a monotonic clock: of the logs, then of the serving traces.

    `run_files` are the files of the directory that `manifest` is of: one launcher on one host wrote them. Its reading
    of both clocks is an anchor of the serving trace.
    """
    stated: dict[Process, tuple[ClockAnchor, ...]] = {}
    for log in logs:
        for anchor in log.processes.anchors:
            process = (log.report.path, process_label(anchor.pid, anchor.incarnation))
            stated[process] = (*stated.get(process, ()), anchor)
    files = {str(path) for path in run_files}
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
            written_to="run" if process[0] in files else "",
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
        clocks.append(
            ProcessClock(
                process, own, window, is_serving=True, written_to="run" if process[0] in files else ""
            )
        )
    return clocks


def _launcher_anchor(manifest: Manifest | None) -> tuple[ClockAnchor, ...]:
    if manifest is None or not {"monotonic_ns", "wall_ns"} <= manifest.clocks.keys():
        return ()
    return (ClockAnchor(0, manifest.clocks["monotonic_ns"], manifest.clocks["wall_ns"]),)
