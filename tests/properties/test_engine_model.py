"""The engine's bookkeeping against a sequential model: whatever happens in whatever order, the same tokens.

The scheduler with its pages, state slots and generations, the ping-pong slots, their block tables and the tickets run
on a fake device, which runs behind the host by a drawn distance. Times are small integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dsv4bench.cache.layout import CacheGroup
from dsv4bench.engine.metadata import TableBuffers
from dsv4bench.engine.reach import reachable_headroom
from dsv4bench.engine.requests import ActiveRequest, Request, RequestHandle
from dsv4bench.engine.scheduler import Scheduler
from dsv4bench.engine.seats import Seats
from dsv4bench.engine.slots import SLOTS, DecodeSlot, SlotPool
from dsv4bench.engine.steps import DecodeOutput, DecodeStep, Outcome, PrefillOutput, Step
from dsv4bench.engine.tickets import Ticket
from dsv4bench.errors import EngineError, UsageError
from dsv4bench.tracing.recorder import NullRecorder
from dsv4bench.worker.handle import DispatchHandle
from tests.properties.fake_device import EOS, FakeRank, Row, layout_for, next_token

LONGEST_PROMPT, LONGEST_OUTPUT = 21, 14
NAMES = st.sampled_from("abcdef")
TOKENS = st.integers(2, 5)
# Some prompts begin alike, around the ends of pages: the coarsest ones have 8 positions.
COMMON = (2, 5, 3, 3, 4, 2, 2, 5, 4, 4, 3, 5, 2, 3, 4, 5, 5)
PROMPTS = st.one_of(
    st.lists(TOKENS, min_size=1, max_size=14),
    st.builds(
        lambda count, tail: [*COMMON[:count], *tail],
        st.sampled_from((7, 8, 9, 15, 16, 17)),
        st.lists(TOKENS, min_size=1, max_size=LONGEST_PROMPT - len(COMMON)),
    ),
)
REQUESTS = st.builds(
    Request,
    NAMES,
    PROMPTS,
    st.sampled_from((LONGEST_OUTPUT, LONGEST_OUTPUT, 8, 3, 2, 1)),
    st.sampled_from((True, True, False)),
)


def sequential(request: Request) -> tuple[list[int], str]:
    """Tokens and finish reason of a request by itself."""
    tokens = list(request.prompt_token_ids)
    output: list[int] = []
    while len(output) < request.max_tokens:
        output.append(next_token(tokens + output))
        if output[-1] == EOS and not request.ignore_eos:
            return output, "stop"
    return output, "length"


@dataclass
class Dispatch:
    """A step on its way: the rows it was packed with, once it was, and what came of it."""

    step: Step
    handle: DispatchHandle
    rows: list[list[Row]] | None = None
    output: DecodeOutput | PrefillOutput | None = None
    ticket: Ticket | None = None
    error: BaseException | None = None
    lost: bool = False


class FakeWorker:
    """Takes submissions; `refuse` makes the next one fail."""

    def __init__(self) -> None:
        self.refuse = False

    def submit(self, program: str, arguments: list[Any], *, slot_id: int, generation: int) -> DispatchHandle:
        if self.refuse:
            self.refuse = False
            raise EngineError("not submitted")
        return arguments[0].handle


class EngineMachine(RuleBasedStateMachine):
    """Rules are what may happen at any time; invariants hold between any two of them."""

    @initialize(
        ranks=st.integers(1, 2),
        seats=st.integers(1, 3),
        depth=st.integers(1, 2),
        speculative=st.integers(0, 3),
        prefill_tokens=st.integers(3, 12),
        spare=st.lists(st.sampled_from((0, 0, 1, 2, 3, 5, 8, 12)), min_size=7, max_size=7),
        short=st.sampled_from((0, 0, 0, 1)),
        luck=st.integers(0, 10),
        late=st.booleans(),
        snapshots=st.sampled_from((0, 1, 2, 5)),
    )
    def start(
        self,
        ranks: int,
        seats: int,
        depth: int,
        speculative: int,
        prefill_tokens: int,
        spare: list[int],
        short: int,
        luck: int,
        late: bool,
        snapshots: int,
    ) -> None:
        layout = layout_for(LONGEST_PROMPT + LONGEST_OUTPUT + reachable_headroom(speculative))
        self.layout, self.speculative, self.depth, self.seats, self.late = (
            layout,
            speculative,
            depth,
            seats,
            late,
        )
        # Enough for one request of full length, or a page short of it, and some more.
        full = layout.blocks_for(layout.max_model_len)
        self.pages = [count + extra - short for count, extra in zip(full, spare, strict=True)]
        self.scheduler = Scheduler(
            layout, ranks, seats, prefill_tokens, speculative, EOS, self.pages, snapshots
        )
        self.snapshots = snapshots
        self.ranks, self.luck = ranks, luck
        self._start_ranks()
        self.slots = SlotPool([cast(DecodeSlot, SimpleNamespace(generation=0)) for _ in range(SLOTS)])
        self.worker = FakeWorker()
        self.handles: list[RequestHandle] = []
        self.expected: list[tuple[list[int], str]] = []
        self.in_flight: list[Dispatch] = []
        self.clock = self.steps = 0
        self.fault: tuple[int, str] | None = None
        self.failed = False

    def _start_ranks(self) -> None:
        luck = self.luck
        self.devices = [
            FakeRank(
                self.pages, self.seats, self.speculative, lambda life, at: (7 * life + 13 * at) % 10 < luck
            )
            for _ in range(self.ranks)
        ]
        self.tables = [TableBuffers(np.zeros, self.layout, self.ranks, self.seats) for _ in range(SLOTS + 1)]
        self.lives: dict[tuple[int, int, int], object] = {}

    # What clients do

    @rule(requests=st.lists(REQUESTS, min_size=1, max_size=4))
    def arrive(self, requests: list[Request]) -> None:
        for request in requests:
            self._arrive(request)

    def _arrive(self, request: Request) -> None:
        prompt, tokens = request.prompt_token_ids, request.max_tokens
        handle = RequestHandle(request, self.clock)
        positions = len(prompt) + tokens + 3 * self.speculative + 3
        needed = [
            -(-positions // group.tokens_per_page)
            if group.ring_blocks is None
            else min(group.ring_blocks, -(-positions // group.tokens_per_page))
            for group in self.layout.groups
        ]
        if all(count <= pages for count, pages in zip(needed, self.pages, strict=True)):
            self.scheduler.add(handle)
            self.handles.append(handle)
            self.expected.append(sequential(request))
        else:
            with pytest.raises(UsageError, match="pages of group"):
                self.scheduler.add(handle)

    @rule(name=NAMES)
    def cancel(self, name: str) -> None:
        running = [
            handle
            for handle in self.handles
            if handle.request.request_id == name and handle.finish_reason is None
        ]
        self.scheduler.cancel(name)
        if running:
            assert running.pop().finish_reason == "cancelled"
        assert all(handle.finish_reason is None for handle in running)

    # What the engine does

    @rule()
    def fill(self) -> None:
        """The command lane, to the declared depth."""
        while len(self.in_flight) < self.depth and not self.failed:
            before = [handle.preemptions for handle in self.handles]
            step = self.scheduler.schedule()
            self._check_preemptions(before)
            if step is None:
                assert self.in_flight or self.scheduler.idle, "deadlock"
                return
            self._check_step(step)
            self._submit(step)

    @precondition(lambda self: self.in_flight)
    @rule()
    def run_device(self) -> None:
        """The device completes its oldest dispatch before the host asks for it."""
        self._execute(next((d for d in self.in_flight if not d.handle.done()), self.in_flight[0]))

    @precondition(lambda self: self.in_flight)
    @rule()
    def reclaim(self) -> None:
        """The output lane, and the engine's thread behind it."""
        dispatch = self.in_flight.pop(0)
        self._execute(dispatch)
        error = dispatch.error
        if dispatch.ticket is not None:
            for _ in range(2):
                try:
                    dispatch.ticket.wait()
                except EngineError as raised:
                    error = raised
        if isinstance(dispatch.step, DecodeStep):
            self.slots.release(dispatch.step)
        self.clock += 1
        if error is None and not dispatch.lost:
            self.scheduler.process(Outcome(dispatch.step, dispatch.output), self.clock)
        else:
            self.scheduler.abandon(dispatch.step)
            self.failed = True
        if self.failed and not self.in_flight:
            self.failed = False
            self._recover(error or EngineError("outputs were lost"))

    def _recover(self, error: BaseException) -> None:
        """Steps behind a failed one are drained; the engine ends its requests, or goes on, with new ranks or not."""
        if self.recovery == "end":
            self.scheduler.end_all("error", error)
        elif self.recovery == "restart":
            self.scheduler.restart()
            self._start_ranks()

    @rule(rounds=st.integers(1, 12))
    def go_on(self, rounds: int) -> None:
        for _ in range(rounds):
            self.fill()
            if self.in_flight:
                self.reclaim()

    @precondition(lambda self: self.fault is None)
    @rule(
        fault=st.sampled_from(("submit", "device", "outputs")),
        ahead=st.integers(1, 100),
        recovery=st.sampled_from(("end", "restart", "same ranks")),
    )
    def fail_later(self, fault: str, ahead: int, recovery: int) -> None:
        self.recovery = recovery
        self.fault = (self.steps + ahead, fault)

    # What must hold

    @invariant()
    def pages_slots_and_places_are_in_order(self) -> None:
        for seats in self.scheduler._seats:
            held = [request.state_slot for request in seats.holders]
            assert len(set(held)) == len(held) == self.seats - seats._state_slots.available
            self._check_owners(seats)
        waiting = [handle.arrival for handle in self.scheduler._waiting]
        assert waiting == sorted(waiting)
        for dispatch in self.in_flight:
            for request in _requests(dispatch.step):
                assert any(request is holder for holder in self.scheduler._seats[request.rank].holders)

    def _check_owners(self, seats: Seats) -> None:
        """Every page is free, a request's own, or the index's; the index knows who reads which of its pages."""
        cached = seats._prefixes.pages
        assert sum(page.snapshot is not None for page in cached) <= self.snapshots
        for page in cached:
            assert page.users == sum(page in request.prefix.pages for request in seats.holders)
        for group in CacheGroup:
            shared = [number for page in cached for number in page.ids[group].tolist()]
            assert not shared or self.layout[group].ring_blocks is None
            own = []
            for request in seats.holders:
                ids = request.blocks[group].tolist()
                held = {number for page in request.prefix.pages for number in page.ids[group].tolist()}
                assert held == set(ids) & set(shared)
                own += [number for number in ids if number not in held]
            assert len(set(own + shared)) == len(own) + len(shared)
            assert len(own) + len(shared) + seats._allocator.free[group] == self.pages[group]

    @invariant()
    def what_was_published_is_right(self) -> None:
        for handle, (tokens, reason) in zip(self.handles, self.expected, strict=True):
            assert handle.token_ids == tokens[: len(handle.token_ids)]
            assert handle.token_times_ns == sorted(handle.token_times_ns)
            assert len(handle.token_times_ns) == len(handle.token_ids)
            committed = len(handle.token_ids) + handle.discarded
            assert handle.prefills + handle.steps + handle.accepted == committed
            assert handle.proposed == handle.steps * self.speculative
            assert handle.prefills <= handle.preemptions + 1
            if handle.finish_reason in ("length", "stop"):
                assert (handle.token_ids, handle.finish_reason) == (tokens, reason)
            else:
                assert handle.discarded == 0

    def teardown(self) -> None:
        """Everything ends, and everything comes back."""
        rounds = 0
        while self.in_flight or not self.scheduler.idle:
            self.go_on(1)
            rounds += 1
            assert rounds < 3000, "no progress"
            self.pages_slots_and_places_are_in_order()
        self.what_was_published_is_right()
        assert all(handle.finish_reason is not None for handle in self.handles)
        for seats in self.scheduler._seats:
            assert all(page.users == 0 for page in seats._prefixes.pages)
            seats._prefixes.reclaim(
                [len(seats._prefixes.pages) if group in (1, 2, 3) else 0 for group in range(7)]
            )
            assert list(seats._allocator.free) == self.pages
            assert seats._state_slots.available == self.seats
        assert self.slots._holder == [None] * SLOTS

    # The lanes, in one thread

    def _submit(self, step: Step) -> None:
        dispatch = Dispatch(step, DispatchHandle(self.steps, "step"))
        self.steps += 1
        self.in_flight.append(dispatch)
        if isinstance(step, DecodeStep):
            assert self.slots._holder[step.slot] is None, "taking the slot would wait for ever"
            self.slots.take(step)
        if not self.late:
            self._pack(dispatch)
        fault = None
        if self.fault and self.fault[0] <= self.steps:
            fault, self.fault = self.fault[1], None
        if any(other.error for other in self.in_flight):
            dispatch.error = EngineError("behind a failure")
        elif isinstance(step, DecodeStep):
            self.worker.refuse = fault == "submit"
            try:
                dispatch.ticket = Ticket.submit(
                    cast(Any, self.worker),
                    "decode",
                    [cast(Any, dispatch)],
                    NullRecorder(),
                    {},
                    slot_id=step.slot,
                    generation=0,
                )
            except EngineError as error:
                dispatch.error = error
        # A step of which only the outputs are lost does not keep the device from running the next one.
        dispatch.lost = fault == "outputs"
        if fault == "device" or (fault == "submit" and not isinstance(step, DecodeStep)):
            dispatch.error = EngineError("rank 1 raised")
        if dispatch.error:
            self._execute(dispatch)

    def _execute(self, dispatch: Dispatch) -> None:
        """Complete every dispatch up to this one, in order."""
        for earlier in self.in_flight[: self.in_flight.index(dispatch)] if dispatch in self.in_flight else ():
            self._execute(earlier)
        if dispatch.handle.done():
            return
        if dispatch.rows is None:
            self._pack(dispatch)
        if dispatch.error is None:
            self._check_pages(dispatch)
            dispatch.output = self._run(dispatch)
        dispatch.handle.complete(dispatch.error)

    def _pack(self, dispatch: Dispatch) -> None:
        step = dispatch.step
        buffers = self.tables[step.slot if isinstance(step, DecodeStep) else SLOTS]
        dispatch.rows = []
        for rank, requests in enumerate(_by_rank(step)):
            buffers.update(rank, requests)
            groups = [value[rank] for value in vars(buffers.tables).values()]
            *tables, counts = groups
            dispatch.rows.append(
                [
                    Row(
                        request.state_slot,
                        request.generation,
                        tuple(
                            table[row, :count].copy()
                            for table, count in zip(tables, counts[row], strict=True)
                        ),
                        request.prefix.reused,
                    )
                    for row, request in enumerate(requests)
                ]
            )

    def _run(self, dispatch: Dispatch) -> DecodeOutput | PrefillOutput:
        step, ranks = dispatch.step, len(self.devices)
        sampled = np.full((ranks, self.seats, self.speculative + 1), -1, np.int32)
        counts = np.zeros((ranks, self.seats), np.int32)
        for rank, (device, rows) in enumerate(zip(self.devices, dispatch.rows, strict=True)):
            device.frozen = [
                {
                    number
                    for page in self.scheduler._seats[rank]._prefixes.pages
                    for number in page.ids[group].tolist()
                }
                for group in CacheGroup
            ]
            for index, row in enumerate(rows):
                if isinstance(step, DecodeStep):
                    committed = device.decode(row)
                    assert committed, "a step met a state slot of another generation"
                    sampled[rank, index, : len(committed)] = committed
                    counts[rank, index] = len(committed)
                else:
                    chunk = step.chunks[rank][index]
                    sampled[rank, index, 0] = _prefill(device, row, chunk)
        return (
            DecodeOutput(sampled, counts) if isinstance(step, DecodeStep) else PrefillOutput(sampled[:, :, 0])
        )

    def _check_pages(self, dispatch: Dispatch) -> None:
        for requests, rows in zip(_by_rank(dispatch.step), dispatch.rows, strict=True):
            for request, row in zip(requests, rows, strict=True):
                assert any(request is holder for holder in self.scheduler._seats[request.rank].holders)
                for ids, table in zip(request.blocks, row.tables, strict=True):
                    assert set(table.tolist()) <= set(ids.tolist())

    def _check_step(self, step: Step) -> None:
        for rank, requests in enumerate(_by_rank(step)):
            assert len(requests) <= self.seats
            for request in requests:
                assert request.live
                assert request.decoding == isinstance(step, DecodeStep)
                assert request.rank == rank == request.handle.rank
                assert request.prefilled >= request.prefix.reused
                life = (rank, request.state_slot, request.generation)
                assert self.lives.setdefault(life, request) is request

    def _check_preemptions(self, before: Any) -> None:
        victims = [
            handle for handle, count in zip(self.handles, before, strict=False) if handle.preemptions != count
        ]
        for victim in victims:
            assert victim in self.scheduler._waiting, "admitted again by the pass that preempted it"
            assert all(
                request.handle.arrival < victim.arrival for request in self.scheduler._seats[victim.rank].live
            ), "not the latest arrival"


def _prefill(device: FakeRank, row: Row, chunk: Any) -> int:
    prefix = chunk.request.prefix
    if prefix.snapshot is not None and chunk.start == prefix.reused:
        device.restore(row, prefix.snapshot.content)
    tokens = chunk.request.prompt_token_ids[chunk.start : chunk.end]
    first = device.prefill(row, tokens, chunk.start, terminal=chunk.terminal)
    if chunk.snapshot is not None:
        chunk.snapshot.content = device.take(row)
    return first


def _by_rank(step: Step) -> Sequence[Sequence[ActiveRequest]]:
    if isinstance(step, DecodeStep):
        return step.requests
    return [[chunk.request for chunk in chunks] for chunks in step.chunks]


def _requests(step: Step) -> list[ActiveRequest]:
    return [request for requests in _by_rank(step) for request in requests]


TestEngineModel = EngineMachine.TestCase
TestEngineModel.settings = settings(
    max_examples=300,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
