"""Damaged inputs of every reader: nothing but our errors, no hang, no damage without a word, and no more lost than hit."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from analyzers.readers.chrome_trace import read_chrome_trace

_SCRIPT = Path(__file__).with_name("fuzz_analyzers.py")


def run(count: int, seed: int) -> Counter[str]:
    specification = importlib.util.spec_from_file_location("fuzz_analyzers", _SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    outcomes: Counter[str] = module.fuzz(count, seed)
    return outcomes


def test_five_hundred_damaged_inputs() -> None:
    outcomes = run(500, seed=1)
    assert outcomes.total() == 500
    assert not outcomes["found"]


@pytest.mark.slow
def test_a_hundred_thousand_damaged_inputs() -> None:
    outcomes = run(100_000, seed=2)
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
def test_damage_inside_one_event_costs_no_other(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(_SCRIPT.parent), *sys.path])
    from mutations import FRAGMENTS

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
