"""What a report's reader should know: findings out of figures, with their evidence and what to do (docs/findings.md)."""

from __future__ import annotations

from analyzers.findings.clients import clients
from analyzers.findings.exchanges import slow_ranks
from analyzers.findings.healthy import healthy
from analyzers.findings.pipeline import pipelines
from analyzers.findings.ranks import ranks
from analyzers.findings.recording import recording
from analyzers.findings.trend import acceptance_fell
from analyzers.measurement import Measured
from analyzers.report.model import Finding, FindingCode, Report, Severity

__all__ = ["find"]

_SEVERITY_ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}

_MOST_TELLING: tuple[FindingCode, ...] = (
    "no_data",
    "requests_failed",
    "run_status",
    "lost_records",
    "rank_missing",
    "rank_conflict",
    "clocks_not_comparable",
    "lifecycle_fault",
    "mtp_accuracy",
    "mtp_impossible",
    "healthy",
    "pipeline_collapsed",
    "synchronous_fallback",
    "straggler",
    "slow_rank_in_exchange",
    "no_persistent_straggler",
    "uneven_work",
    "cold_start",
    "late_ranks",
    "host_bound",
    "bind_outliers",
    "record_gaps",
    "acceptance_fell",
    "resource_growth",
    "faults_injected",
    "filtered",
    "pipeline",
    "device_bound",
)
"""Within a severity: what was measured before how it was recorded. Codes that are not here come last."""


def find(measured: Measured, report: Report) -> list[Finding]:
    """All findings of a recording and its figures: the most severe first, and of those the most telling: the headline."""
    findings = [
        *recording(measured, report),
        *pipelines(measured, report),
        *ranks(measured, report),
        *slow_ranks(measured),
        *clients(measured, report),
        *acceptance_fell(measured),
    ]
    findings += healthy(measured, report, findings)
    order = {code: index for index, code in enumerate(_MOST_TELLING)}
    return sorted(
        findings,
        key=lambda finding: (_SEVERITY_ORDER[finding.severity], order.get(finding.code, len(order))),
    )
