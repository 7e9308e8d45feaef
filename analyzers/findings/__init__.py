"""What a report's reader should know: findings out of figures, with their evidence and what to do (docs/findings.md)."""

from __future__ import annotations

from analyzers.findings.clients import clients
from analyzers.findings.context import Measured
from analyzers.findings.exchanges import slow_ranks
from analyzers.findings.pipeline import pipelines
from analyzers.findings.ranks import ranks
from analyzers.findings.recording import recording
from analyzers.findings.trend import acceptance_fell
from analyzers.report.model import Finding, Severity

__all__ = ["Measured", "find"]

_SEVERITY_ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}


def find(measured: Measured) -> list[Finding]:
    """All findings of a measured recording, most severe first."""
    findings = [
        *recording(measured),
        *pipelines(measured),
        *ranks(measured),
        *slow_ranks(measured),
        *clients(measured),
        *acceptance_fell(measured),
    ]
    return sorted(findings, key=lambda finding: _SEVERITY_ORDER[finding.severity])
