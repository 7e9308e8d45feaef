"""Reports of six captures are what they were, to the letter; `tests/golden/renew.py` says how to accept a change."""

from __future__ import annotations

import pytest

from tests.builders.places import GOLDEN
from tests.golden.renew import CAPTURES, COLUMNS, reports_of


@pytest.mark.parametrize("name", CAPTURES)
def test_a_capture_is_reported_as_before(name: str) -> None:
    reports = reports_of(CAPTURES[name])
    for file, text in reports.items():
        assert text == (GOLDEN / name / file).read_text(encoding="utf-8"), f"{name}/{file}"
    assert max(map(len, reports["report.txt"].splitlines())) <= COLUMNS
