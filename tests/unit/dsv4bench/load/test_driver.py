"""When requests are sent, how many at once, and what is kept when a batch is given up."""

import asyncio
import time
from collections.abc import Sequence
from itertools import pairwise

import pytest

from analyzers.rundir import ClientFacts, RequestRecord
from dsv4bench.load.driver import BatchInterruptedError, drive, drive_until, judged
from dsv4bench.load.requests import LoadRequest, LoadResult, Phase, Prompt


class Sleeper:
    """A target that answers after a while; it knows the most that were in flight."""

    def __init__(self, answer_s: float) -> None:
        self.answer_s = answer_s
        self.now = self.most = 0
        self.sent: list[str] = []

    async def send(self, request: LoadRequest, planned_ns: int | None, phase: Phase) -> RequestRecord:
        self.sent.append(request.request_id)
        self.now += 1
        self.most = max(self.most, self.now)
        send_ns = time.perf_counter_ns()
        error = None
        try:
            await asyncio.sleep(self.answer_s)
        except asyncio.CancelledError:
            error = "given up"
        self.now -= 1
        return RequestRecord(
            request.request_id,
            None,
            [],
            [],
            send_ns,
            [],
            "length",
            error=error,
            planned_ns=planned_ns,
            phase=phase,
        )


def requests(count: int, *, gap_ns: int | None = None) -> list[LoadRequest]:
    return [
        LoadRequest(f"r{number}", Prompt((1,), None), 1, None if gap_ns is None else number * gap_ns)
        for number in range(count)
    ]


def driven(target: Sleeper, batch: Sequence[LoadRequest], concurrency: int | None = None) -> LoadResult:
    return asyncio.run(
        drive(batch, target, phase="measured", concurrency=concurrency, progress=lambda _: None)
    )


def test_a_closed_loop_never_has_more_in_flight_and_keeps_the_order() -> None:
    target = Sleeper(0.01)
    result = driven(target, requests(20), concurrency=3)
    assert target.most == 3
    assert result.client.most_in_flight == 3
    assert [record.request_id for record in result.records] == target.sent == [f"r{n}" for n in range(20)]


def test_without_a_limit_all_are_sent_at_once() -> None:
    target = Sleeper(0.2)
    assert driven(target, requests(150)).client.most_in_flight == target.most == 150


def test_an_open_loop_sends_when_the_time_has_come() -> None:
    result = driven(Sleeper(0.0), requests(10, gap_ns=10_000_000))
    planned = [record.planned_ns or 0 for record in result.records]
    assert [after - before for before, after in pairwise(planned)] == [10_000_000] * 9
    assert all(record.send_ns >= record.planned_ns for record in result.records if record.planned_ns)
    assert result.client.send_lag_max_ns is not None


def test_a_batch_that_is_given_up_keeps_what_has_come() -> None:
    async def interrupted() -> LoadResult:
        batch = [*requests(3), *requests(1, gap_ns=0)]
        task = asyncio.create_task(
            drive(batch, Sleeper(60), phase="measured", concurrency=2, progress=lambda _: None)
        )
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(BatchInterruptedError) as stopped:
            await task
        return stopped.value.result

    assert [record.error for record in asyncio.run(interrupted()).records] == ["given up"] * 2


def test_a_batch_ends_with_its_engine() -> None:
    kept: list[LoadResult] = []

    async def engine_fails() -> None:
        await asyncio.sleep(0.05)

    asyncio.run(
        drive_until(
            requests(2),
            Sleeper(60),
            phase="warmup",
            concurrency=None,
            progress=lambda _: None,
            keep=kept.append,
            ended=engine_fails(),
        )
    )
    assert [(record.error, record.phase) for record in kept[0].records] == [("given up", "warmup")] * 2


def record(planned: int, sent: int, name: str = "r") -> RequestRecord:
    return RequestRecord(name, None, [], [], sent, [], "length", planned_ns=planned)


FACTS = ClientFacts(None, 1, None, None, None, kept_up=True)


def test_a_client_has_fallen_behind_when_more_than_five_percent_are_late() -> None:
    late, punctual = record(0, 30_000_000), record(0, 1_000_000)
    assert judged(FACTS, [late, *[punctual] * 10]).kept_up, "one alone may be an accident"
    assert judged(FACTS, [late, late, *[punctual] * 38]).kept_up
    behind = judged(FACTS, [late, late, late, *[punctual] * 38])
    assert not behind.kept_up
    assert behind.reason is not None
    assert behind.reason.startswith("3 of 41 requests were sent more than 20 ms after")
    assert (behind.send_lag_max_ns, behind.send_lag_p99_ns) == (30_000_000, 30_000_000)


def test_waiting_for_a_place_is_the_plans_and_not_the_clients() -> None:
    records = [record(0, 500_000_000, f"r{number}") for number in range(10)]
    assert judged(FACTS, records, {f"r{number}": 499_000_000 for number in range(10)}).kept_up
    assert not judged(FACTS, records).kept_up


@pytest.mark.parametrize("places", [1, 4])
def test_requests_that_wait_behind_others_for_a_place_are_not_late(places: int) -> None:
    result = driven(Sleeper(0.1), requests(12, gap_ns=10_000_000), concurrency=places)
    assert result.client.kept_up, result.client.reason


def test_a_client_that_is_busy_with_something_else_has_fallen_behind() -> None:
    class Busy(Sleeper):
        async def send(self, request: LoadRequest, planned_ns: int | None, phase: Phase) -> RequestRecord:
            time.sleep(0.05)
            return await super().send(request, planned_ns, phase)

    assert not driven(Busy(0.0), requests(12, gap_ns=5_000_000), concurrency=30).client.kept_up


def test_a_closed_loop_has_no_lag() -> None:
    plain = RequestRecord("r", None, [], [], 5, [], "length")
    assert judged(FACTS, [plain]) == FACTS
