"""Damaged inputs of every reader: nothing but our errors, no hang, no damage without a word, and no more lost than hit."""

from __future__ import annotations

from random import Random

import pytest

from analyzers.readers.chrome_trace import read_chrome_trace
from tests.properties.fuzz_analyzers import fuzz
from tests.properties.mutations import FRAGMENTS


def test_five_hundred_damaged_inputs() -> None:
    outcomes = fuzz(500, seed=1)
    assert outcomes.total() == 500
    assert not outcomes["found"]


@pytest.mark.slow
def test_a_hundred_thousand_damaged_inputs() -> None:
    outcomes = fuzz(100_000, seed=2)
    assert outcomes.total() == 100_000
    assert not outcomes["found"]


_EVENT = '{"ph":"X","name":"n%d","pid":1,"tid":1,"ts":%d,"dur":2,"args":{"a":[%d],"s":"x"}}'
_LAYOUTS = {
    "array": ("[", ",", "]"),
    "lines": ("[\n", ",\n", "\n]"),
    "document": ('{"traceEvents":[', ",", '],"x":1}'),
    "JSON lines": ("", "\n", "\n"),
}


@pytest.mark.parametrize("layout", _LAYOUTS)
def test_damage_inside_one_event_costs_no_other(layout: str) -> None:
    opening, between, closing = _LAYOUTS[layout]
    events = [_EVENT % (number, 10 * number, number) for number in range(12)]
    text = opening + between.join(events) + closing
    random = Random(7)
    for _ in range(700):
        hit = random.randrange(12)
        start, end = text.index(events[hit]), text.index(events[hit]) + len(events[hit])
        at = random.randrange(start + 1, end)
        cut = min(at + random.choice((0, 1, 5, 20)), end)
        damaged = text[:at].encode() + random.choice(FRAGMENTS) + text[cut:].encode()
        found = set(read_chrome_trace(damaged, "trace.json").spans.iter_names())
        assert found >= {f"n{number}" for number in range(12) if number != hit}, damaged
