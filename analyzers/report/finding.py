"""What a finding is, and which there are: the one place where a code is declared (docs/findings.md says when it holds)."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from analyzers.steps.endpoints import SpanReference

Severity = Literal["error", "warning", "info"]

FindingCode = Literal[
    # What the figures are of, and what they say.
    "no_data",
    "requests_failed",
    "request_fields",
    "client_fell_behind",
    "prompt_tokens",
    "run_status",
    "lost_records",
    "trace_missing",
    "rank_failed",
    "rank_missing",
    "rank_conflict",
    "clocks_not_comparable",
    "lifecycle_fault",
    "mtp_accuracy",
    "mtp_impossible",
    "sources_contradict",
    "tokens_contradict",
    "runs_joined",
    "healthy",
    "pipeline_collapsed",
    "synchronous_fallback",
    "straggler",
    "slow_rank_in_exchange",
    "no_persistent_straggler",
    "too_few_rounds",
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
    # How it was recorded and read.
    "several_lives",
    "repaired_input",
    "input_note",
    "edge_of_window",
    "assumed_depth",
    "not_joined",
    "joined_by_time",
    "rank_names",
    "shared_pids",
    "runs_contradict",
    "matched_by_order",
    "incomplete_rounds",
    "long_tail_split",
    "mtp_identity",
    "files_not_read",
]
"""Every code, the most telling first: in this order a report lists the findings of one severity."""

CODES: tuple[FindingCode, ...] = get_args(FindingCode)
SEVERITIES: tuple[Severity, ...] = get_args(Severity)

UNSOUND: frozenset[FindingCode] = frozenset(
    {
        "repaired_input",
        "runs_contradict",
        "rank_missing",
        "rank_conflict",
        "incomplete_rounds",
        "sources_contradict",
    }
)
"""Codes that make a recording invalid under --strict, unless they are only information."""


class Finding(msgspec.Struct, frozen=True):
    """Something the reader should know: what, on what evidence, and what to do about it."""

    code: FindingCode
    severity: Severity
    title: str
    evidence: str
    advice: str = ""
    figures: dict[str, float] = {}
    """The evidence in numbers; the unit is in the name."""
    spans: list[SpanReference] = []
    """Where to look first."""


def in_order(findings: list[Finding]) -> list[Finding]:
    """The most severe first, and of those the most telling: the first is the headline."""
    return sorted(
        findings,
        key=lambda finding: (SEVERITIES.index(finding.severity), CODES.index(finding.code)),
    )
