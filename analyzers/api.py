"""The functions of the public face: recordings in; reports, timelines and verdicts out (docs/python.md)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from analyzers.analysis import analyze_recording, analyze_runs
from analyzers.gate.check import check_runs
from analyzers.gate.model import GatePolicy, GateResult
from analyzers.measurement import AnalysisOptions, measure
from analyzers.recording.recording import LoadOptions, Recording, load_recording, load_runs
from analyzers.report.model import Report
from analyzers.swimlane import SwimlaneSummary, timeline_of
from analyzers.swimlane import write_timeline as write_drawn

Paths = str | Path | Iterable[str | Path]
"""One path or several: run directories, traces, logs and request records, in any combination."""


def load(paths: Paths, options: LoadOptions | None = None) -> Recording:
    """Read the inputs of one run.

    Raises:
        UnusableInputError: a path does not exist, cannot be read or is none of the known formats; inputs contradict each
            other, or are of several runs.
    """
    return load_recording(_listed(paths), options)


def analyze(source: Recording | Paths, options: AnalysisOptions | None = None) -> Report:
    """Measure a recording, or whatever `paths` hold: several runs are measured each by itself, in one report.

    Raises:
        UnusableInputError: as `load` does, but for several runs.
        FilterError: nothing is left of the recording by the filters of `options`.
    """
    if isinstance(source, Recording):
        return analyze_recording(source, options)
    return analyze_runs(load_runs(_listed(source)), options)


def write_timeline(
    source: Recording | Paths, output: str | Path, options: AnalysisOptions | None = None
) -> SwimlaneSummary:
    """Draw the serving lanes and every rank of one run on one timeline: `.pftrace` for Perfetto, `.json` for Chrome.

    Raises:
        UnusableInputError: as `load` does; the suffix is neither, or the file cannot be written.
        NoDataError: there is nothing to draw.
        FilterError: nothing is left of the recording by the filters of `options`.
    """
    recording = source if isinstance(source, Recording) else load(source)
    return write_drawn(timeline_of(measure(recording, options)), Path(output))


def check_gate(
    candidates: Paths, baseline: str | Path | None, policy: GatePolicy | None = None
) -> GateResult:
    """Judge stored runs of a candidate against `baseline` (its name, runs, a samples file), or by limits alone (None).

    Only a `verdict` of PASS says that nothing became worse, and the result of each metric what that excludes
    (docs/gating.md). `analyzers.gate.model.EXIT_CODES` has the exit code of each verdict.

    Raises:
        UnusableInputError: an input cannot be read, there is neither baseline nor limit, or no side has a metric.
        NotComparableError: the runs of one side differ among themselves.
    """
    named = None if baseline is None else str(baseline)
    return check_runs([Path(path) for path in _listed(candidates)], named, policy or GatePolicy())


def _listed(paths: Paths) -> list[str | Path]:
    return [paths] if isinstance(paths, str | Path) else list(paths)
