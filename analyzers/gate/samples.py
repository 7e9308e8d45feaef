"""Reading and writing samples: plain files, run directories, globs of them, baselines (docs/gating.md, What is judged)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from analyzers.analysis import analyze_recording
from analyzers.errors import NotComparableError, UnusableInputError
from analyzers.gate.comparability import describe, differences, machine_name, run_config
from analyzers.gate.machine import Conditions, conditions_of, was_busy, what_moved
from analyzers.gate.metrics import REGISTRY, run_values, stated_basis
from analyzers.gate.model import Samples
from analyzers.json_text import valid_text
from analyzers.readers.load_report import IssueKind
from analyzers.recording.benchmarks import is_there
from analyzers.recording.copies import content_identity, copies_among, digest_of, notes_on
from analyzers.recording.recording import load_recording
from analyzers.recording.run_directory import run_files
from analyzers.report.model import Report
from analyzers.rundir import Manifest, RunDirectory, write_json_atomically
from analyzers.text.documents import RepeatedKeyError, read_unambiguous_json
from analyzers.text.output import writing
from analyzers.text.words import counted

_GLOB = "*?["
_RUN_KEYS = frozenset({"traceEvents", "ph", "benchmarks"})
"""Keys of a document that is a run: a trace, one event of it, or a report of requests."""

_INVALID: frozenset[IssueKind] = frozenset({"bad_request", "request_id_twice"})


@dataclasses.dataclass(frozen=True)
class _Run:
    """One run: its figures, and its manifest where it has one."""

    label: str
    values: dict[str, float | None]
    manifest: Manifest | None
    problem: str | None
    """Why it is no measurement."""
    invalid: str | None
    """Which of its requests cannot be."""
    digest: str
    """What it shares with its copies alone."""
    lost: int
    unknown: list[str]
    """What its requests do not tell."""
    stated: str | None
    """What stands for the requests where no client measured them."""


def read_samples(paths: Sequence[Path], names: Iterable[str] = ()) -> Samples:
    """One side of a comparison out of `paths`: samples files, run directories, directories of runs, globs of any, or
    a trace or request records as one run.

    `names` are metrics beyond the registry to take from runs: paths in their reports. A run named twice counts once, and so
    does one of which copies are named.

    Raises:
        UnusableInputError: a path cannot be read, is no samples file and no run, or a name is unknown.
        NotComparableError: the runs differ in configuration or machine among themselves.
    """
    wanted = list(names)
    parts: list[Samples] = []
    runs: list[Path] = []
    for path in _expand(paths):
        document = _samples_document(path)
        if document is not None:
            parts.append(_from_document(document, path))
        else:
            runs += _runs_in(path)
    if runs:
        parts.append(_samples_of_paths(runs, wanted))
    joined = join_samples(parts)
    return msgspec.structs.replace(joined, source=", ".join(str(path) for path in paths))


def samples_of_runs(
    directories: Sequence[Path], names: Iterable[str] = (), *, conditions: bool = True
) -> Samples:
    """The samples of run directories, one value a run, in their order; `names` as in `read_samples`.

    A run that failed stays, with no values, and is named in `failed`. Without `conditions`, what moved on the machine
    is left to a caller who watched it.

    Raises:
        UnusableInputError: no directory is given, or one is no run directory.
        NotComparableError: the runs differ in configuration or machine.
    """
    samples = _samples_of_paths(directories, list(names), conditions=conditions)
    return msgspec.structs.replace(samples, source=", ".join(str(path) for path in directories))


def _samples_of_paths(paths: Sequence[Path], names: Sequence[str], *, conditions: bool = True) -> Samples:
    """The samples of runs, each once wherever its copies lie."""
    distinct = _distinct(paths)
    copies = copies_among(distinct) if len(distinct) > 1 else []
    left_out = {copy.path for copy in copies}
    runs = [_read_run(path, names) for path in distinct if path not in left_out]
    samples = _samples_of(runs, conditions=conditions)
    return msgspec.structs.replace(samples, warnings=[*notes_on(copies), *samples.warnings])


def _once(parts: Sequence[Samples]) -> list[Samples]:
    """The parts without those that repeat the runs of one before, which is said.

    Raises:
        UnusableInputError: some of the runs of a part are those of one before, and some are not.
    """
    seen: set[str] = set()
    kept: list[Samples] = []
    for part in parts:
        digests = set(part.digests) or {digest_of([part.metrics, part.config, part.machine])}
        repeated = digests & seen
        if repeated and repeated != digests:
            raise UnusableInputError(
                f"{part.source}: {len(repeated)} of its {len(digests)} runs are also named by themselves or in another "
                "file: name each run once"
            )
        seen |= digests
        if repeated:
            note = f"{part.source}: the runs of another input once more: counted once"
            kept[0] = msgspec.structs.replace(kept[0], warnings=[*kept[0].warnings, note])
        else:
            kept.append(part)
    return kept


def write_samples(path: Path, samples: Samples) -> None:
    """Write a samples file that `read_samples` reads back; its directory is made where it is missing.

    Raises:
        UnusableInputError: the file cannot be written.
    """
    with writing(path):
        write_json_atomically(path, samples)


def _expand(paths: Sequence[Path]) -> list[Path]:
    if not paths:
        raise UnusableInputError("nothing to read: name run directories or a samples file")
    found: list[Path] = []
    for path in paths:
        if is_there(path) or not any(character in str(path) for character in _GLOB):
            found.append(path)
            continue
        matches = sorted(Path(path.anchor or ".").glob(str(path.relative_to(path.anchor))))
        if not matches:
            raise UnusableInputError(f"{path}: nothing matches this pattern")
        found += matches
    return _distinct(found)


def _distinct(paths: Sequence[Path]) -> list[Path]:
    return list({path.resolve(): path for path in reversed(paths)}.values())[::-1]


def _runs_in(path: Path) -> list[Path]:
    """The runs that `path` stands for: itself, or the run directories inside it."""
    if not is_there(path):
        raise UnusableInputError(f"{path}: does not exist; name a run directory or a samples file")
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise UnusableInputError(
            f"{path}: no regular file: a gate reads runs and samples files; save it to one first"
        )
    if path.name == "run.json":
        return [path.parent]
    if not path.is_dir() or RunDirectory(path).manifest.is_file():
        return [path]
    inside = sorted(child.parent for child in path.glob("*/run.json"))
    if inside:
        return inside
    run_files(path)  # raises for a directory without any file of a run
    return [path]


def _samples_document(path: Path) -> dict[str, Any] | None:
    """The content of a samples file; None for anything else that may be a run."""
    if not path.is_file() or path.suffix != ".json" or path.name == "run.json":
        return None
    try:
        document = valid_text(read_unambiguous_json(path.read_bytes().decode("utf-8-sig")))
    except OSError as error:
        raise UnusableInputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except RepeatedKeyError as error:
        raise UnusableInputError(f"{path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise UnusableInputError(f"{path}: not a samples file: not valid JSON: {error}") from error
    if isinstance(document, dict) and "metrics" in document:
        return document
    if isinstance(document, dict) and not _RUN_KEYS.isdisjoint(document):
        return None
    raise UnusableInputError(
        f'{path}: not a samples file: it needs {{"metrics": {{"tpot_ms": [one value a run, ...]}}}}'
    )


def _from_document(document: dict[str, Any], path: Path) -> Samples:
    try:
        return msgspec.structs.replace(msgspec.convert(document, Samples), source=str(path))
    except (msgspec.ValidationError, OverflowError) as error:
        raise UnusableInputError(f"{path}: not a samples file: {error}") from error


def _read_run(path: Path, names: Sequence[str]) -> _Run:
    recording = load_recording([path])
    report = analyze_recording(recording)
    problem, invalid = _problem(report), _invalid(report)
    wanted = dict.fromkeys([*REGISTRY, *names])
    # Values of a run that failed are not those of the whole run.
    is_sound = problem is None and invalid is None
    values = run_values(report, wanted) if is_sound else dict.fromkeys(wanted)
    return _Run(
        str(path),
        values,
        recording.manifest,
        problem,
        invalid,
        content_identity(path),
        report.lost,
        [finding.title for finding in report.findings if finding.code == "request_fields"],
        stated_basis(report),
    )


def _problem(report: Report) -> str | None:
    """Why this run is no measurement; None for one that is."""
    if report.run is not None and report.run.status != "complete":
        return f"status {report.run.status}" + (f": {report.run.error}" if report.run.error else "")
    if report.failures:
        return next(finding.title for finding in report.findings if finding.code == "rank_failed")
    for figures in report.requests:
        if figures.phase == "measured" and figures.failed:
            return f"{figures.failed} of {figures.requests} requests failed"
    return None if report.has_data else "nothing was measured"


def _invalid(report: Report) -> str | None:
    """Which requests cannot be, or that nothing is left of what was recorded; None where neither is so."""
    entries = [entry for entry in report.inputs if entry.format == "requests"]
    issues = [issue for entry in entries for issue in entry.issues if issue.kind in _INVALID]
    if issues:
        requests = sum(entry.records for entry in entries)
        return f"{sum(issue.lost for issue in issues)} of {requests} requests invalid, first at {issues[0].where}"
    if report.lost and not report.has_data:
        return f"{report.lost} of {counted(report.records, 'record')} lost"
    return None


def _samples_of(runs: Sequence[_Run], *, conditions: bool = True) -> Samples:
    if not runs:
        raise UnusableInputError("no runs: name at least one run directory")
    parts = [_of_one(run) for run in runs]
    joined = join_samples(parts)
    if not conditions:
        return joined
    meanwhile = _conditions(runs)
    return msgspec.structs.replace(
        joined,
        warnings=[*joined.warnings, *what_moved(meanwhile), *_dirty(runs)],
        busy=joined.busy or was_busy(meanwhile),
    )


def _of_one(run: _Run) -> Samples:
    manifest = run.manifest
    warnings = [f"{run.label}: {counted(run.lost, 'record')} lost"] if run.lost else []
    warnings += [f"{run.label}: {text}" for text in run.unknown]
    if manifest is not None and manifest.faults:
        warnings.append(f"{run.label}: faults were injected on request")
    if manifest is not None and manifest.restarts:
        warnings.append(f"{run.label}: the engine was restarted {manifest.restarts} times")
    config = run_config(manifest) if manifest is not None else {}
    if run.stated is not None:
        warnings.append(f"{run.label}: {run.stated}")
        # What a server states is no measurement of a client: the two are not compared.
        config["requests"] = "as stated"
    return Samples(
        metrics={name: [value] for name, value in run.values.items()},
        config=config,
        machine=machine_name(manifest) if manifest is not None else None,
        runs=[run.label],
        warnings=warnings,
        source=run.label,
        failed=[f"{run.label}: {run.problem}"] if run.problem and not run.invalid else [],
        invalid=[f"{run.invalid} ({run.label})"] if run.invalid else [],
        digests=[run.digest],
        revision=manifest.git.get("revision") if manifest is not None else None,
    )


def _conditions(runs: Sequence[_Run]) -> list[Conditions]:
    return [conditions_of(run.manifest, run.label) for run in runs if run.manifest is not None]


def _dirty(runs: Sequence[_Run]) -> list[str]:
    dirty = sum(run.manifest is not None and run.manifest.git.get("dirty") == "true" for run in runs)
    if not dirty:
        return []
    return [f"{dirty} of {len(runs)} runs are of a source tree with uncommitted changes"]


def join_samples(parts: Sequence[Samples]) -> Samples:
    """All parts, at least one, as one side; the runs of a part that are those of one before count once.

    Raises:
        UnusableInputError: only some of the runs of a part are those of one before.
        NotComparableError: they are not of one configuration and machine.
    """
    parts = _once(parts)
    first = parts[0]
    metrics: dict[str, list[float | None]] = {}
    for part in parts:
        found = differences(first, part)
        if found:
            raise NotComparableError(
                f"runs of one side differ among themselves: {_name(first)} and {_name(part)}: {describe(found)}; "
                "name runs of one configuration and machine"
            )
        for name, values in part.metrics.items():
            metrics.setdefault(name, []).extend(values)
    revisions = list(dict.fromkeys(part.revision for part in parts))
    mixed = ["the runs of one side are of several source revisions"] if len(revisions) > 1 else []
    return Samples(
        metrics=metrics,
        config=first.config,
        machine=first.machine,
        runs=[label for part in parts for label in part.runs] if all(part.runs for part in parts) else [],
        warnings=[*dict.fromkeys(text for part in parts for text in part.warnings), *mixed],
        source=first.source,
        failed=[text for part in parts for text in part.failed],
        invalid=[text for part in parts for text in part.invalid],
        digests=[digest for part in parts for digest in part.digests]
        if all(part.digests for part in parts)
        else [],
        revision=revisions[0] if len(revisions) == 1 else None,
        saved=first.saved if len(parts) == 1 else None,
        busy=any(part.busy for part in parts),
    )


def _name(part: Samples) -> str:
    return part.source or "a samples file"
