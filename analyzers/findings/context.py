"""What findings are made of: the report's figures, and the measurements behind them."""

from __future__ import annotations

from dataclasses import dataclass

from analyzers.lifecycle import Lifecycle
from analyzers.pipeline import PipelineResult
from analyzers.readers.recording import Recording
from analyzers.report.model import Report
from analyzers.rounds import RoundMatching


@dataclass(frozen=True)
class Measured:
    """One recording, measured: `report` holds every figure, its own list of findings not yet filled."""

    report: Report
    recording: Recording
    lifecycle: Lifecycle
    matching: RoundMatching
    pipelines: list[PipelineResult]
