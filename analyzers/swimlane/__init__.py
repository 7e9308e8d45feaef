"""Swimlane: serving lanes and every rank on one timeline, as a Perfetto protobuf or Chrome trace JSON."""

from analyzers.swimlane.layout import timeline_from_spans
from analyzers.swimlane.model import Timeline
from analyzers.swimlane.write import SwimlaneSummary, write_swimlane, write_timeline

__all__ = ["SwimlaneSummary", "Timeline", "timeline_from_spans", "write_swimlane", "write_timeline"]
