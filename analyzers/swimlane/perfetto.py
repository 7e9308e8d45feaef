"""The timeline as a Perfetto protobuf (`.pftrace`), for ui.perfetto.dev and trace_processor."""

from __future__ import annotations

from itertools import count
from typing import Any, BinaryIO

import msgspec
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    DebugAnnotation,
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)
from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

from analyzers.swimlane.model import CounterTrack, FlowPhase, Instant, Slice, Timeline, Track, drawn_args

ROOT_NAME = "dsv4bench"
_SEQUENCE = 1
_INT64_MAX = 2**63 - 1


def write_perfetto(timeline: Timeline, file: BinaryIO) -> int:
    """Write `timeline` as a stream of packets. Timestamps are ns on the trace's default clock.

    They have no sign: a timeline that begins before 0 is moved to begin there. By how many ns is returned.
    """
    moved_ns = max(0, -timeline.start_ns)
    writer = _Writer(file, moved_ns)
    root = writer.track(ROOT_NAME, ordered=True)
    for group_rank, group in enumerate(timeline.groups):
        parent = writer.track(
            group.name, parent=root, rank=group_rank, ordered=True, description=group.labels
        )
        for rank, counter in enumerate(group.counters):
            writer.counter(counter, parent, rank)
        for rank, track in enumerate(group.tracks, len(group.counters)):
            writer.slices(track, writer.track(track.name, parent=parent, rank=rank))
    return moved_ns


class _Writer:
    """Writes packets of one sequence, and interns the strings that repeat."""

    def __init__(self, file: BinaryIO, moved_ns: int) -> None:
        self._moved_ns = moved_ns
        self._stream = StreamingTraceProtoBuilder(file)
        self._uuids = count(1)
        self._interned: dict[tuple[str, str], int] = {}
        self._started = False

    def track(
        self, name: str, *, parent: int = 0, rank: int = 0, ordered: bool = False, description: str = ""
    ) -> int:
        """Describe one track below `parent`, `rank` places from the top; return its uuid."""
        packet = self._packet()
        self._describe(packet, name, parent, rank)
        if ordered:
            packet.track_descriptor.child_ordering = TrackDescriptor.EXPLICIT
        if description:
            packet.track_descriptor.description = description
        self._stream.write_packet(packet)
        uuid: int = packet.track_descriptor.uuid
        return uuid

    def counter(self, counter: CounterTrack, parent: int, rank: int) -> None:
        """Write one counter track and its points."""
        packet = self._packet()
        self._describe(packet, counter.name, parent, rank)
        packet.track_descriptor.counter.SetInParent()
        self._stream.write_packet(packet)
        uuid = packet.track_descriptor.uuid
        for at_ns, value in counter.points:
            event = self._event(at_ns, uuid, TrackEvent.TYPE_COUNTER)
            if isinstance(value, int):
                event.track_event.counter_value = value
            else:
                event.track_event.double_counter_value = value
            self._stream.write_packet(event)

    def slices(self, track: Track, uuid: int) -> None:
        """Write a track's slices as nested begins and ends, then its instants."""
        open_slices: list[Slice] = []
        for item in track.slices:
            while open_slices and open_slices[-1].end_ns <= item.start_ns:
                self._end(open_slices.pop(), uuid)
            self._begin(item, uuid)
            open_slices.append(item)
        while open_slices:
            self._end(open_slices.pop(), uuid)
        for instant in track.instants:
            self._stream.write_packet(self._named(instant, instant.at_ns, uuid, TrackEvent.TYPE_INSTANT))

    def _begin(self, item: Slice, uuid: int) -> None:
        packet = self._named(item, item.start_ns, uuid, TrackEvent.TYPE_SLICE_BEGIN)
        packet.track_event.flow_ids.extend(
            point.flow for point in item.flows if point.phase is not FlowPhase.END
        )
        self._stream.write_packet(packet)

    def _end(self, item: Slice, uuid: int) -> None:
        packet = self._event(item.end_ns, uuid, TrackEvent.TYPE_SLICE_END)
        packet.track_event.terminating_flow_ids.extend(
            point.flow for point in item.flows if point.phase is FlowPhase.END
        )
        self._stream.write_packet(packet)

    def _named(self, item: Slice | Instant, at_ns: int, uuid: int, kind: int) -> TracePacket:
        packet = self._event(at_ns, uuid, kind)
        event = packet.track_event
        event.name_iid = self._intern(packet, "event_names", item.name)
        if item.category:
            event.category_iids.append(self._intern(packet, "event_categories", item.category))
        for key, value in drawn_args(item).items():
            annotation = event.debug_annotations.add()
            annotation.name_iid = self._intern(packet, "debug_annotation_names", str(key))
            _set_value(annotation, value)
        return packet

    def _event(self, at_ns: int, uuid: int, kind: int) -> TracePacket:
        packet = self._packet()
        packet.timestamp = at_ns + self._moved_ns
        packet.track_event.type = kind
        packet.track_event.track_uuid = uuid
        return packet

    def _describe(self, packet: TracePacket, name: str, parent: int, rank: int) -> None:
        descriptor = packet.track_descriptor
        descriptor.uuid = next(self._uuids)
        descriptor.name = name
        descriptor.sibling_order_rank = rank
        # Viewers draw sibling tracks of equal name as one unless told otherwise.
        descriptor.sibling_merge_behavior = TrackDescriptor.SIBLING_MERGE_BEHAVIOR_NONE
        if parent:
            descriptor.parent_uuid = parent

    def _packet(self) -> TracePacket:
        packet = self._stream.create_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.sequence_flags = TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        if not self._started:
            packet.sequence_flags |= TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
            self._started = True
        return packet

    def _intern(self, packet: TracePacket, kind: str, text: str) -> int:
        """Return the id of `text`; the packet that uses it first carries the text itself."""
        key = (kind, text)
        if key not in self._interned:
            self._interned[key] = len(self._interned) + 1
            entry = getattr(packet.interned_data, kind).add()
            entry.iid = self._interned[key]
            entry.name = text
        return self._interned[key]


def _set_value(annotation: DebugAnnotation, value: Any) -> None:
    if isinstance(value, bool):
        annotation.bool_value = value
    elif isinstance(value, int) and -_INT64_MAX - 1 <= value <= _INT64_MAX:
        annotation.int_value = value
    elif isinstance(value, float):
        annotation.double_value = value
    elif isinstance(value, str):
        annotation.string_value = value
    else:
        annotation.string_value = msgspec.json.encode(value, enc_hook=str).decode()
