"""That nothing is wrong, in one sentence, where enough was measured to say so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analyzers.findings.host import shared_cores
from analyzers.findings.lateness import can_tell
from analyzers.measurement import Measured
from analyzers.report.model import Finding, Report
from analyzers.steps.pipeline import Pipeline
from analyzers.table.callables import is_prefill
from analyzers.text.words import counted, listed, milliseconds

TOO_FEW_ROUNDS = "too few rounds to tell whether a rank is late"

_FIGURES = {2: "two", 3: "three", 4: "four"}


def healthy(measured: Measured, report: Report, findings: Sequence[Finding]) -> Iterable[Finding]:
    """The finding that a pipeline does what it was told to, given all the others: none of them is more than information.

    A pipeline that overlaps in part, or of which nobody declared a depth, is neither wrong nor known to be right.
    """
    if any(finding.severity != "info" for finding in findings):
        return
    pipeline = next((item for item in report.pipelines if not is_prefill(item.callable)), None)
    overlap = _overlap(pipeline) if pipeline is not None else ""
    if pipeline is None or not overlap:
        return
    clauses = [overlap]
    skew = next((entry for entry in report.skew if entry.callable == pipeline.callable), None)
    if skew is not None and skew.last_to_end.test is not None:
        uneven = next((finding for finding in findings if finding.code == "uneven_work"), None)
        late = uneven.title.removeprefix(f"{pipeline.callable}: ") if uneven is not None else ""
        clauses.append(
            late or ("no rank persistently late" if can_tell(skew.last_to_end) else TOO_FEW_ROUNDS)
        )
    clauses.append("nothing lost")
    told_by = pipeline.in_flight if pipeline.in_flight.pairs else pipeline.scheduled
    evidence = [counted(told_by.pairs + 1, "decode step")]
    if skew is not None:
        evidence.append(
            f"{counted(skew.rounds, f'{skew.scope} round')} on {counted(len(skew.ranks), 'rank')}"
        )
    evidence.append(counted(report.records, "record"))
    measured_what = f"measured: {listed(evidence)}"
    shared = shared_cores(measured.recording.manifest)
    if shared and skew is not None and skew.runner_end_skew.p50:
        # What is lost in the scatter of a busy host is not known to be absent.
        apart = milliseconds(skew.runner_end_skew.p50)
        measured_what += (
            f"; {shared}; ranks end {apart} apart, so that one that is late by less does not show"
        )
    yield Finding("healthy", "info", f"healthy: {', '.join(clauses)}", measured_what)


def _overlap(pipeline: Pipeline) -> str:
    """What the pipeline does as declared; "" where that is not known."""
    match pipeline.state:
        case "in flight":
            most = pipeline.most_in_flight
            return f"{_FIGURES.get(most, str(most))} in flight"
        case "depth one" if pipeline.declared_depth == 1:
            return "one in flight, as declared"
        case _:
            return ""
