"""Sends the requests of a batch when their time has come, and watches whether it keeps up with its own plan."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence

import msgspec

from analyzers.rundir import ClientFacts, RequestRecord
from dsv4bench.load.requests import LoadProgress, LoadRequest, LoadResult, Phase, ProgressObserver, Target

_TICK_S = 0.1
"""How often progress is told and the event loop's own lag is looked at."""
_LEAD_NS = 20_000_000
"""Between the beginning of a batch with planned times and the first of them: tasks are made in it."""
_LATE_NS = 20_000_000
"""A request is sent late from here on; what asyncio and a shared machine take lies well below."""
_LATE_SHARE = 0.05
"""The share of late requests from which on the load was not the one that was asked for."""


class BatchInterruptedError(Exception):
    """The batch was given up before its end; `result` is what became of it until then."""

    def __init__(self, result: LoadResult) -> None:
        super().__init__("the batch was given up")
        self.result = result


async def drive(
    requests: Sequence[LoadRequest],
    target: Target,
    *,
    phase: Phase,
    concurrency: int | None,
    progress: ProgressObserver,
) -> LoadResult:
    """Send every request when its time has come; returns when all have ended.

    `concurrency` bounds the requests in flight; one whose time has come waits for its place, in order of the plan.
    `progress` is told the counts ten times a second;
    `tokens` of it are those of requests that have ended.

    Raises:
        BatchInterruptedError: this task was cancelled; what had come until then is kept.
    """
    batch = _Batch(requests, target, phase, concurrency, progress)
    return await batch.run()


async def drive_until(
    requests: Sequence[LoadRequest],
    target: Target,
    *,
    phase: Phase,
    concurrency: int | None,
    progress: ProgressObserver,
    keep: Callable[[LoadResult], None],
    ended: Coroutine[None, None, None] | None = None,
) -> None:
    """`drive`, but no longer than until `ended` returns: then what is left has no one to answer it.

    `keep` gets what became of the batch in every case, also where this task is cancelled.
    """
    sending = asyncio.create_task(
        drive(requests, target, phase=phase, concurrency=concurrency, progress=progress)
    )
    watching = [asyncio.create_task(ended)] if ended is not None else []
    try:
        await asyncio.wait([sending, *watching], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in [sending, *watching]:
            task.cancel()  # no matter to one that is done
        try:
            keep(await sending)
        except BatchInterruptedError as stopped:
            keep(stopped.result)


class _Batch:
    def __init__(
        self,
        requests: Sequence[LoadRequest],
        target: Target,
        phase: Phase,
        concurrency: int | None,
        progress: ProgressObserver,
    ) -> None:
        self._requests = requests
        self._target = target
        self._phase: Phase = phase
        self._places = asyncio.Semaphore(concurrency) if concurrency else None
        self._progress = progress
        self._tasks: list[asyncio.Task[RequestRecord]] = []
        self._sent = self._in_flight = self._most = self._failed = self._tokens = self._done = 0
        self._begin_ns = 0
        self._place_ns = 0
        self._waited_ns: dict[str, int] = {}
        self._loop_lag_ns = 0

    async def run(self) -> LoadResult:
        cpu, begin = time.thread_time_ns(), time.perf_counter_ns()
        self._begin_ns = begin + (_LEAD_NS if any(r.arrival_ns is not None for r in self._requests) else 0)
        ticker = asyncio.create_task(self._tick())
        try:
            await self._dispatch()
            await asyncio.gather(*self._tasks)
        except BaseException as stop:
            for task in self._tasks:
                task.cancel()
            # A target makes a record of a request that is cancelled.
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if isinstance(stop, asyncio.CancelledError):
                raise BatchInterruptedError(self._result(cpu, begin)) from stop
            raise
        finally:
            ticker.cancel()
            self._tell()
        return self._result(cpu, begin)

    async def _dispatch(self) -> None:
        for request in self._requests:
            planned = None if request.arrival_ns is None else self._begin_ns + request.arrival_ns
            if planned is not None:
                await _until(planned)
            if self._places is not None:
                before = time.perf_counter_ns()
                await self._places.acquire()
                got = time.perf_counter_ns()
                # Those before it waited, too, and nothing is sent past them.
                held = 0 if planned is None else max(0, min(before, self._place_ns) - planned)
                self._waited_ns[request.request_id] = held + got - before
                self._place_ns = got
            self._sent += 1
            self._in_flight += 1
            self._most = max(self._most, self._in_flight)
            task = asyncio.create_task(self._send(request, planned))
            self._tasks.append(task)
            if planned is None and self._places is None and self._sent % 64 == 0:
                await asyncio.sleep(0)  # the first of many are sent before the last tasks are made

    async def _send(self, request: LoadRequest, planned_ns: int | None) -> RequestRecord:
        try:
            record = await self._target.send(request, planned_ns, self._phase)
        finally:
            self._in_flight -= 1
            if self._places is not None:
                self._places.release()
        self._done += 1
        self._failed += record.error is not None
        self._tokens += len(record.output_token_ids) or record.completion_tokens or 0
        return record

    async def _tick(self) -> None:
        while True:
            before = time.perf_counter_ns()
            await asyncio.sleep(_TICK_S)
            self._loop_lag_ns = max(self._loop_lag_ns, time.perf_counter_ns() - before - int(_TICK_S * 1e9))
            self._tell()

    def _tell(self) -> None:
        self._progress(LoadProgress(self._sent, self._in_flight, self._done, self._failed, self._tokens))

    def _result(self, cpu_ns: int, begin_ns: int) -> LoadResult:
        elapsed = max(time.perf_counter_ns() - begin_ns, 1)
        records = [
            task.result()
            for task in self._tasks
            if task.done() and not task.cancelled() and task.exception() is None
        ]
        facts = ClientFacts(
            cpu_share=(time.thread_time_ns() - cpu_ns) / elapsed,
            most_in_flight=self._most,
            send_lag_p99_ns=None,
            send_lag_max_ns=None,
            loop_lag_max_ns=self._loop_lag_ns,
            kept_up=True,
        )
        return LoadResult(records, judged(facts, records, self._waited_ns))


def judged(
    facts: ClientFacts, records: Sequence[RequestRecord], waited_ns: dict[str, int] | None = None
) -> ClientFacts:
    """`facts` with how late planned requests were sent, and whether that many were late that the load was another one.

    The time that a request waited for its place among those in flight (`waited_ns`, by id) is the plan's, not the
    client's.
    """
    waited = waited_ns or {}
    lags = sorted(
        max(0, record.send_ns - record.planned_ns - waited.get(record.request_id, 0))
        for record in records
        if record.planned_ns is not None
    )
    if not lags:
        return facts
    late = sum(lag > _LATE_NS for lag in lags)
    kept_up = late <= max(1, _LATE_SHARE * len(lags))
    reason = None
    if not kept_up:
        reason = (
            f"{late} of {len(lags)} requests were sent more than {_LATE_NS / 1e6:g} ms after their planned time, "
            f"the latest after {lags[-1] / 1e6:.1f} ms"
        )
    return msgspec.structs.replace(
        facts,
        send_lag_p99_ns=lags[min(len(lags) - 1, int(0.99 * len(lags)))],
        send_lag_max_ns=lags[-1],
        kept_up=kept_up,
        reason=reason,
    )


async def _until(time_ns: int) -> None:
    """Sleep to a time of CLOCK_MONOTONIC."""
    while (left := time_ns - time.perf_counter_ns()) > 0:
        await asyncio.sleep(left / 1e9)
