"""What a report's reader should know: findings out of figures, with their evidence and what to do (docs/findings.md)."""

from __future__ import annotations

from analyzers.findings.clients import clients
from analyzers.findings.context import Measured
from analyzers.findings.exchanges import slow_ranks
from analyzers.findings.healthy import healthy
from analyzers.findings.pipeline import pipelines
from analyzers.findings.ranks import ranks
from analyzers.findings.recording import recording
from analyzers.findings.trend import acceptance_fell
from analyzers.report.finding import Finding, in_order

__all__ = ["Measured", "find"]


def find(measured: Measured) -> list[Finding]:
    """All findings of a measured recording: the most severe first, and of those the most telling: the headline."""
    findings = [
        *recording(measured),
        *pipelines(measured),
        *ranks(measured),
        *slow_ranks(measured),
        *clients(measured),
        *acceptance_fell(measured),
    ]
    findings += healthy(measured, findings)
    return in_order(findings)
