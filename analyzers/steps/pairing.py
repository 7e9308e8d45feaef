"""Which submit belongs to which wait: by an id, else by order where only one is possible.

See docs/metrics.md, Steps and lifecycles.

Rows are rows of `Endpoints`, hence in order of time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from analyzers.steps.endpoints import Endpoints
from analyzers.steps.steps import Steps
from analyzers.table.grouping import Rows, number_groups, split_groups
from analyzers.table.spans import ABSENT, Int64s, Mask


class IdPairs(NamedTuple):
    """Endpoints paired by one kind of id; `submits` and `waits` belong together, and so do `repeats` and `firsts`."""

    submits: Rows
    waits: Rows
    repeats: Rows
    """Further submits, or waits, of an id in flight: with them nobody knows which ends belong together."""
    firsts: Rows
    left: Rows
    """What has no such id, or no counterpart by it."""


def pair_by_id(endpoints: Endpoints, rows: Rows, ids: Int64s) -> IdPairs:
    """Pair those of `rows` whose process, callable and one of `ids` (a column of `endpoints`) are equal.

    An id that is used again after its dispatch has completed begins another generation, which pairs for itself. Two ends
    of one step that name different dispatches are no pair.
    """
    has_id = ids[rows] != ABSENT
    keyed = rows[has_id]
    keys = number_groups(endpoints.group[keyed], ids[keyed])
    submit, submits, wait, waits = _ends_of_keys(endpoints, keyed, keys)
    if (submits > 1).any() or (waits > 1).any():
        keys = number_groups(keys, _generations(endpoints, keyed, keys, (submits > 1) | (waits > 1)))
        submit, submits, wait, waits = _ends_of_keys(endpoints, keyed, keys)
    one_each = (submits == 1) & (waits == 1)
    dispatches = endpoints.dispatch_id[submit], endpoints.dispatch_id[wait]
    disagree = one_each & (dispatches[0] != dispatches[1])
    disagree &= (dispatches[0] != ABSENT) & (dispatches[1] != ABSENT)
    paired = np.flatnonzero(one_each & ~disagree)
    first = np.where(endpoints.is_wait[keyed], wait[keys], submit[keys])
    again = keyed != first
    without_counterpart = disagree | (submits == 0) | (waits == 0)
    left = np.sort(np.concatenate([rows[~has_id], keyed[~again & without_counterpart[keys]]]))
    return IdPairs(submit[paired], wait[paired], keyed[again], first[again], left)


def _generations(endpoints: Endpoints, rows: Rows, keys: Rows, several: Mask) -> Int64s:
    """Which use of its key each of `rows` belongs to, counted from 0; keys not in `several` have one use."""
    found = np.zeros(len(rows), dtype=np.int64)
    used_again = np.flatnonzero(several[keys])
    for members in split_groups(keys[used_again]):
        chosen = used_again[members]
        found[chosen] = _uses(
            endpoints.is_wait[rows[chosen]].tolist(),
            endpoints.start_ns[rows[chosen]].tolist(),
            endpoints.end_ns[rows[chosen]].tolist(),
        )
    return found


def _uses(is_wait: list[bool], starts: list[int], ends: list[int]) -> list[int]:
    """Count the uses of one id: another begins with a submit after every submit before it has completed."""
    uses = []
    use = in_flight = completed = 0
    for index, (waits, start, end) in enumerate(zip(is_wait, starts, ends, strict=True)):
        if not waits and index and in_flight <= 0 and start >= completed:
            use, in_flight = use + 1, 0
        in_flight += -1 if waits else 1
        completed = max(completed, end) if index else end
        uses.append(use)
    return uses


def _ends_of_keys(endpoints: Endpoints, rows: Rows, keys: Rows) -> tuple[Rows, Rows, Rows, Rows]:
    """For each key the first submit (row 0 where there is none) and the number of submits; the same of waits."""
    count = int(keys.max(initial=-1)) + 1
    found: list[Rows] = []
    for is_end in (~endpoints.is_wait[rows], endpoints.is_wait[rows]):
        first = np.zeros(count, dtype=np.intp)
        # The last value assigned stays: backwards, that is the first row.
        first[keys[is_end][::-1]] = rows[is_end][::-1]
        found += [first, np.bincount(keys[is_end], minlength=count)]
    return found[0], found[1], found[2], found[3]


class OrderedGroup(NamedTuple):
    """The submits and waits without ids of one process and callable."""

    submits: Rows
    waits: Rows
    """Those that begin after the first submit: one before it belongs to a submit before the profile window."""
    why_not: str | None
    """Why the n-th wait need not belong to the n-th submit; None when it must."""


def pair_by_order(endpoints: Endpoints, rows: Rows, by_id: Steps, depth: int) -> Iterator[OrderedGroup]:
    """The groups of `rows` that carry no id themselves.

    `by_id` are the steps that ids paired, `depth` is how many may be in flight.
    """
    eligible = rows[~endpoints.has_explicit_id[rows]]
    groups = endpoints.group[by_id.submit]
    by_group = {int(groups[steps[0]]): by_id.select(steps) for steps in split_groups(groups)}
    for members in split_groups(endpoints.group[eligible]):
        group = eligible[members]
        submits, waits = group[~endpoints.is_wait[group]], group[endpoints.is_wait[group]]
        if not len(submits) or not len(waits):
            continue
        inside = waits[endpoints.start_ns[waits] >= endpoints.start_ns[submits[0]]]
        why_not = _why_ambiguous(endpoints, submits, inside, depth)
        known = by_group.get(int(endpoints.group[submits[0]]))
        if why_not is None and known is not None:
            why_not = _why_contradicted(endpoints, submits, inside, known)
        yield OrderedGroup(submits, inside, why_not)


def _why_ambiguous(endpoints: Endpoints, submits: Rows, waits: Rows, depth: int) -> str | None:
    """Why the submits and waits alone do not tell which belong together; None when they do."""
    count = min(len(submits), len(waits))
    starts, returns = endpoints.start_ns[submits[:count]], endpoints.end_ns[submits[:count]]
    ends = endpoints.end_ns[waits[:count]]
    if (np.diff(ends) < 0).any():
        return "complete out of order"
    if (endpoints.start_ns[waits[:count]] < starts).any():
        return "some wait starts before its turn to be submitted"
    turn = np.arange(1, count + 1)
    completed = np.minimum(np.searchsorted(ends, returns, side="right"), turn)
    in_flight = int((turn - completed).max(initial=0))
    if in_flight > depth:
        return f"{in_flight} would be in flight, more than {depth}"
    one_open_at_the_end = len(submits) == len(waits) + 1 and in_flight <= 1
    if len(submits) != len(waits) and not one_open_at_the_end:
        return "their numbers differ"
    return None


def _why_contradicted(endpoints: Endpoints, submits: Rows, waits: Rows, known: Steps) -> str | None:
    """Which of the known steps pairs made by order would overtake, or be overtaken by; None for no such step."""
    count = min(len(submits), len(waits))
    starts, ends = endpoints.start_ns[submits[:count]], endpoints.end_ns[waits[:count]]
    # What is submitted no later must complete no later: of those the latest end decides, of the others the earliest.
    latest = np.maximum.accumulate(known.end_ns)
    earliest = np.minimum.accumulate(known.end_ns[::-1])[::-1]
    no_later = np.searchsorted(known.start_ns, starts, side="right")
    overtakes = (no_later > 0) & (latest[no_later - 1] > ends)
    overtakes |= (no_later < len(known)) & (earliest[np.minimum(no_later, len(known) - 1)] <= ends)
    if not overtakes.any():
        return None
    pair = int(overtakes.argmax())
    contradicts = (known.start_ns > starts[pair]) != (known.end_ns > ends[pair])
    return f"would complete out of order with {known[int(contradicts.argmax())].submit.label}"


def pair_across_processes(endpoints: Endpoints, rows: Rows) -> tuple[Rows, Rows]:
    """Submits and waits of one callable and id of which there is one each, recorded by different processes."""
    explicit = rows[(endpoints.dispatch_id[rows] != ABSENT) | (endpoints.step_id[rows] != ABSENT)]
    by_dispatch = endpoints.dispatch_id[explicit] != ABSENT
    ids = np.where(by_dispatch, endpoints.dispatch_id[explicit], endpoints.step_id[explicit])
    keys = number_groups(endpoints.callable[explicit], by_dispatch, ids)
    submit, submits, wait, waits = _ends_of_keys(endpoints, explicit, keys)
    crossed = (submits == 1) & (waits == 1) & (endpoints.process[submit] != endpoints.process[wait])
    chosen = np.flatnonzero(crossed)
    chosen = chosen[np.argsort(np.minimum(submit, wait)[chosen])]
    return submit[chosen], wait[chosen]


def without(rows: Rows, taken: Rows) -> Rows:
    """`rows` less those taken."""
    return rows[~np.isin(rows, taken)]
