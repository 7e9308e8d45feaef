"""Device phases in the configuration of a run: a run of before the key and one without them are alike."""

from __future__ import annotations

from typing import Any

import pytest

from analyzers.gate.comparability import run_config
from tests.builders.manifests import manifest


def config(**trace: Any) -> dict[str, Any]:
    return run_config(manifest(profile={"name": "p", "trace": {"strace": True, **trace}}))


@pytest.mark.parametrize(
    ("older", "newer", "alike"),
    [
        ({}, {"device_phases": False}, True),
        ({}, {"device_phases": True}, False),
        ({"device_phases": True}, {"device_phases": True}, True),
        ({"device_phases": False}, {"device_phases": True}, False),
        ({}, {"device_phases": False, "sa_profile": "e2e"}, False),
    ],
)
def test_naming_what_held_before_makes_no_difference(
    older: dict[str, Any], newer: dict[str, Any], alike: bool
) -> None:
    assert (config(**older) == config(**newer)) is alike
