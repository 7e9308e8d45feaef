"""Pairing of submits with waits, and what is wrong with the lifecycles (docs/metrics.md, Steps and lifecycles)."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from analyzers.steps.endpoints import Endpoint, Endpoints, SpanReference, find_endpoints
from analyzers.steps.faults import (
    LifecycleFault,
    LifecycleFaultKind,
    depth_faults,
    preparation_faults,
    slot_faults,
)
from analyzers.steps.pairing import OrderedGroup, pair_across_processes, pair_by_id, pair_by_order, without
from analyzers.steps.step_spans import StepSpans
from analyzers.steps.steps import PAIRED_BY, PairedBy, Steps, join_steps
from analyzers.table.callables import RUN, callable_of, is_prefill
from analyzers.table.grouping import Rows, number_groups, split_groups, turns
from analyzers.table.intervals import IntervalSet
from analyzers.table.spans import ABSENT, Source, SpanTable

EdgeKind = Literal["open_at_start", "open_at_end"]

ASSUMED_DEPTH = 2
"""Dispatches the runtime lets be in flight; used for pairing by order and for edges when no depth is declared."""


class Edge(msgspec.Struct, frozen=True):
    """A lifecycle cut by the profile window: information, not a fault."""

    kind: EdgeKind
    callable: str
    span: SpanReference


class CrossProcessPair(msgspec.Struct, frozen=True):
    """A submit and a wait of one id that two processes recorded: no latency is made of two clocks."""

    callable: str
    id: str
    wait_end_minus_submit_start_ns: int
    submit: SpanReference
    wait: SpanReference

    @property
    def violates_causality(self) -> bool:
        """Whether the completion is stamped before the submission: the clocks are not comparable."""
        return self.wait_end_minus_submit_start_ns < 0


@dataclass
class Lifecycle:
    """All lifecycles of a serving trace. `steps` are the valid ones, in order of submission."""

    endpoints: Endpoints
    """Every submit and wait, paired or not: what tells consecutive steps from ones with a gap between."""
    steps: Steps
    failed: Steps
    """Pairs of dispatches that ended with an error: when they did says nothing about how long a step takes."""
    faults: list[LifecycleFault]
    edges: list[Edge]
    cross_process: list[CrossProcessPair]
    depth: int | None
    """The declared depth; None when the input declares none."""
    spans: SpanTable
    """What all of it was found in."""

    def of(self, callable_name: str) -> Steps:
        """The valid steps of one callable, in order of submission."""
        return self.steps.of(callable_name)

    def neighbours(self, callable_name: str) -> tuple[Steps, Steps]:
        """Valid steps of one callable and process, and those that follow them with no other submission between."""
        before, following = self._consecutive
        pairs = self._pairs_of_callable.get(callable_name, np.empty(0, dtype=np.intp))
        return self.steps.select(before[pairs]), self.steps.select(following[pairs])

    def step_spans(self, suffix: str) -> StepSpans:
        """The spans of steps whose name ends in `suffix`; looked for once."""
        if suffix not in self._step_spans:
            self._step_spans[suffix] = StepSpans(self.spans, suffix)
        return self._step_spans[suffix]

    @functools.cached_property
    def prefills(self) -> IntervalSet:
        """When a prefill was in flight: blocking runs and submitted ones."""
        spans = self.spans
        blocking = np.flatnonzero((spans.source == Source.SERVING) & spans.where_name(_is_prefill_run))
        submitted = [self.of(name) for name in self.steps.callables if is_prefill(name)]
        return IntervalSet(
            np.concatenate([spans.start_ns[blocking], *(steps.start_ns for steps in submitted)]),
            np.concatenate(
                [
                    spans.start_ns[blocking] + spans.duration_ns[blocking],
                    *(steps.end_ns for steps in submitted),
                ]
            ),
        )

    @functools.cached_property
    def _step_spans(self) -> dict[str, StepSpans]:
        return {}

    @functools.cached_property
    def _consecutive(self) -> tuple[Rows, Rows]:
        """Neighbours of every callable, as positions in `steps`, in order of submission."""
        ends = self.endpoints
        submits = np.flatnonzero(~ends.is_wait)
        submits = submits[np.argsort(ends.group[submits], kind="stable")]
        step_of = np.full(len(ends), ABSENT, dtype=np.intp)
        step_of[self.steps.submit] = np.arange(len(self.steps))
        first, second = submits[:-1], submits[1:]
        both_valid = (step_of[first] != ABSENT) & (step_of[second] != ABSENT)
        chosen = both_valid & (ends.group[first] == ends.group[second])
        before, following = step_of[first[chosen]], step_of[second[chosen]]
        in_order = np.argsort(before)
        return before[in_order], following[in_order]

    @functools.cached_property
    def _pairs_of_callable(self) -> dict[str, Rows]:
        """Callable -> positions in `_consecutive`."""
        names, codes = self.endpoints.callables, self.steps.callable[self._consecutive[0]]
        return {names[codes[pairs[0]]]: pairs for pairs in split_groups(codes)}


def check_lifecycles(spans: SpanTable, invalid: SpanTable, *, depth: int | None = None) -> Lifecycle:
    """Pair every submit with its wait and list everything that is not a valid lifecycle, in order of time.

    `invalid` holds the spans with negative durations, `depth` the declared dispatches in flight (None: unknown).
    Pairing by order assumes the runtime's limit of two when no depth is declared.
    """
    pairing = _Pairing(find_endpoints(spans, invalid), depth or ASSUMED_DEPTH)
    pairing.run()
    steps = pairing.steps
    faults = [*pairing.faults, *slot_faults(steps)]
    if depth is not None:
        faults += [*depth_faults(steps, depth), *preparation_faults(spans, depth)]
    faults.sort(key=lambda fault: (fault.spans[0].start_ns, fault.kind, fault.detail))
    return Lifecycle(
        endpoints=pairing.endpoints,
        steps=steps,
        failed=pairing.failed,
        faults=faults,
        edges=pairing.edges,
        cross_process=pairing.cross_process,
        depth=depth,
        spans=spans,
    )


def _is_prefill_run(name: str) -> bool:
    found = callable_of(name)
    return found is not None and name.endswith(RUN) and is_prefill(found)


class _Pairing:
    """Pairs endpoints, the most trustworthy identity first, and says what is wrong with those it cannot pair."""

    def __init__(self, endpoints: Endpoints, depth: int) -> None:
        self.endpoints = endpoints
        self.faults: list[LifecycleFault] = []
        self.edges: list[Edge] = []
        self.cross_process: list[CrossProcessPair] = []
        self._depth = depth
        self._left: Rows = np.arange(len(endpoints))
        self._valid: list[Steps] = []
        self._failed: list[Steps] = []

    @property
    def steps(self) -> Steps:
        """The valid pairs, in order of submission."""
        return join_steps(self.endpoints, self._valid)

    @property
    def failed(self) -> Steps:
        """The pairs of dispatches that ended with an error."""
        return join_steps(self.endpoints, self._failed)

    def run(self) -> None:
        self._pair_by_ids()
        self._name_unusable_ids()
        self._pair_by_order()
        self._pair_across_processes()
        self._classify_unpaired()

    def _pair_by_ids(self) -> None:
        columns = (self.endpoints.dispatch_id, self.endpoints.step_id, self.endpoints.any_step_id)
        for paired_by, ids in zip(PAIRED_BY, columns, strict=False):
            found = pair_by_id(self.endpoints, self._left, ids)
            self._left = found.left
            self._accept(found.submits, found.waits, paired_by)
            for row, first in zip(found.repeats.tolist(), found.firsts.tolist(), strict=True):
                self._add_duplicate(self.endpoints[row], self.endpoints[first])

    def _name_unusable_ids(self) -> None:
        """What names an id that is none, and no other that pairs it, is a fault: order says nothing about it."""
        unusable = self._left[self.endpoints.unusable_id[self._left]]
        self._left = without(self._left, unusable)
        for row in unusable.tolist():
            end = self.endpoints[row]
            detail = f"the id of a {end.role} cannot be used, such as null: it is paired with nothing"
            self.faults.append(LifecycleFault("unusable_id", end.callable, detail, [end.reference()]))

    def _pair_by_order(self) -> None:
        taken = [np.empty(0, dtype=np.intp)]
        for group in pair_by_order(self.endpoints, self._left, self.steps, self._depth):
            submits, waits = group.submits, group.waits
            if group.why_not is not None:
                self._add_ambiguous(group)
            else:
                submits = submits[: len(waits)]
                self._accept(submits, waits, "order")
            taken += [submits, waits]
        self._left = without(self._left, np.concatenate(taken))

    def _pair_across_processes(self) -> None:
        submits, waits = pair_across_processes(self.endpoints, self._left)
        self._left = without(self._left, np.concatenate([submits, waits]))
        for submit, wait in zip(submits.tolist(), waits.tolist(), strict=True):
            self._add_cross_process(self.endpoints[submit], self.endpoints[wait])

    def _accept(self, submits: Rows, waits: Rows, paired_by: PairedBy) -> None:
        """Take pairs as steps if they are valid, as faults if they are not."""
        ends = self.endpoints
        negative = ends.end_ns[submits] < ends.start_ns[submits]
        negative |= ends.end_ns[waits] < ends.start_ns[waits]
        good = ~negative & (ends.end_ns[submits] <= ends.start_ns[waits])
        has_failed = ends.failed[waits]
        codes = np.full(len(submits), PAIRED_BY.index(paired_by), dtype=np.int8)
        pairs = Steps(ends, submits, waits, codes)
        self._valid.append(pairs.select(good & ~has_failed))
        self._failed.append(pairs.select(good & has_failed))
        for index in np.flatnonzero(~good).tolist():
            self._add_invalid(ends[submits[index]], ends[waits[index]])

    def _add_invalid(self, submit: Endpoint, wait: Endpoint) -> None:
        """A pair with a negative duration, or whose wait begins too early."""
        spans = [submit.reference(), wait.reference()]
        for endpoint in (submit, wait):
            if endpoint.interval.duration_ns < 0:
                self.faults.append(
                    LifecycleFault("negative_duration", submit.callable, _lasts(endpoint), spans)
                )
                return
        early = submit.interval.end_ns - wait.interval.start_ns
        detail = f"the wait of {submit.label} starts {early} ns before its submit ends"
        nested = (
            submit.lane == wait.lane
            and submit.interval.start_ns <= wait.interval.start_ns
            and wait.interval.end_ns <= submit.interval.end_ns
        )
        if nested:
            detail += "; it lies inside its submit on the same thread: the engine fell back to blocking"
        self.faults.append(LifecycleFault("wait_before_submit_end", submit.callable, detail, spans))

    def _add_duplicate(self, again: Endpoint, first: Endpoint) -> None:
        kind: LifecycleFaultKind = "duplicate_submit" if again.role == "submit" else "duplicate_wait"
        times = f"at {again.interval.start_ns} ns, after the one at {first.interval.start_ns} ns"
        if again.role == "submit":
            detail = f"{again.label} is submitted again while in flight, {times}: none of its spans is paired"
        else:
            detail = f"{again.label} has a second wait, {times}: none of its spans is paired"
        self.faults.append(
            LifecycleFault(kind, again.callable, detail, [again.reference(), first.reference()])
        )

    def _add_ambiguous(self, group: OrderedGroup) -> None:
        counts = f"{len(group.submits)} submits and {len(group.waits)} waits"
        detail = f"{counts} carry no id and {group.why_not}: none is paired"
        first = [self.endpoints[row] for row in (*group.submits[:1], *group.waits[:1])]
        spans = [endpoint.reference() for endpoint in first]
        self.faults.append(LifecycleFault("ambiguous", first[0].callable, detail, spans))

    def _add_cross_process(self, submit: Endpoint, wait: Endpoint) -> None:
        """Two ends of one id that different processes recorded."""
        difference = wait.interval.end_ns - submit.interval.start_ns
        pair = CrossProcessPair(
            submit.callable, submit.label, difference, submit.reference(), wait.reference()
        )
        self.cross_process.append(pair)
        detail = f"{pair.id} was submitted by process {pair.submit.pid} and waited for by {pair.wait.pid}"
        if pair.violates_causality:
            detail += f": it ends {-difference} ns before it starts, their clocks are not comparable"
        self.faults.append(LifecycleFault("cross_process", submit.callable, detail, [pair.submit, pair.wait]))

    def _classify_unpaired(self) -> None:
        """Tell what the profile window cut from what is missing.

        At most `depth` dispatches of a process and callable are in flight when the window opens or closes: waits before
        the first complete lifecycle's wait, and submits after the last one's submit.
        """
        ends, left, steps = self.endpoints, self._left, self.steps
        groups = number_groups(ends.group)
        first_wait = np.full(len(ends), np.iinfo(np.int64).max)
        np.minimum.at(first_wait, groups[steps.submit], steps.wait_start_ns)
        last_submit = np.full(len(ends), np.iinfo(np.int64).min)
        np.maximum.at(last_submit, groups[steps.submit], steps.start_ns)
        early = left[ends.is_wait[left] & (ends.start_ns[left] < first_wait[groups[left]])]
        early = early[turns(groups[early]) < self._depth]
        late = left[~ends.is_wait[left] & (ends.start_ns[left] > last_submit[groups[left]])][::-1]
        late = late[turns(groups[late]) < self._depth][::-1]
        first_left = np.full(len(ends), len(ends))
        np.minimum.at(first_left, groups[left], left)
        # By process and callable, each group in the place of its first endpoint.
        for row in sorted(
            [*early.tolist(), *late.tolist()],
            key=lambda row: (first_left[groups[row]], ~ends.is_wait[row], row),
        ):
            kind: EdgeKind = "open_at_start" if ends.is_wait[row] else "open_at_end"
            self.edges.append(Edge(kind, ends[row].callable, ends[row].reference()))
        for row in without(left, np.concatenate([early, late])).tolist():
            self._add_unpaired(ends[row])

    def _add_unpaired(self, endpoint: Endpoint) -> None:
        kind: LifecycleFaultKind = (
            "submit_without_wait" if endpoint.role == "submit" else "wait_without_submit"
        )
        detail = f"the {endpoint.role} of {endpoint.label} has no counterpart"
        if endpoint.interval.duration_ns < 0:
            kind, detail = "negative_duration", _lasts(endpoint)
        self.faults.append(LifecycleFault(kind, endpoint.callable, detail, [endpoint.reference()]))


def _lasts(endpoint: Endpoint) -> str:
    return f"the {endpoint.role} of {endpoint.label} lasts {endpoint.interval.duration_ns} ns"
