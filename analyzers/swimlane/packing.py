"""Putting slices on lanes so that overlap is never mistaken for nesting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analyzers.swimlane.model import Slice

Unit = Sequence[Slice]
"""Slices that stay together, such as those of one invocation."""


def drawing_order(slices: Iterable[Slice]) -> list[Slice]:
    """Sort by start, enclosing slices before the ones they enclose."""
    return sorted(slices, key=lambda item: (item.start_ns, -item.end_ns, item.order))


def nest(slices: Iterable[Slice]) -> list[list[Slice]]:
    """Split slices that belong together into as few lanes as needed for each to hold proper nesting only.

    A slice goes inside the open slice that holds it most closely, else to a lane that is free, else to a new
    one. Lanes are in drawing order.
    """
    lanes: list[list[Slice]] = []
    stacks: list[list[Slice]] = []
    for item in drawing_order(slices):
        for stack in stacks:
            while stack and stack[-1].end_ns <= item.start_ns:
                stack.pop()
        holding = [index for index, stack in enumerate(stacks) if stack and item.end_ns <= stack[-1].end_ns]
        if holding:
            index = max(holding, key=lambda index: stacks[index][-1].start_ns)
        else:
            index = next((index for index, stack in enumerate(stacks) if not stack), len(lanes))
        if index == len(lanes):
            lanes.append([])
            stacks.append([])
        lanes[index].append(item)
        stacks[index].append(item)
    return lanes


def pack(units: Iterable[Unit]) -> list[list[Unit]]:
    """Put units (an invocation, a request, ...) on as few lanes as needed for no two to share any time."""
    lanes: list[list[Unit]] = []
    free_from: list[int] = []
    for unit in sorted(units, key=_extent):
        start_ns, end_ns = _extent(unit)
        index = next((index for index, free_ns in enumerate(free_from) if free_ns <= start_ns), len(lanes))
        if index == len(lanes):
            lanes.append([])
            free_from.append(end_ns)
        lanes[index].append(unit)
        free_from[index] = end_ns
    return lanes


def nest_each(units: Iterable[Unit]) -> list[list[Slice]]:
    """Split the units of one lane as `nest` does, each on its own: no unit lies inside another one's slice."""
    lanes: list[list[Slice]] = []
    for unit in units:
        for index, nested in enumerate(nest(unit)):
            if index == len(lanes):
                lanes.append([])
            lanes[index] += nested
    return lanes


def _extent(unit: Unit) -> tuple[int, int]:
    return min(item.start_ns for item in unit), max(item.end_ns for item in unit)
