"""`gate run` between two revisions of a server kind: alike they pass, ten percent slower fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.serving.trials import ROOT, kind_of

pytestmark = pytest.mark.slow


def gate(tmp_path: Path, *words: str) -> tuple[int, dict[str, Any]]:
    kind = tmp_path / "stub.toml"
    kind.write_text(kind_of(("--itl-ms", "20", "--return-ids"), "gate"))
    sets = (
        "load.requests=4",
        "load.output_tokens=12",
        "load.warmup_batches=0",
        "engine.ranks=1",
        "gate.stage_runs=5",
    )
    command = [sys.executable, "-m", "dsv4bench", "gate", "run", "smoke", "--server", str(kind), "--json"]
    command += ["--base", f"dir:{ROOT}", "--head", f"dir:{ROOT}", "--out", str(tmp_path / "runs"), *words]
    command += [word for item in sets for word in ("--set", item)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=900, check=False, cwd=tmp_path
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_server_against_itself_passes(tmp_path: Path) -> None:
    code, result = gate(tmp_path)
    assert (code, result["verdict"]) == (0, "PASS"), result


def test_a_server_that_is_ten_percent_slower_fails_and_the_difference_is_declared(tmp_path: Path) -> None:
    code, result = gate(tmp_path, "--head-set", "server.environment.STUB_SLOWER=1.1")
    assert (code, result["verdict"]) == (1, "FAIL"), result
    assert [item["key"] for item in result["differences"]] == ["server.environment.STUB_SLOWER"]
