"""Tracing: the span recorder behind SA_PROFILE, the merge of its fragments, and the STRACE emitter."""

from dsv4bench.tracing.merge import MergeResult, merge_fragments
from dsv4bench.tracing.recorder import NullRecorder, Recorder, SpanContext, SpanRecorder
from dsv4bench.tracing.settings import (
    Level,
    TracingEnvironment,
    fragments_directory,
    merged_trace,
    parse_levels,
    tracing_environment,
)
from dsv4bench.tracing.strace import DEVICE_CLOCK, StraceEmitter

__all__ = [
    "DEVICE_CLOCK",
    "Level",
    "MergeResult",
    "NullRecorder",
    "Recorder",
    "SpanContext",
    "SpanRecorder",
    "StraceEmitter",
    "TracingEnvironment",
    "fragments_directory",
    "merge_fragments",
    "merged_trace",
    "parse_levels",
    "tracing_environment",
]
