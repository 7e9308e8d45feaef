"""One gate of real runs: a worse drafter is seen in acceptance, and the tokens stay."""

from pathlib import Path

import msgspec
import pytest

from analyzers.gate.model import GateResult
from tests.integration.command import SMALL, command, manifest_of, measured_of, run


@pytest.mark.slow
def test_a_gate_of_real_runs_shows_what_a_worse_drafter_changes(
    environment: dict[str, str], tmp_path: Path
) -> None:
    small = " ".join([*SMALL[:-1], "2", "--set load.requests=2", "--set load.output_tokens=30"])
    base = f"cmd:{' '.join(command('run', 'gbs32-mtp1'))} {small}"
    out = tmp_path / "gate"
    done = run(
        environment,
        *("gate", "run", "--base", base, "--head", f"{base} --fault kind=spoil-drafts:1", "--runs", "1"),
        *("--set", "engine.depth=1", "--base-set", "engine.mtp=1", "--out", out, "--json"),
        cwd=tmp_path,
    )
    # Of one run a side nothing can be proven: it fails closed.
    assert done.returncode == 5, done.stderr
    result = msgspec.json.decode(done.stdout, type=GateResult)
    assert result.verdict == "UNDECIDED"
    assert result.method.startswith("interleaved ABBA")
    acceptance = next(metric for metric in result.metrics if metric.name == "acceptance_length")
    assert acceptance.base_median > 1.3
    assert acceptance.head_median < 1.1
    assert any("faults were injected on request (in " in warning for warning in result.warnings)
    runs = [out / side / "run-01" for side in ("base", "head")]
    tokens = [[record.output_token_ids for record in measured_of(directory)] for directory in runs]
    assert tokens[0] == tokens[1]
    assert [manifest_of(directory).depth for directory in runs] == [1, 1]
    (fault,) = manifest_of(runs[1]).faults
    assert fault.startswith("kind=spoil-drafts:1 (from dispatch ")
    before, after = manifest_of(runs[0]).host_before, manifest_of(runs[0]).host_after
    assert before.sampled_s is not None
    assert after.sampled_s is not None
    assert after.sampled_s > before.sampled_s
