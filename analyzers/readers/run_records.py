"""The small files that a run leaves beside its traces: resource samples and the comparison with MTP off."""

from __future__ import annotations

from pathlib import Path

import msgspec

from analyzers.readers.files import read_bytes
from analyzers.readers.json_objects import decode_text, iterate_lines
from analyzers.readers.load_report import InputFormat, IssueCounter, LoadReport
from analyzers.rundir import MtpAccuracy, ResourceSample


def read_resources(path: Path) -> tuple[list[ResourceSample], LoadReport]:
    """Read `resources.jsonl`; a line that is no sample is counted as lost."""
    issues = IssueCounter()
    samples = []
    text = decode_text(read_bytes(path, issues), issues)
    for number, line in iterate_lines(text, issues, lambda record: "time_ns" in record):
        try:
            samples.append(msgspec.json.decode(line.encode(errors="replace"), type=ResourceSample))
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            issues.add("bad_line", f"line {number}: {error}", lost=1)
    records = len(samples) + issues.lost("bad_line")
    return samples, _report(path, "resources", records, len(samples), issues)


def read_mtp_accuracy(path: Path) -> tuple[MtpAccuracy | None, LoadReport]:
    """Read `mtp_accuracy.json`; None, and counted as lost, when it is something else."""
    issues = IssueCounter()
    accuracy: MtpAccuracy | None = None
    try:
        accuracy = msgspec.json.decode(read_bytes(path, issues), type=MtpAccuracy)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        issues.add("malformed", str(error), lost=1)
    return accuracy, _report(path, "mtp_accuracy", 1, int(accuracy is not None), issues)


def _report(path: Path, kind: InputFormat, records: int, parsed: int, issues: IssueCounter) -> LoadReport:
    return LoadReport(path=str(path), format=kind, records=records, parsed=parsed, issues=issues.issues())
