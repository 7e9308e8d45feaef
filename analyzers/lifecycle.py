"""Pairing of submits with waits, and what is wrong with the lifecycles (metrics.md, Steps and lifecycles)."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import msgspec

from analyzers.endpoints import Endpoint, SpanReference, by_process_and_callable, find_endpoints
from analyzers.rounds import Interval
from analyzers.spans import ABSENT, SpanTable

FaultKind = Literal[
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
]
PairedBy = Literal["dispatch_id", "step_id", "enclosing step_id", "order"]
EdgeKind = Literal["open_at_start", "open_at_end"]

ASSUMED_DEPTH = 2
"""Dispatches the runtime lets be in flight; used for pairing by order and for edges when no depth is declared."""

_UNFINISHED_NS = -1000


class Fault(msgspec.Struct, frozen=True):
    """One violation of a valid lifecycle, with the spans it is about."""

    kind: FaultKind
    callable: str
    detail: str
    spans: list[SpanReference]


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


@dataclass(frozen=True, slots=True)
class Step:
    """One dispatch with both ends: a valid pair."""

    callable: str
    submit: Endpoint
    wait: Endpoint
    paired_by: PairedBy

    @property
    def dispatch_id(self) -> int:
        """The dispatch_id of either end; ABSENT when neither has one."""
        return max(self.submit.dispatch_id, self.wait.dispatch_id)

    @property
    def step_id(self) -> int:
        """The step_id of either end or of the spans around them; ABSENT when there is none."""
        return max(self.submit.any_step_id, self.wait.any_step_id)

    @property
    def interval(self) -> Interval:
        """From submission to completion."""
        return Interval(self.submit.interval.start_ns, self.wait.interval.end_ns)

    @property
    def submit_to_completion_ns(self) -> int:
        """wait.end - submit.start."""
        return self.interval.duration_ns


@dataclass
class Lifecycle:
    """All lifecycles of a serving trace. `steps` are the valid ones, in order of submission."""

    steps: list[Step] = field(default_factory=list)
    failed: list[Step] = field(default_factory=list)
    """Pairs of dispatches that ended with an error: when they did says nothing about how long a step takes."""
    faults: list[Fault] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    cross_process: list[CrossProcessPair] = field(default_factory=list)
    submits: list[Endpoint] = field(default_factory=list)
    """Every submit, paired or not, in order: what tells consecutive steps from ones with a gap between."""
    depth: int | None = None
    """The declared depth; None when the input declares none."""

    def neighbours(self, callable_name: str) -> list[tuple[Step, Step]]:
        """Valid steps of one callable and process with no other submission of it between them."""
        by_submit = {id(step.submit): step for step in self.of(callable_name)}
        by_process: dict[Hashable, list[Endpoint]] = {}
        for submit in self.submits:
            if submit.callable == callable_name:
                by_process.setdefault(submit.process, []).append(submit)
        pairs = [
            (by_submit.get(id(first)), by_submit.get(id(second)))
            for submits in by_process.values()
            for first, second in pairwise(submits)
        ]
        return [(step, following) for step, following in pairs if step is not None and following is not None]

    def of(self, callable_name: str) -> list[Step]:
        """The valid steps of one callable, in order of submission."""
        return [step for step in self.steps if step.callable == callable_name]


def check_lifecycles(spans: SpanTable, invalid: SpanTable, *, depth: int | None = None) -> Lifecycle:
    """Pair every submit with its wait and list everything that is not a valid lifecycle.

    `invalid` holds the spans with negative durations, `depth` the declared dispatches in flight (None: unknown).
    Pairing by order assumes the runtime's limit of two when no depth is declared.
    """
    result = Lifecycle(depth=depth)
    # A span with dur -1 had not ended when the trace was written: as if it were not there yet.
    endpoints = [
        endpoint
        for endpoint in find_endpoints(spans, invalid)
        if endpoint.interval.duration_ns != _UNFINISHED_NS
    ]
    result.submits = [endpoint for endpoint in endpoints if endpoint.role == "submit"]
    left: list[Endpoint] = []
    for group in by_process_and_callable(endpoints).values():
        pairing = _Pairing(group, result, depth or ASSUMED_DEPTH)
        pairing.run()
        left += pairing.left
    left = _pair_across_processes(left, result)
    for group in by_process_and_callable(left).values():
        _classify_unpaired(group, result, depth or ASSUMED_DEPTH)
    result.steps.sort(key=lambda step: (step.submit.interval, step.wait.interval, step.dispatch_id))
    _check_slots(result)
    if depth is not None:
        _check_depth(result, depth)
    result.faults.sort(key=lambda fault: (fault.spans[0].start_ns, fault.kind, fault.detail))
    return result


class _Pairing:
    """Pairs the endpoints of one process and callable, most trustworthy identity first."""

    def __init__(self, endpoints: Sequence[Endpoint], result: Lifecycle, depth: int) -> None:
        self.left = list(endpoints)
        self._result = result
        self._depth = depth

    def run(self) -> None:
        self._pair_by("dispatch_id", lambda endpoint: endpoint.dispatch_id)
        self._pair_by("step_id", lambda endpoint: endpoint.step_id)
        self._pair_by("enclosing step_id", lambda endpoint: endpoint.any_step_id)
        self._pair_by_order()

    def _pair_by(self, paired_by: PairedBy, key_of: Callable[[Endpoint], int]) -> None:
        groups: dict[Hashable, tuple[list[Endpoint], list[Endpoint]]] = {}
        without_key = []
        for endpoint in self.left:
            key = key_of(endpoint)
            if key == ABSENT:
                without_key.append(endpoint)
            else:
                groups.setdefault(key, ([], []))[endpoint.role == "wait"].append(endpoint)
        left = without_key
        for submits, waits in groups.values():
            if len(submits) == 1 and len(waits) == 1:
                if _disagree(submits[0], waits[0]):
                    left += [submits[0], waits[0]]
                    continue
                _accept(submits[0], waits[0], paired_by, self._result)
                continue
            for duplicate in submits[1:]:
                self._add_duplicate("duplicate_submit", submits[0], duplicate)
            for duplicate in waits[1:]:
                self._add_duplicate("duplicate_wait", waits[0], duplicate)
            # With a duplicate on either side nobody knows which end belongs to which: no latency is made of them.
            if not (submits and waits):
                left += submits[:1] + waits[:1]
        self.left = left

    def _add_duplicate(
        self, kind: Literal["duplicate_submit", "duplicate_wait"], first: Endpoint, again: Endpoint
    ) -> None:
        detail = f"{again.label} has a second {again.role}: none of its spans is paired"
        fault = Fault(
            kind=kind, callable=again.callable, detail=detail, spans=[again.reference(), first.reference()]
        )
        self._result.faults.append(fault)

    def _pair_by_order(self) -> None:
        eligible = [endpoint for endpoint in self.left if not endpoint.has_explicit_id]
        submits = [endpoint for endpoint in eligible if endpoint.role == "submit"]
        waits = [endpoint for endpoint in eligible if endpoint.role == "wait"]
        if not submits or not waits:
            return
        # A wait that starts before any submit did belongs to a submit before the profile window.
        inside = [wait for wait in waits if wait.interval.start_ns >= submits[0].interval.start_ns]
        by_id = [
            step for step in self._result.of(submits[0].callable) if step.submit.process == submits[0].process
        ]
        reason = _why_order_is_ambiguous(submits, inside, self._depth) or _why_order_contradicts(
            submits, inside, by_id
        )
        if reason is not None:
            detail = (
                f"{len(submits)} submits and {len(inside)} waits carry no id and {reason}: none is paired"
            )
            spans = [endpoint.reference() for endpoint in (submits[0], *inside[:1])]
            fault = Fault(kind="ambiguous", callable=submits[0].callable, detail=detail, spans=spans)
            self._result.faults.append(fault)
            unpaired = {id(endpoint) for endpoint in submits + inside}
        else:
            for submit, wait in zip(submits, inside, strict=False):
                _accept(submit, wait, "order", self._result)
            unpaired = {id(endpoint) for endpoint in submits[: len(inside)] + inside}
        self.left = [endpoint for endpoint in self.left if id(endpoint) not in unpaired]


def _disagree(submit: Endpoint, wait: Endpoint) -> bool:
    """Whether both carry a dispatch_id and the two differ, whatever step they name."""
    return ABSENT not in (submit.dispatch_id, wait.dispatch_id) and submit.dispatch_id != wait.dispatch_id


def _why_order_is_ambiguous(submits: Sequence[Endpoint], waits: Sequence[Endpoint], depth: int) -> str | None:
    """Why the n-th wait need not belong to the n-th submit; None when it must."""
    pairs = list(zip(submits, waits, strict=False))
    ends = [wait.interval.end_ns for _, wait in pairs]
    if ends != sorted(ends):
        return "complete out of order"
    if any(wait.interval.start_ns < submit.interval.start_ns for submit, wait in pairs):
        return "some wait starts before its turn to be submitted"
    in_flight = max(
        (
            index + 1 - bisect.bisect_right(ends, submit.interval.end_ns, hi=index + 1)
            for index, (submit, _) in enumerate(pairs)
        ),
        default=0,
    )
    if in_flight > depth:
        return f"{in_flight} would be in flight, more than {depth}"
    one_open_at_the_end = len(submits) == len(waits) + 1 and in_flight <= 1
    if len(submits) != len(waits) and not one_open_at_the_end:
        return "their numbers differ"
    return None


def _why_order_contradicts(
    submits: Sequence[Endpoint], waits: Sequence[Endpoint], by_id: Sequence[Step]
) -> str | None:
    """Why pairs made by order would overtake steps paired by an id; None when they keep their place."""
    for submit, wait in zip(submits, waits, strict=False):
        for step in by_id:
            submitted_later = step.submit.interval.start_ns > submit.interval.start_ns
            completed_later = step.wait.interval.end_ns > wait.interval.end_ns
            if submitted_later != completed_later:
                return f"would complete out of order with {step.submit.label}"
    return None


def _accept(submit: Endpoint, wait: Endpoint, paired_by: PairedBy, result: Lifecycle) -> None:
    """Take one pair as a step if it is valid, as a fault if it is not."""
    spans = [submit.reference(), wait.reference()]
    for endpoint in (submit, wait):
        if endpoint.interval.duration_ns < 0:
            detail = f"the {endpoint.role} of {endpoint.label} lasts {endpoint.interval.duration_ns} ns"
            result.faults.append(Fault("negative_duration", submit.callable, detail, spans))
            return
    early = submit.interval.end_ns - wait.interval.start_ns
    if early <= 0 and wait.failed:
        result.failed.append(Step(submit.callable, submit, wait, paired_by))
        return
    if early <= 0:
        result.steps.append(Step(submit.callable, submit, wait, paired_by))
        return
    detail = f"the wait of {submit.label} starts {early} ns before its submit ends"
    nested = (
        submit.lane == wait.lane
        and submit.interval.start_ns <= wait.interval.start_ns
        and wait.interval.end_ns <= submit.interval.end_ns
    )
    if nested:
        detail += "; it lies inside its submit on the same thread: the engine fell back to blocking"
    result.faults.append(Fault("wait_before_submit_end", submit.callable, detail, spans))


def _pair_across_processes(left: Sequence[Endpoint], result: Lifecycle) -> list[Endpoint]:
    """Recognize ids whose two ends different processes recorded; returns the endpoints that remain."""
    groups: dict[tuple[str, str], list[Endpoint]] = {}
    for endpoint in left:
        if endpoint.has_explicit_id:
            groups.setdefault((endpoint.callable, endpoint.label), []).append(endpoint)
    crossed: set[int] = set()
    for (callable_name, label), group in groups.items():
        submits = [endpoint for endpoint in group if endpoint.role == "submit"]
        waits = [endpoint for endpoint in group if endpoint.role == "wait"]
        if len(submits) != 1 or len(waits) != 1 or submits[0].process == waits[0].process:
            continue
        submit, wait = submits[0], waits[0]
        difference = wait.interval.end_ns - submit.interval.start_ns
        pair = CrossProcessPair(callable_name, label, difference, submit.reference(), wait.reference())
        result.cross_process.append(pair)
        detail = f"{label} was submitted by process {pair.submit.pid} and waited for by {pair.wait.pid}"
        if pair.violates_causality:
            detail += f": it ends {-difference} ns before it starts, their clocks are not comparable"
        result.faults.append(Fault("cross_process", callable_name, detail, [pair.submit, pair.wait]))
        crossed |= {id(submit), id(wait)}
    return [endpoint for endpoint in left if id(endpoint) not in crossed]


def _classify_unpaired(left: Sequence[Endpoint], result: Lifecycle, depth: int) -> None:
    """Tell what the profile window cut from what is missing, for one process and callable.

    At most `depth` dispatches are in flight when the window opens or closes: waits before the first complete
    lifecycle's wait, and submits after the last one's submit.
    """
    process, callable_name = left[0].process, left[0].callable
    steps = [step for step in result.of(callable_name) if step.submit.process == process]
    first_wait = min((step.wait.interval.start_ns for step in steps), default=None)
    last_submit = max((step.submit.interval.start_ns for step in steps), default=None)
    waits = [endpoint for endpoint in left if endpoint.role == "wait"]
    early = [wait for wait in waits if first_wait is None or wait.interval.start_ns < first_wait][:depth]
    submits = [endpoint for endpoint in left if endpoint.role == "submit"]
    late = [item for item in submits if last_submit is None or item.interval.start_ns > last_submit][-depth:]
    edges: list[tuple[EdgeKind, list[Endpoint]]] = [("open_at_start", early), ("open_at_end", late)]
    for kind, endpoints in edges:
        result.edges += [Edge(kind, callable_name, endpoint.reference()) for endpoint in endpoints]
    at_edge = {id(endpoint) for endpoint in early + late}
    for endpoint in left:
        if id(endpoint) in at_edge:
            continue
        fault_kind: FaultKind = "submit_without_wait" if endpoint.role == "submit" else "wait_without_submit"
        detail = f"the {endpoint.role} of {endpoint.label} has no counterpart"
        if endpoint.interval.duration_ns < 0:
            fault_kind = "negative_duration"
            detail = f"the {endpoint.role} of {endpoint.label} lasts {endpoint.interval.duration_ns} ns"
        result.faults.append(Fault(fault_kind, callable_name, detail, [endpoint.reference()]))


def _check_slots(result: Lifecycle) -> None:
    """A slot may be submitted again only after the dispatch that holds it completed."""
    holders: dict[Hashable, Step] = {}
    for step in result.steps:
        slot = max(step.submit.slot, step.wait.slot)
        if slot == ABSENT:
            continue
        key = (step.submit.process, slot)
        holder = holders.get(key)
        if holder is not None and step.interval.start_ns < holder.interval.end_ns:
            detail = (
                f"{step.submit.label} takes slot {slot} {holder.interval.end_ns - step.interval.start_ns} ns "
                f"before {holder.submit.label}, which holds it, completes"
            )
            spans = [step.submit.reference(), holder.wait.reference()]
            result.faults.append(Fault("slot_reused_in_flight", step.callable, detail, spans))
        if holder is None or step.interval.end_ns > holder.interval.end_ns:
            holders[key] = step


def _check_depth(result: Lifecycle, depth: int) -> None:
    """Count the dispatches in flight when a submit returns: a blocked submit is not in flight yet."""
    in_flight: dict[Hashable, list[Step]] = {}
    for step in result.steps:
        process = step.submit.process
        returned = step.submit.interval.end_ns
        flying = [other for other in in_flight.get(process, []) if other.interval.end_ns > returned]
        flying.append(step)
        in_flight[process] = flying
        if len(flying) > depth:
            detail = (
                f"{len(flying)} dispatches in flight when {step.submit.label} is submitted, depth is {depth}"
            )
            spans = [step.submit.reference(), *(other.submit.reference() for other in flying[:-1])]
            result.faults.append(Fault("depth_exceeded", step.callable, detail, spans))
