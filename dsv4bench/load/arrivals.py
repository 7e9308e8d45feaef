"""When requests of an open loop are sent: at a steady rate, at random, in bursts, or at a rate that changes."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator

from dsv4bench.load.settings import LoadSection

_NS_PER_S = 1e9


def arrival_times(load: LoadSection, count: int) -> list[int] | None:
    """When each of `count` requests is to be sent, int64 ns from the batch's beginning; None for a closed loop.

    The first gap lies before the first request, as in a process that has always been going on. The gaps are drawn by the
    load's seed, and are the same for every engine.
    """
    if load.ramp is not None:
        assert load.ramp_start_rate is not None
        assert load.ramp_end_rate is not None
        return _ramp(load.ramp_start_rate, load.ramp_end_rate, count, exponential=load.ramp == "exponential")
    if load.request_rate is None:
        return None
    gaps = _gaps(load, load.request_rate)
    times = itertools.accumulate(itertools.islice(gaps, count))
    return [round(time * _NS_PER_S) for time in times]


def _gaps(load: LoadSection, rate: float) -> Iterator[float]:
    """Seconds between arrivals, 1 / rate on average."""
    draw = random.Random(load.seed)
    if load.arrivals == "constant":
        return itertools.repeat(1 / rate)
    if load.arrivals == "poisson":
        return iter(lambda: draw.expovariate(rate), None)
    # A gamma distribution of shape k has the variation 1 / sqrt(k): below 1 comes in bursts, above 1 more evenly.
    shape = load.burstiness
    return iter(lambda: draw.gammavariate(shape, 1 / (rate * shape)), None)


def _ramp(start: float, end: float, count: int, *, exponential: bool) -> list[int]:
    """The gap before request i is that of its rate, which goes from `start` to `end` over the requests."""
    last = max(1, count - 1)
    if exponential:
        ratio = math.log(end / start)
        rates = [start * math.exp(ratio * index / last) for index in range(count)]
    else:
        rates = [start + (end - start) * index / last for index in range(count)]
    return [round(time * _NS_PER_S) for time in itertools.accumulate(1 / rate for rate in rates)]
