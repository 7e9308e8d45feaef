"""One run of a side: a process group of its own, its output kept, the machine's conditions around it."""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from analyzers.errors import AnalyzerError
from analyzers.gate.machine import Conditions, conditions_between
from analyzers.gate.model import Samples
from analyzers.gate.samples import samples_of_runs
from analyzers.rundir import RunDirectory
from dsv4bench.errors import UsageError
from dsv4bench.gate.sides import Side
from dsv4bench.run.environment import machine_facts
from dsv4bench.run.machine import machine_state

LOG = "command.log"
"""What the command of a run printed, in its run directory."""
_INTERRUPT_S = 15.0
"""How long an interrupted run may take to end its ranks and write what it has."""


@dataclass(frozen=True)
class RunOutcome:
    """One run that was made: `samples` holds its figures, or `failure` says in a sentence why it has none."""

    side: Side
    label: str
    directory: Path
    duration_s: float
    conditions: Conditions
    samples: Samples | None
    failure: str | None


def execute(
    side: Side, directory: Path, label: str, timeout_s: float, names: Sequence[str] = ()
) -> RunOutcome:
    """Run the side once into `directory`, which it makes; `label` names the run for people.

    `names` are metrics to take beyond those that every run has (`analyzers.gate.samples.read_samples`).

    Raises:
        UsageError: the command cannot be started at all, or the directory cannot be written.
        KeyboardInterrupt: after the processes of the run were ended.
    """
    log = directory.with_name(directory.name + ".log")
    host, before = machine_facts(), machine_state()
    start = time.monotonic()
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output, _started(side, directory, output.fileno()) as process:
            ended = _wait(process, timeout_s)
    except OSError as error:
        raise UsageError(f"{label}: cannot run {shlex.join(side.words)}: {error}") from error
    duration_s = time.monotonic() - start
    conditions = conditions_between(host, before, machine_state(), label)
    if ended:
        samples, failure = _figures(directory, process.returncode, log, names)
    else:
        samples, failure = None, f"did not end within {timeout_s:g} s"
    directory.mkdir(exist_ok=True)
    log.replace(directory / LOG)
    return RunOutcome(side, label, directory, duration_s, conditions, samples, failure)


@contextmanager
def _started(side: Side, directory: Path, output: int) -> Iterator[subprocess.Popen[bytes]]:
    """The process of a run; at the end of the context nothing of its group is left."""
    process = subprocess.Popen(
        side.command(directory),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=os.environ | side.environment,
        start_new_session=True,  # Ctrl-C reaches the gate alone, which then ends the run in order
    )
    try:
        yield process
    finally:
        try:
            if not _wait(process, 0):
                os.killpg(process.pid, signal.SIGINT)
                _wait(process, _INTERRUPT_S)
        finally:
            # Not reaped yet, the process keeps its group's number from being given to another.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    """Wait until the process has ended, without reaping it; False if it has not by then."""
    descriptor = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))
    finally:
        os.close(descriptor)


def _figures(
    directory: Path, exit_code: int, log: Path, names: Sequence[str]
) -> tuple[Samples | None, str | None]:
    """The figures of a run that ended, or what is wrong with it."""
    if exit_code:
        how = f"exit code {exit_code}" if exit_code > 0 else f"killed by {signal.Signals(-exit_code).name}"
        return None, f"{how}: {_last_line(log)}"
    try:
        if not any(
            path.exists() for path in (RunDirectory(directory).manifest, RunDirectory(directory).requests)
        ):
            return None, f"left no run directory in {directory}; a command gets it as {{out}}, else as --out"
        samples = samples_of_runs([directory], names, conditions=False)
    except AnalyzerError as error:
        return None, str(error)
    if samples.failed:
        return None, samples.failed[0].removeprefix(f"{directory}: ")
    if not any(value is not None for values in samples.metrics.values() for value in values):
        return None, f"left nothing to measure in {directory}"
    return samples, None


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
