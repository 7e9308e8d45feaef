"""Runs against servers that fail: each ends as it should, keeps what was measured, and leaves nothing running."""

from pathlib import Path

import pytest

from tests.serving.trials import TRIALS, Trial, run_trial

IN_EVERY_RUN = ("exit mid-stream", "every third 500", "refused field", "stop_profile hangs", "killed")
"""The others take the same ways with other words."""


def cases() -> list[object]:
    return [
        pytest.param(
            trial, id=trial.name, marks=pytest.mark.medium if trial.name in IN_EVERY_RUN else pytest.mark.slow
        )
        for trial in TRIALS
    ]


@pytest.mark.parametrize("trial", cases())
def test_a_run_ends_as_its_server_does(trial: Trial, tmp_path: Path) -> None:
    assert run_trial(trial, tmp_path) == []
