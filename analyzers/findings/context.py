"""What findings are made of: the report's figures, and the measurements behind them."""

from __future__ import annotations

from dataclasses import dataclass

from analyzers.ranks.rounds import RoundMatching
from analyzers.recording.recording import Recording
from analyzers.report.model import Report
from analyzers.steps.lifecycle import Lifecycle
from analyzers.steps.pipeline import PipelineResult


@dataclass(frozen=True)
class Measured:
    """One recording, measured: `report` holds every figure, its own list of findings not yet filled."""

    report: Report
    recording: Recording
    lifecycle: Lifecycle
    matching: RoundMatching
    pipelines: list[PipelineResult]
