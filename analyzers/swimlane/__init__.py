"""Swimlane: serving lanes and every rank on one timeline, as a Perfetto protobuf or Chrome trace JSON."""

from analyzers.swimlane.layout import timeline_of
from analyzers.swimlane.model import Timeline
from analyzers.swimlane.write import SwimlaneSummary, write_timeline

__all__ = ["SwimlaneSummary", "Timeline", "timeline_of", "write_timeline"]
