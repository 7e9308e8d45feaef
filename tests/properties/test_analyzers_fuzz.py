"""Damaged inputs of every reader: nothing but our errors, no hang, no damage without a word."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

_SCRIPT = Path(__file__).with_name("fuzz_analyzers.py")


def run(count: int, seed: int) -> int:
    specification = importlib.util.spec_from_file_location("fuzz_analyzers", _SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return sum(module.fuzz(count, seed).values())


def test_a_thousand_damaged_inputs() -> None:
    assert run(1_000, seed=1) == 1_000


@pytest.mark.slow
def test_a_hundred_thousand_damaged_inputs() -> None:
    assert run(100_000, seed=2) == 100_000
