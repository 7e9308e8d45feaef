"""What a report's reader should know: findings out of figures, with their evidence and what to do (docs/findings.md)."""

from __future__ import annotations

from analyzers.findings.acceptance import acceptance_fell
from analyzers.findings.clients import clients
from analyzers.findings.exchanges import slow_ranks
from analyzers.findings.failures import failures
from analyzers.findings.healthy import healthy
from analyzers.findings.pipeline import pipelines
from analyzers.findings.ranks import ranks
from analyzers.findings.recording import recording
from analyzers.findings.servers import servers
from analyzers.findings.stated import stated
from analyzers.measurement import Measured
from analyzers.report.finding import Finding, in_order
from analyzers.report.model import Report

__all__ = ["find"]


def find(measured: Measured, report: Report) -> list[Finding]:
    """All findings of a recording and its figures: the most severe first, and of those the most telling: the headline."""
    findings = [
        *recording(measured, report),
        *stated(measured, report),
        *servers(report),
        *failures(report),
        *pipelines(measured, report),
        *ranks(measured, report),
        *slow_ranks(measured),
        *clients(measured, report),
        *acceptance_fell(measured),
    ]
    findings += healthy(measured, report, findings)
    return in_order(findings)
