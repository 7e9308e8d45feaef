"""What is wrong with the lifecycles of paired steps: slots, depth and preparation (docs/metrics.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec
import numpy as np

from analyzers.steps.endpoints import SpanReference, span_reference
from analyzers.steps.step_spans import PREPARE_SPAN, RECLAIM_SPAN, StepSpans
from analyzers.steps.steps import Steps
from analyzers.table.grouping import split_groups
from analyzers.table.intervals import open_at
from analyzers.table.spans import ABSENT, SpanTable, is_number

LifecycleFaultKind = Literal[
    "wait_before_submit_end",
    "submit_without_wait",
    "wait_without_submit",
    "duplicate_submit",
    "duplicate_wait",
    "negative_duration",
    "slot_reused_in_flight",
    "depth_exceeded",
    "ambiguous",
    "cross_process",
    "prepared_before_reclaim",
    "unusable_id",
]


class LifecycleFault(msgspec.Struct, frozen=True):
    """One violation of a valid lifecycle, with the spans it is about."""

    kind: LifecycleFaultKind
    callable: str
    detail: str
    spans: list[SpanReference]


def slot_faults(steps: Steps) -> Iterator[LifecycleFault]:
    """A slot may be submitted again only after the dispatch that holds it completed."""
    holders: dict[tuple[int, int], tuple[int, int]] = {}
    columns = (steps.process, steps.slot, steps.start_ns, steps.end_ns)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for index, (process, slot, start, end) in enumerate(rows):
        if slot == ABSENT:
            continue
        completed, holder = holders.get((process, slot), (start, ABSENT))
        if start < completed:
            step, held_by = steps[index], steps[holder]
            detail = (
                f"{step.submit.label} takes slot {step.submit.reference().slot} {completed - start} ns "
                f"before {held_by.submit.label}, which holds it, completes"
            )
            spans = [step.submit.reference(), held_by.wait.reference()]
            yield LifecycleFault("slot_reused_in_flight", step.callable, detail, spans)
        if holder == ABSENT or end > completed:
            holders[process, slot] = end, index


def depth_faults(steps: Steps, depth: int) -> Iterator[LifecycleFault]:
    """Count the dispatches in flight when a submit returns: a blocked submit is not in flight yet."""
    for rows in split_groups(steps.process):
        of_process = steps.select(rows)
        in_flight = open_at(of_process.submit_end_ns.tolist(), of_process.end_ns.tolist())
        for index, flying in enumerate(in_flight):
            if len(flying) <= depth:
                continue
            submit = of_process[index].submit
            detail = f"{len(flying)} dispatches in flight when {submit.label} is submitted, depth is {depth}"
            # As many of the others as it takes to exceed the depth.
            others = sorted(other for _, other in flying[: depth + 1] if other != index)[:depth]
            spans = [submit.reference(), *(of_process[other].submit.reference() for other in others)]
            yield LifecycleFault("depth_exceeded", submit.callable, detail, spans)


def preparation_faults(spans: SpanTable, depth: int) -> Iterator[LifecycleFault]:
    """Steps prepared before the step `depth` ahead of them, which holds their slot, was reclaimed."""
    prepared, reclaimed = StepSpans(spans, PREPARE_SPAN), StepSpans(spans, RECLAIM_SPAN)
    holders = reclaimed.find(prepared.processes, prepared.process, prepared.step_id - depth)
    positions = np.flatnonzero((holders != ABSENT) & is_number(prepared.step_id) & prepared.names_one_step)
    positions = positions[reclaimed.names_one_step[holders[positions]]]
    early = reclaimed.end_ns[holders[positions]] - prepared.start_ns[positions]
    for position, early_ns in zip(positions[early > 0].tolist(), early[early > 0].tolist(), strict=True):
        step_id = int(prepared.step_id[position])
        detail = f"step {step_id} is prepared {early_ns} ns before step {step_id - depth} is reclaimed"
        rows = (prepared.row[position], reclaimed.row[holders[position]])
        references = [span_reference(spans, int(row)) for row in rows]
        yield LifecycleFault("prepared_before_reclaim", "", detail, references)
