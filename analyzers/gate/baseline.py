"""Baselines: the samples of runs in a file that can be committed beside the code (docs/gating.md, Stored runs)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from analyzers.errors import InvalidDataError, NoDataError, UnusableInputError
from analyzers.gate.comparability import said, short_machine
from analyzers.gate.metric_pairs import values_of
from analyzers.gate.metrics import canonical, split_tag, unit_of
from analyzers.gate.model import Samples
from analyzers.gate.policy import judged_metrics, policy_of_table, working_directory_table
from analyzers.gate.samples import read_samples, write_samples
from analyzers.gate.wording import amount, count
from analyzers.statistics.summary import percentile
from analyzers.text.tables import CellKind, Column, Row, Table

DIRECTORY = Path("baselines")
"""Where a baseline that is given by name alone lies, below the working directory."""


def baseline_path(name_or_file: str) -> Path:
    """The file of a baseline: a path as it stands, or `baselines/<name>.json` for a plain name."""
    path = Path(name_or_file)
    if path.suffix == ".json" or len(path.parts) > 1 or path.exists():
        return path
    return DIRECTORY / f"{name_or_file}.json"


def save_baseline(
    name_or_file: str, runs: Sequence[Path], names: Iterable[str] = (), *, replace: bool = False
) -> tuple[Path, Samples]:
    """Write the samples of `runs` as a baseline, with the time and the revision; returns where, and what.

    Raises:
        UnusableInputError: a run cannot be read, or the file exists and `replace` is not given, or cannot be written.
        NotComparableError: the runs differ in configuration or machine.
        NoDataError: a run failed: a baseline of the others would hide it; or one has no value of what the gate is about:
            `names`, else the metrics of `dsv4bench.toml`, else tpot.
        InvalidDataError: a run holds requests that cannot be.
    """
    path = baseline_path(name_or_file)
    if path.exists() and not replace:
        raise UnusableInputError(f"{path}: exists; name another baseline, or replace it with --replace")
    wanted = list(names)
    samples = read_samples(runs, wanted)
    if samples.invalid:
        raise InvalidDataError(f"not saved: {samples.invalid[0]}; name the good runs alone")
    if samples.failed:
        raise NoDataError(f"not saved: a run failed: {samples.failed[0]}; name the good runs alone")
    if not any(values_of(values) for values in samples.metrics.values()):
        raise NoDataError("not saved: the runs have no value of any metric")
    for name in wanted or judged_metrics(policy_of_table(working_directory_table(), "the gate")):
        _check_values(samples, name)
    samples = msgspec.structs.replace(samples, saved=datetime.now(UTC).isoformat(timespec="seconds"))
    write_samples(path, samples)
    return path, samples


def _check_values(samples: Samples, name: str) -> None:
    """Raise NoDataError where a run has no value of a metric that a gate would judge by this baseline."""
    for known, kept in samples.metrics.items():
        if split_tag(canonical(known))[0] != split_tag(canonical(name))[0] or len(values_of(kept)) == len(
            kept
        ):
            continue
        lacking = [index for index, value in enumerate(kept) if not values_of([value])]
        run = samples.runs[lacking[0]] if len(samples.runs) == len(kept) else samples.source
        raise NoDataError(
            f"not saved: {run} has no value of {name}, which the gate is about; save runs that have one, or say with "
            "--metric, or in dsv4bench.toml, what else is to be judged"
        )


def baseline_tables(samples: Samples) -> list[Table]:
    """A baseline for people: where it is from, its configuration, and every metric it has values of."""
    origin: list[Row] = [
        ["file", samples.source or None],
        ["saved", samples.saved or None],
        ["revision", samples.revision or None],
        ["machine", short_machine(samples.machine)],
        ["runs", str(max((len(values) for values in samples.metrics.values()), default=0))],
    ]
    tables = [Table("Baseline", [Column(""), Column("value")], origin, samples.warnings)]
    if samples.config:
        configuration = [[key, said(samples.config, key)] for key in samples.config]
        tables.append(Table("Configuration", [Column("key"), Column("value")], configuration))
    rows = [
        _metric_row(name, values) for name, kept in samples.metrics.items() if (values := values_of(kept))
    ]
    missing = len(samples.metrics) - len(rows)
    notes = [f"without a value: {count(missing, 'metric')}"] if missing else []
    columns = [
        Column("metric"),
        Column("runs", CellKind.COUNT),
        *(Column(name, CellKind.FIGURES) for name in ("median", "least", "most")),
    ]
    tables.append(Table("Metrics", columns, rows, notes))
    return tables


def _metric_row(name: str, values: Sequence[float]) -> Row:
    unit = unit_of(name)
    figures = [percentile(values, 50), min(values), max(values)]
    return [name, len(values), *(amount(figure, unit) for figure in figures)]
