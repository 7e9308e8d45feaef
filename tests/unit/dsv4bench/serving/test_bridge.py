"""From the engine's thread to the loop: nothing is lost, nothing comes twice, and one step wakes the loop once."""

import asyncio
import threading
import time

import pytest

from dsv4bench.engine.requests import Request
from dsv4bench.serving.bridge import EngineBridge
from tests.unit.dsv4bench.serving.fake_engine import FakeEngine


def request(name: str, tokens: int = 4) -> Request:
    return Request(name, [1], tokens)


def test_everything_that_is_published_comes_once_and_in_order() -> None:
    async def test() -> None:
        engine = FakeEngine()
        bridge = EngineBridge(engine, asyncio.get_running_loop())
        streams = [bridge.submit(request(f"r{index}", 41)) for index in range(40)]
        for stream in streams:
            steps = [step async for batch in stream.steps() for step in batch]
            assert [token for step in steps for token in step.token_ids] == list(range(100, 141))
            assert [step.last for step in steps] == [*[False] * (len(steps) - 1), True]
            assert all(step.time_ns is not None for step in steps[:-1])
        for stream in streams:
            bridge.release(stream.handle.request.request_id)
        assert not bridge.streams
        engine.close()

    asyncio.run(asyncio.wait_for(test(), 30))


def test_a_step_of_many_requests_wakes_the_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        engine = FakeEngine(held=True)
        bridge = EngineBridge(engine, loop)
        handles = [bridge.submit(request(f"r{index}")).handle for index in range(32)]
        woken: list[object] = []
        monkeypatch.setattr(loop, "call_soon_threadsafe", woken.append)
        now_ns = time.perf_counter_ns()

        def publish() -> None:
            for handle in handles:
                handle.publish([7], now_ns)

        thread = threading.Thread(target=publish)
        thread.start()
        thread.join()  # the loop does not run meanwhile
        assert len(woken) == 1
        for name in list(bridge.streams):
            bridge.release(name)
        assert len(engine.cancelled) == 32
        engine.close()

    asyncio.run(asyncio.wait_for(test(), 30))


def test_an_end_without_tokens_is_an_end() -> None:
    async def test() -> None:
        engine = FakeEngine(held=True)
        bridge = EngineBridge(engine, asyncio.get_running_loop())
        stream = bridge.submit(request("r"))
        engine.cancel("r")
        (batch,) = [batch async for batch in stream.steps()]
        assert (batch[0].token_ids, batch[0].last) == ([], True)
        bridge.release("r")
        assert engine.cancelled == ["r"]
        engine.close()

    asyncio.run(asyncio.wait_for(test(), 30))


@pytest.mark.parametrize("before", [True, False])
def test_an_abandoned_stream_ends(before: bool) -> None:
    async def test() -> None:
        engine = FakeEngine(held=True)
        bridge = EngineBridge(engine, asyncio.get_running_loop())
        stream = bridge.submit(request("r"))
        if before:
            stream.abandon()
        else:
            asyncio.get_running_loop().call_later(0.01, stream.abandon)
        assert [batch async for batch in stream.steps()] == []
        engine.close()

    asyncio.run(asyncio.wait_for(test(), 30))
