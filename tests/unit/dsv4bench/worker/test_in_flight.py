"""The table of dispatches in flight: two at most, who completes, and what a failure does to the others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from dsv4bench.errors import RankError
from dsv4bench.worker.in_flight import InFlight, InFlightTable


class Table:
    """A table of two ranks, and how often it said that it is drained."""

    def __init__(self) -> None:
        self.drained = 0
        self.table = InFlightTable(2, self._drain)

    def _drain(self) -> None:
        self.drained += 1

    def enter(self, program: str = "decode") -> InFlight:
        return self.table.enter(program, trace=True, slot_id=0, generation=0)

    def complete(self, dispatch_id: int) -> None:
        for rank in (1, 0):
            self.table.complete(rank, dispatch_id)


@pytest.fixture
def rows() -> Table:
    return Table()


def test_the_last_rank_completes_a_dispatch(rows: Table) -> None:
    entry = rows.enter()
    assert rows.table.complete(1, 1) is entry
    assert (entry.handle.done(), rows.table.is_complete(entry)) == (False, False)
    assert rows.table.complete(0, 1) is entry
    assert (entry.handle.done(), rows.table.is_complete(entry)) == (True, True)
    entry.handle.result(0)
    assert rows.table.complete(0, 1) is None
    assert rows.drained == 0


def test_a_third_waits_for_the_oldest(rows: Table) -> None:
    first, second = rows.enter(), rows.enter()
    assert first.head_since < second.head_since
    with ThreadPoolExecutor(1) as pool:
        third = pool.submit(rows.enter)
        with pytest.raises(TimeoutError):
            third.result(0.05)
        rows.complete(1)
        assert third.result(5).handle.dispatch_id == 3
    assert rows.table.oldest() is second
    assert second.head_since >= first.head_since


def test_a_failure_spares_what_was_submitted_before_it(rows: Table) -> None:
    before, failed = rows.enter("prefill"), rows.enter("decode")
    assert rows.table.program_of(2) == "decode"
    rows.table.fail(RankError("rank 1 raised"), 2)
    with pytest.raises(RankError, match="rank 1 raised"):
        failed.handle.result(0)
    assert (before.handle.done(), rows.drained) == (False, 0)
    with pytest.raises(RankError, match="rank 1 raised"):
        rows.enter()
    rows.complete(1)
    before.handle.result(0)
    assert rows.drained == 1
    with pytest.raises(RankError):
        rows.table.drain_whole()


def test_every_waiter_gets_the_first_error(rows: Table) -> None:
    first = rows.enter()
    rows.enter()
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(rows.enter)
        draining = pool.submit(rows.table.drain_whole)
        rows.table.fail(RankError("the first"))
        rows.table.fail(RankError("the second"))
        for outcome in (waiting, draining):
            with pytest.raises(RankError, match="the first"):
                outcome.result(5)
    with pytest.raises(RankError, match="the first"):
        first.handle.result(0)


def test_the_first_dispatch_that_a_rank_has_not_completed(rows: Table) -> None:
    assert rows.table.first_incomplete(0) == 1
    rows.enter()
    rows.enter()
    rows.table.complete(0, 1)
    assert (rows.table.first_incomplete(0), rows.table.first_incomplete(1)) == (2, 1)
    rows.table.complete(0, 2)
    assert rows.table.first_incomplete(0) == 3
