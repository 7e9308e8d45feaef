"""What a server did not give of what its kind promises."""

from __future__ import annotations

from collections.abc import Iterable

from analyzers.report.model import Finding, Report


def servers(report: Report) -> Iterable[Finding]:
    """One finding a trace that is missing, or does not cover the measured batch."""
    server = report.run.server if report.run is not None else None
    for reason in server.missing_traces if server is not None else []:
        yield Finding(
            "trace_missing",
            "error",
            f"a trace of the server is missing: {reason}",
            f"server kind {server.kind} promises it; what the client measured stands" if server else "",
            "look at the end of server.log, and at [profiling] of the server kind (dsv4bench servers NAME)",
        )
