"""Recordings out of span tables, for tests that work their spans out by hand, and timelines of them."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.measurement import measure
from analyzers.readers.request_timing import RequestTiming
from analyzers.recording.clocks import ONE_HOST_CLOCK, ClockAlignment
from analyzers.recording.rank_naming import RankAssignment
from analyzers.recording.recording import Recording
from analyzers.swimlane import Timeline, timeline_of
from analyzers.table.spans import SpanTable, empty_table
from tests.builders.manifests import manifest


def recording_of(
    spans: SpanTable,
    requests: Sequence[RequestTiming] = (),
    *,
    depth: int | None = None,
    invalid: SpanTable | None = None,
    clocks: ClockAlignment = ONE_HOST_CLOCK,
) -> Recording:
    """A recording that holds `spans`; of a complete run where a `depth` is declared."""
    return Recording(
        paths=(),
        spans=spans,
        invalid=empty_table() if invalid is None else invalid,
        requests=list(requests),
        requests_have_phases=bool(requests),
        reports=[],
        ranks=RankAssignment(ranks={}, basis={}),
        ready_devices={},
        manifest=None if depth is None else manifest(profile={"name": "test", "engine": {"depth": depth}}),
        resources=[],
        mtp_accuracy=None,
        clocks=clocks,
    )


def timeline_from(spans: SpanTable, requests: Sequence[RequestTiming] = ()) -> Timeline:
    """The timeline of a recording that holds `spans`."""
    return timeline_of(measure(recording_of(spans, requests)))
