"""Draft records: what speculative decoding drafted and kept in each step, `{"drafted": 3, "accepted": 2}` a line."""

from __future__ import annotations

from analyzers.readers.files import OpenedFile
from analyzers.readers.observations.acceptance import acceptance
from analyzers.readers.observations.observation import Observation, ObservedFile, report_of
from analyzers.readers.observations.records import (
    BadRecordError,
    Record,
    count,
    first_record,
    read_records,
)


def looks_like(opened: OpenedFile) -> bool:
    """Whether the first record counts drafts."""
    return _is_step(first_record(opened))


def read(opened: OpenedFile) -> ObservedFile:
    """How many drafts were accepted, over all steps."""
    steps = read_records(opened, _is_step, _counts)
    drafted, accepted = sum(step[0] for step in steps), sum(step[1] for step in steps)
    figures = acceptance(len(steps), drafted, accepted)
    observation = Observation(opened.name, "draft steps", len(steps), figures)
    return ObservedFile(observation, report_of(opened.name, observation.n, opened.issues))


def _is_step(record: Record) -> bool:
    return record.keys() >= {"drafted", "accepted"}


def _counts(record: Record) -> tuple[int, int]:
    drafted, accepted = count(record.get("drafted")), count(record.get("accepted"))
    if accepted > drafted:
        raise BadRecordError(f"{accepted} drafts accepted of {drafted}")
    return drafted, accepted
